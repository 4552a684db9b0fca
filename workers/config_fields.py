"""Every setting of the workers, by name: what it means and what kind of value it takes. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from workers.config_kinds import (
    ALLOWLIST,
    BASE_URL,
    FLAG,
    FOLDER,
    KEY_VARIABLE,
    MODEL,
    MODELS,
    PROVIDER,
    Kind,
    choice,
    line,
    lines,
    number,
    refuse_keys,
)
from workers.roles import MAX_SYSTEM_PROMPT_CHARS
from workers.routing import (
    LIMIT_RANGES,
    MAX_OUTPUT_TOKENS_RANGE,
    ON_CLIENT_EXIT,
    TEMPERATURE_RANGE,
    TERMINAL_RANGES,
)


@dataclass(frozen=True)
class Field:
    """One setting. `check` takes a JSON value, `parse` a text; both give its value or raise SettingError."""

    name: str
    about: str
    kind: Kind
    nullable: bool = False
    in_env: bool = True

    @property
    def wire(self) -> str:
        head, *tail = self.name.split("_")
        return head + "".join(word.capitalize() for word in tail)

    @property
    def env(self) -> str:
        """The end of its variable's name."""
        return self.name.upper()

    def check(self, value: Any) -> Any:
        if value is None and self.nullable:
            return None
        refuse_keys(value)
        return self.kind.check(value)

    def parse(self, text: str) -> Any:
        refuse_keys(text)
        return self.kind.check(self.kind.read(text.strip()))


@dataclass
class Values:
    """Settings that somebody gave, by Python name; what is not there was not given."""

    providers: dict[str, dict[str, Any]] = field(default_factory=dict)
    roles: dict[str, dict[str, Any]] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    terminal: dict[str, Any] = field(default_factory=dict)

    def leaves(self) -> Iterator[tuple[tuple[str, ...], Any]]:
        """Each value with the path to it, such as ("providers", "glm", "model")."""
        for section, named in (("providers", self.providers), ("roles", self.roles)):
            for name, values in named.items():
                yield from (((section, name, key), value) for key, value in values.items())
        yield from ((("defaults", key), value) for key, value in self.defaults.items())
        yield from ((("terminal", key), value) for key, value in self.terminal.items())

    def at(self, path: tuple[str, ...], default: Any = None) -> Any:
        """The value at a path of `leaves`, or the default."""
        found: Any = getattr(self, path[0])
        for key in path[1:]:
            if key not in found:
                return default
            found = found[key]
        return found


_TOKENS: Final = number(*MAX_OUTPUT_TOKENS_RANGE, whole=True)


def _limit(name: str, about: str) -> Field:
    return Field(name, about, number(*LIMIT_RANGES[name], whole=True))


def _terminal(name: str, about: str) -> Field:
    return Field(name, about, number(*TERMINAL_RANGES[name], whole=True))


PROVIDER_FIELDS: Final = (
    Field("base_url", "Address of the API, usually ending in /v1.", BASE_URL),
    Field("api_key_env", "NAME of the variable that holds the key; empty for none.", KEY_VARIABLE),
    Field("model", "Model used when neither the call nor the role names one.", MODEL),
    Field("models", "The only models that may be asked for; empty for any.", MODELS),
    Field("description", "Told to the orchestrator when it chooses.", line(500)),
    Field("private", "Whether it is on this machine or network.", FLAG, nullable=True),
)
ROUTE_FIELDS: Final = (
    Field("provider", "Where the role's tasks go.", PROVIDER),
    Field("model", "Model of that provider; empty for its default.", MODEL),
    Field("max_output_tokens", "Limit of an answer in this role.", _TOKENS, nullable=True),
    Field("temperature", "0 to 2.", number(*TEMPERATURE_RANGE, whole=False), nullable=True),
    Field(
        "system_prompt",
        "Takes the place of the role's prompt.",
        lines(MAX_SYSTEM_PROMPT_CHARS),
        in_env=False,
    ),
)
LIMIT_FIELDS: Final = (
    _limit("max_concurrent", "Workers running at once in each process."),
    _limit("timeout_ms", "Time budget of a worker in milliseconds, retries included."),
    _limit("max_output_tokens", "Limit of an answer where neither the call nor the role says."),
    _limit("max_context_chars", "Characters of task and context together; more is cut."),
    _limit("max_result_chars", "Characters of an answer that are stored."),
    _limit("max_retries", "Tries after the first, for failures that may pass."),
    _limit("retry_base_ms", "Wait before the first retry in milliseconds; it doubles each time."),
    Field("retain_transcripts", "Keep the messages as sent and the raw answer.", FLAG),
    Field("cleanup_workspace_on_finish", "Delete a worker's directory when it ends.", FLAG),
    Field("on_client_exit", "What becomes of running workers at end of input.", choice(*ON_CLIENT_EXIT)),
    Field("workspace_root", "Directory of the workspaces, within MEAH_HOME unless absolute.", FOLDER),
    _limit("retention_days", "Days that texts of finished workers are kept."),
)
TERMINAL_FIELDS: Final = (
    Field("enabled", "Allow commands in the profile workspace-exec.", FLAG),
    Field("allowlist", "Absolute paths of the executables allowed.", ALLOWLIST),
    _terminal("timeout_ms", "Time budget of one command in milliseconds."),
    _terminal("max_output_bytes", "Bytes of a command's output that are kept."),
    _terminal("max_commands_per_worker", "Commands that one worker may bring."),
)
SECTIONS: Final = {
    "providers": PROVIDER_FIELDS,
    "roles": ROUTE_FIELDS,
    "defaults": LIMIT_FIELDS,
    "terminal": TERMINAL_FIELDS,
}
