"""The arguments of the worker tools, shared by MCP and REST: camelCase on the wire, snake_case here."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.alias_generators import to_camel

from core.errors import MeahError
from core.text import has_hidden, visible
from workers.models import PermissionProfile, WorkerState
from workers.roles import DEFAULT_ROLE, ROLES
from workers.routing import MAX_OUTPUT_TOKENS_RANGE, TEMPERATURE_RANGE, TIMEOUT_MS_RANGE

MAX_PARALLEL: Final = 16
MAX_WAIT_MS: Final = 600_000
DEFAULT_WAIT_MS: Final = 50_000
MAX_PAGE_CHARS: Final = 40_000
# All arguments together have at most 1 MiB; the gate sees to that.
MAX_TEXT_CHARS: Final = 1_000_000
WORKER_ID_PATTERN: Final = r"^w_[0-9a-f]{20}$"
MAX_PROBLEMS: Final = 8
_PLAIN_WORDS: Final = {
    "extra_forbidden": "is not a field of this tool",
    "missing": "is required",
    "model_type": "Input should be an object",
}

# Closed lists of the models and roles, as enumerations in the schema.
if TYPE_CHECKING:
    RoleName = str
    ProfileName = str
    StateName = str
else:
    RoleName = Literal[tuple(ROLES)]
    ProfileName = Literal[tuple(PermissionProfile.values)]
    StateName = Literal[tuple(WorkerState.values)]
Text = Annotated[str, Field(max_length=MAX_TEXT_CHARS)]
WorkerId = Annotated[str, Field(pattern=WORKER_ID_PATTERN, description="As run, delegate, parallel and list give it.")]


class Arguments(BaseModel):
    """Strict: an unknown field or a wrong type is an error that names it, never a guess."""

    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel, populate_by_name=True, title=None)

    @model_validator(mode="before")
    @classmethod
    def _null_is_left_out(cls, data: Any) -> Any:
        """Clients fill in null for what their user did not give."""
        if not isinstance(data, dict):
            return data
        return {name: value for name, value in data.items() if value is not None or name not in _optional(cls)}


@cache
def _optional(schema: type[Arguments]) -> frozenset[str]:
    return frozenset(str(field.alias) for field in schema.model_fields.values() if not field.is_required())


ArgumentsT = TypeVar("ArgumentsT", bound=Arguments)


class ContextItemIn(Arguments):
    name: str = Field(default="", max_length=200, description="File name.")
    content: Text = Field(description="Text.")


class TaskIn(Arguments):
    """One bounded task."""

    task: Text = Field(min_length=1, description="What to do, self-contained: the worker sees nothing else.")
    role: RoleName = Field(default=DEFAULT_ROLE, description="Picks the prompt and the route.")
    provider: str | None = Field(
        default=None, max_length=32, description="Name from meah_list_models. Default: the role's route."
    )
    model: str | None = Field(default=None, max_length=200, description="One of the provider's. Default: the route's.")
    context: list[Text | ContextItemIn] = Field(
        default=[], max_length=200, description="Material to work on, as text or {name, content}."
    )
    constraints: list[Text] = Field(default=[], max_length=50, description="Rules for the answer.")
    expected_output: str = Field(default="", max_length=10_000, description="Form of the answer.")
    timeout_ms: int | None = Field(
        default=None,
        ge=TIMEOUT_MS_RANGE[0],
        le=TIMEOUT_MS_RANGE[1],
        description="Whole budget. Default: limits.timeoutMs.",
    )
    max_output_tokens: int | None = Field(
        default=None,
        ge=MAX_OUTPUT_TOKENS_RANGE[0],
        le=MAX_OUTPUT_TOKENS_RANGE[1],
        description="Thinking included. Default: the route's.",
    )
    temperature: float | None = Field(
        default=None, ge=TEMPERATURE_RANGE[0], le=TEMPERATURE_RANGE[1], description="Default: the route's."
    )
    permission_profile: ProfileName = Field(
        default=PermissionProfile.READ_ONLY.value, description="What its workspace may do."
    )
    commands: list[Text | list[Text]] = Field(
        default=[], max_length=100, description="Run first; needs workspace-exec."
    )
    label: str = Field(default="", max_length=200, description="Your name for it.")
    dry_run: bool = Field(default=False, description="Show the prompt; start nothing.")

    @field_validator("task")
    @classmethod
    def _says_something(cls, task: str) -> str:
        if not task.strip():
            raise ValueError("must say what to do; it is empty")
        return task

    @field_validator("label", "provider", "model")
    @classmethod
    def _plain(cls, text: str | None) -> str | None:
        if text and (has_hidden(text) or "\n" in text or "\t" in text):
            raise ValueError(
                f"must be plain text on one line; it holds hidden or control characters: {visible(text)!r}"
            )
        return text


class DelegateIn(TaskIn):
    wait_ms: int | None = Field(
        default=None,
        ge=0,
        le=MAX_WAIT_MS,
        description="How long to block. Default: timeoutMs + 5000, at most 50000.",
    )


class ParallelIn(Arguments):
    workers: list[TaskIn] = Field(
        min_length=1, max_length=MAX_PARALLEL, description="Tasks, each as meah_run_agent takes it."
    )
    wait_ms: int = Field(default=DEFAULT_WAIT_MS, ge=0, le=MAX_WAIT_MS, description="How long to block.")
    aggregate_timeout_ms: int | None = Field(
        default=None,
        ge=TIMEOUT_MS_RANGE[0],
        le=TIMEOUT_MS_RANGE[1],
        description="Budget of them all: then what is left is cancelled. Default: none.",
    )


class ListModelsIn(Arguments):
    pass


class GetIn(Arguments):
    worker_id: WorkerId
    include_transcript: bool = Field(default=False, description="Only where transcripts are retained.")
    offset: int = Field(default=0, ge=0, le=2**53 - 1, description="First character of the result to return.")
    limit: int = Field(default=MAX_PAGE_CHARS, ge=1, le=MAX_PAGE_CHARS, description="Characters.")


class ListIn(Arguments):
    state: StateName | None = Field(default=None, description="Default: any.")
    limit: int = Field(default=20, ge=1, le=100, description="Page size.")
    cursor: str | None = Field(
        default=None, max_length=200, description="nextCursor of the page before. Default: the newest."
    )


class CancelIn(Arguments):
    worker_id: WorkerId
    reason: str = Field(default="", max_length=500, description="Kept with the record.")
    cleanup_workspace: bool = Field(default=False, description="Also delete its directory.")

    @field_validator("reason")
    @classmethod
    def _visible(cls, text: str) -> str:
        return visible(text)


class CleanupIn(Arguments):
    worker_id: WorkerId


def parse(schema: type[ArgumentsT], arguments: Any) -> ArgumentsT:
    """The arguments as the schema's object. Raises MeahError E_INVALID_REQUEST naming every field that is wrong."""
    _refuse_nul(arguments)
    try:
        return schema.model_validate(arguments, by_alias=True, by_name=False)
    except ValidationError as error:
        problems = list(dict.fromkeys(_problem(item) for item in error.errors(include_url=False, include_input=False)))
        more = len(problems) - MAX_PROBLEMS
        told = [*problems[:MAX_PROBLEMS], *([f"and {more} more"] if more > 0 else [])]
        raise MeahError(
            "E_INVALID_REQUEST",
            "Invalid arguments: " + "; ".join(told) + ".",
            hint="Correct the named fields; the tool's inputSchema says what each accepts.",
            reason="arguments",
        ) from error


