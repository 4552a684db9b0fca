"""From a task's fields to everything a worker needs, checked: nothing is stored and nobody is called here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from core.errors import JsonObject, MeahError
from core.redaction import holds_secret_value, looks_like_key, redact_counted
from workers.context_files import context_paths
from workers.housekeeping import workspace_root
from workers.models import PermissionProfile
from workers.prompt import ContextItem, Prompt, build
from workers.roles import system_prompt
from workers.routing import Choice, Config, choose, timeout_ms
from workers.schemas import TaskIn
from workers.terminal.commands import checked


@dataclass(frozen=True)
class Prepared:
    """A task that can start: its route, its prompt, and its texts with key-shaped parts replaced."""

    choice: Choice
    prompt: Prompt
    task: str
    context: list[ContextItem]
    constraints: list[str]
    expected_output: str
    label: str
    role: str
    permission_profile: str
    timeout_ms: int
    redactions: int
    commands: list[list[str]] = field(default_factory=list)

    def as_dry_run(self) -> JsonObject:
        return {
            "dryRun": True,
            "provider": self.choice.provider.name,
            "model": self.choice.model,
            "maxOutputTokens": self.choice.max_output_tokens,
            "temperature": self.choice.temperature,
            "timeoutMs": self.timeout_ms,
            "messages": self.prompt.messages,
            "contextTruncated": self.prompt.context_truncated,
            "droppedContext": list(self.prompt.dropped_context),
            "redactions": self.redactions,
            "commands": self.commands,
        }


def refuse_secrets(arguments: Any) -> None:
    """Raises MeahError E_PERMISSION when a configured key's value stands anywhere in the arguments."""
    if variable := holds_secret_value(arguments):
        raise MeahError(
            "E_PERMISSION",
            f"The arguments hold the value of {variable}.",
            hint="Never pass a key in a call: providers read theirs from the environment.",
            reason="credential_in_arguments",
        )


def prepare(task: TaskIn, config: Config) -> Prepared:
    """What a task comes to.

    Raises MeahError: E_INVALID_REQUEST, E_PERMISSION, E_CONTEXT_LIMIT, E_PATH_ESCAPE, E_SANDBOX_UNAVAILABLE, E_CONFIG.
    """
    refuse_key_shaped(
        label=task.label,
        expectedOutput=task.expected_output,
        provider=task.provider or "",
        model=task.model or "",
        commands="\n".join(command if isinstance(command, str) else " ".join(command) for command in task.commands),
    )
    is_exec = task.permission_profile == PermissionProfile.WORKSPACE_EXEC
    commands = checked(task.commands, config.terminal, profile_allows=is_exec, workspaces=workspace_root(config))
    choice = choose(
        config,
        role=task.role,
        provider=task.provider or "",
        model=task.model or "",
        max_output_tokens=task.max_output_tokens,
        temperature=task.temperature,
    )
    texts = _Redacted()
    items = [ContextItem(texts.of(name), texts.of(content)) for name, content in _named(task)]
    if task.permission_profile != PermissionProfile.NONE:
        context_paths(items)
    clean_task = texts.of(task.task)
    constraints = [texts.of(item) for item in task.constraints]
    prompt = build(
        task=clean_task,
        system_prompt=system_prompt(task.role, choice.system_prompt),
        context=items,
        constraints=constraints,
        expected_output=task.expected_output,
        max_context_chars=config.limits.max_context_chars,
    )
    return Prepared(
        choice=choice,
        prompt=prompt,
        task=clean_task,
        context=items,
        constraints=constraints,
        expected_output=task.expected_output,
        label=task.label,
        role=task.role,
        permission_profile=task.permission_profile,
        timeout_ms=timeout_ms(config.limits, task.timeout_ms),
        redactions=texts.count,
        commands=commands,
    )


class _Redacted:
    """Replaces key-shaped text and keeps count: code under review has fixtures."""

    def __init__(self) -> None:
        self.count = 0

    def of(self, text: str) -> str:
        clean, count = redact_counted(text)
        self.count += count
        return clean


def _named(task: TaskIn) -> list[tuple[str, str]]:
    return [("", item) if isinstance(item, str) else (item.name, item.content) for item in task.context]


def refuse_key_shaped(**fields: str) -> None:
    """Raises MeahError E_PERMISSION naming the first of these fields that holds something shaped like a key."""
    for name, text in fields.items():
        if looks_like_key(text):
            raise MeahError(
                "E_PERMISSION",
                f"{name} holds something that looks like a key.",
                hint="Remove it: only task, context and constraints may quote key-shaped text; there it is replaced.",
                reason="credential_in_arguments",
            )
