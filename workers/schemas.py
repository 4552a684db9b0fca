"""The arguments of the worker tools, shared by MCP and REST: camelCase on the wire, snake_case here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic.alias_generators import to_camel

from core.errors import MeahError
from core.text import has_hidden, visible
from workers.models import PermissionProfile, WorkerState
from workers.roles import DEFAULT_ROLE, ROLES
from workers.routing import MAX_OUTPUT_TOKENS_RANGE, TEMPERATURE_RANGE, TIMEOUT_MS_RANGE

MAX_PARALLEL = 16
MAX_WAIT_MS = 600_000
DEFAULT_WAIT_MS = 50_000
MAX_PAGE_CHARS = 40_000
WORKER_ID_PATTERN = r"^w_[0-9a-f]{20}$"

# Closed lists of the models and roles, as enumerations in the schema.
if TYPE_CHECKING:
    RoleName = ProfileName = StateName = str
else:
    RoleName = Literal[tuple(ROLES)]
    ProfileName = Literal[tuple(PermissionProfile.values)]
    StateName = Literal[tuple(WorkerState.values)]
WorkerId = Annotated[str, Field(pattern=WORKER_ID_PATTERN, description="From run, delegate, parallel or list.")]


class Arguments(BaseModel):
    """Strict: an unknown field or a wrong type is an error that names it, never a guess."""

    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel, populate_by_name=True, title=None)


ArgumentsT = TypeVar("ArgumentsT", bound=Arguments)


class ContextItemIn(Arguments):
    name: str = Field(default="", max_length=200)
    content: str


class TaskIn(Arguments):
    """One bounded task."""

    task: str = Field(min_length=1, description="What to do, self-contained: the worker sees nothing else.")
    role: RoleName = Field(default=DEFAULT_ROLE, description="Picks the prompt and the route.")
    provider: str | None = Field(default=None, max_length=32, description="Default: the role's route.")
    model: str | None = Field(default=None, max_length=200, description="Default: the route's.")
    context: list[str | ContextItemIn] = Field(
        default=[], max_length=200, description="Material to work on, as text or {name, content}."
    )
    constraints: list[str] = Field(default=[], max_length=50)
    expected_output: str = Field(default="", max_length=10_000, description="Form of the answer.")
    timeout_ms: int | None = Field(
        default=None, ge=TIMEOUT_MS_RANGE[0], le=TIMEOUT_MS_RANGE[1], description="Total budget."
    )
    max_output_tokens: int | None = Field(default=None, ge=MAX_OUTPUT_TOKENS_RANGE[0], le=MAX_OUTPUT_TOKENS_RANGE[1])
    temperature: float | None = Field(default=None, ge=TEMPERATURE_RANGE[0], le=TEMPERATURE_RANGE[1])
    permission_profile: ProfileName = Field(
        default=PermissionProfile.READ_ONLY.value, description="What its workspace may do."
    )
    commands: list[str | list[str]] = Field(default=[], max_length=100, description="Run first; needs workspace-exec.")
    label: str = Field(default="", max_length=200, description="Your own name for it.")
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
    workers: list[TaskIn] = Field(min_length=1, max_length=MAX_PARALLEL)
    wait_ms: int = Field(default=DEFAULT_WAIT_MS, ge=0, le=MAX_WAIT_MS, description="How long to block.")
    aggregate_timeout_ms: int | None = Field(
        default=None,
        ge=TIMEOUT_MS_RANGE[0],
        le=TIMEOUT_MS_RANGE[1],
        description="Then what is left is cancelled.",
    )


class ListModelsIn(Arguments):
    pass


class GetIn(Arguments):
    worker_id: WorkerId
    include_transcript: bool = Field(default=False, description="Only where transcripts are retained.")
    offset: int = Field(default=0, ge=0, description="First character of the result to return.")
    limit: int = Field(default=MAX_PAGE_CHARS, ge=1, le=MAX_PAGE_CHARS, description="Characters.")


class ListIn(Arguments):
    state: StateName | None = None
    limit: int = Field(default=20, ge=1, le=100)
    cursor: str | None = Field(default=None, max_length=200, description="nextCursor of the page before.")


class CancelIn(Arguments):
    worker_id: WorkerId
    reason: str = Field(default="", max_length=500)
    cleanup_workspace: bool = Field(default=False, description="Also delete its directory.")

    @field_validator("reason")
    @classmethod
    def _visible(cls, text: str) -> str:
        return visible(text)


class CleanupIn(Arguments):
    worker_id: WorkerId


def parse(schema: type[ArgumentsT], arguments: Any) -> ArgumentsT:
    """The arguments as the schema's object. Raises MeahError E_INVALID_REQUEST naming every field that is wrong."""
    try:
        return schema.model_validate(arguments, by_alias=True, by_name=False)
    except ValidationError as error:
        problems = list(dict.fromkeys(_problem(item) for item in error.errors(include_url=False, include_input=False)))
        raise MeahError(
            "E_INVALID_REQUEST",
            "Invalid arguments: " + "; ".join(problems[:8]) + ".",
            hint="Correct the named fields; the tool's inputSchema says what each accepts.",
            reason="arguments",
        ) from error


def _problem(item: Any) -> str:
    # A union reports one problem for each of its forms; the form's own name is of no use to the caller.
    path = ".".join(str(part) for part in item["loc"] if str(part) not in {"str", "list[str]", "ContextItemIn"})
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] == "extra_forbidden":
        message = "is not a field of this tool"
    return f"{path or 'arguments'}: {message}"


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