def _refuse_nul(arguments: Any) -> None:
    """PostgreSQL stores no NUL, and no text needs one: refused everywhere, whatever the database is."""
    if path := _path_of_nul(arguments):
        raise MeahError(
            "E_INVALID_REQUEST",
            f"Invalid arguments: {visible(path)[:200]}: holds the character NUL (U+0000).",
            hint="Send text without NUL; a binary file is no context.",
            reason="arguments",
        )


def _path_of_nul(value: Any, path: str = "") -> str:
    """Where the first one is, as a dotted path; an empty string when there is none."""
    if isinstance(value, str):
        return (path or "arguments") if "\0" in value else ""
    parts: list[tuple[Any, Any]]
    if isinstance(value, dict):
        parts = list(value.items())
    elif isinstance(value, list):
        parts = list(enumerate(value))
    else:
        return ""
    found = (_path_of_nul(item, f"{path}.{name}" if path else str(name)) for name, item in parts)
    return next(filter(None, found), "")


def _problem(item: Any) -> str:
    # A union reports one problem for each of its forms; the form's own name is of no use to the caller.
    path = ".".join(visible(str(part)) for part in item["loc"] if not _is_form(str(part)))
    message = _PLAIN_WORDS.get(item["type"]) or item["msg"].removeprefix("Value error, ")
    return f"{path[:200] or 'arguments'}: {message}"


def _is_form(part: str) -> bool:
    return part == "ContextItemIn" or part.startswith(("str", "constrained-str", "list["))


def input_schema(schema: type[Arguments]) -> dict[str, Any]:
    """JSON Schema of the arguments as clients get it: references inlined, no titles, nullable fields as plain ones."""
    raw = schema.model_json_schema(by_alias=True)
    definitions = raw.pop("$defs", {})
    clean: dict[str, Any] = _simplify(raw, definitions)
    clean.pop("description", None)
    return clean


def _simplify(node: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_simplify(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        target = definitions[node["$ref"].rsplit("/", 1)[-1]]
        inner = _simplify(target, definitions)
        inner.pop("description", None)
        return inner | {key: value for key, value in node.items() if key != "$ref"}
    # `properties` maps names, one of which may be "title": only schema keywords are dropped.
    out = {
        key: {name: _simplify(sub, definitions) for name, sub in value.items()}
        if key == "properties"
        else _simplify(value, definitions)
        for key, value in node.items()
        if key != "title"
    }
    return _without_null(out)


def _without_null(node: dict[str, Any]) -> dict[str, Any]:
    """An optional field is left out, not sent as null: `anyOf [X, null]` with default null becomes X."""
    forms = node.get("anyOf")
    if not forms or {"type": "null"} not in forms:
        return node
    kept = [form for form in forms if form != {"type": "null"}]
    rest = {key: value for key, value in node.items() if key != "anyOf" and not (key == "default" and value is None)}
    return (kept[0] | rest) if len(kept) == 1 else {"anyOf": kept, **rest}
