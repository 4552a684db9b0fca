"""A Method's manifest: read strictly, and checked as far as it can be without running it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from core.canonical import StrictDecodeError, canonical_text, digest, strict_loads
from core.errors import JsonObject, MeahError
from core.text import one_line

from .jsonschemas import SchemaError, check_input_schema, compile_schema
from .launch import RESERVED_NAME
from .references import INPUT, Reference, ReferenceSyntaxError, parse_path, references

API_VERSION: Final = "metamcp.io/v1alpha1"
MAX_MANIFEST_BYTES: Final = 2**20
NAME_PATTERN: Final = r"^[a-z][a-z0-9]*(?:[._-][a-z0-9]+)*$"
VERSION_PATTERN: Final = r"^[0-9]{1,5}(?:\.[0-9]{1,5}){0,2}$"
STEP_PATTERN: Final = r"^[a-z][a-z0-9_-]*$"
MAX_PROBLEMS: Final = 20
_TAG: Final = "meah/method/v1"
_HINT: Final = "`manage.py methods schema` prints what a manifest may hold; examples/methods/ has one that runs."

Milliseconds = Annotated[int, Field(ge=1, le=600_000)]


class _Part(BaseModel):
    """Strict at every level: an unknown field or a wrong type is refused, never guessed at."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, alias_generator=to_camel, title=None)


class Metadata(_Part):
    name: str = Field(pattern=NAME_PATTERN, max_length=128)
    version: str = Field(pattern=VERSION_PATTERN, description="Numbers with dots; a higher one is a later one.")
    description: str = Field(min_length=1, max_length=2_000)


class Retry(_Part):
    max_attempts: int = Field(ge=2, le=5, description="All of them, the first one too.")
    backoff_ms: int = Field(default=0, ge=0, le=30_000, description="Pause after the first failure; it doubles.")


class Poll(_Part):
    path: str = Field(min_length=1, max_length=500, description="Within the result, such as structuredContent.state.")
    equals: Any = Field(description="What has to stand there before the Method goes on.")
    max_attempts: int = Field(ge=1, le=100)
    interval_ms: int = Field(ge=0, le=30_000)


class Step(_Part):
    id: str = Field(pattern=STEP_PATTERN, max_length=64)
    server: str = Field(min_length=1, max_length=128)
    tool: str = Field(min_length=1, max_length=256)
    args: dict[str, Any] = Field(default={})
    depends_on: list[str] = Field(default=[], max_length=64)
    timeout_ms: Milliseconds | None = None
    idempotency: Literal["safe", "unsafe"] = "unsafe"
    on_error: Literal["fail", "gap"] = "fail"
    retry: Retry | None = None
    poll: Poll | None = None

    @cached_property
    def dependencies(self) -> frozenset[str]:
        """Ids of the steps that have to be over before it: declared, or implied by references."""
        return frozenset(self.depends_on) | {found.step for found in references(self.args) if found.step}


class Spec(_Part):
    effects: Literal["read", "write", "mixed"]
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    timeout_ms: Milliseconds = 120_000
    max_output_bytes: int = Field(default=2**20, ge=1, le=10 * 2**20)
    output: Any = Field(default=None, description="With references. Default: the last step's result.")
    parallel: bool = False
    steps: list[Step] = Field(min_length=1, max_length=64)


class Manifest(_Part):
    api_version: Literal["metamcp.io/v1alpha1"]
    kind: Literal["Method"]
    metadata: Metadata
    spec: Spec

    @property
    def writes(self) -> bool:
        return self.spec.effects != "read"


def json_schema() -> JsonObject:
    """What a manifest may hold, as JSON Schema 2020-12."""
    found = Manifest.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found, "title": "Method"}


def read(data: bytes | str) -> tuple[Manifest, str]:
    """A manifest and its canonical text. Raises MeahError E_CONFIG naming everything that is wrong with it."""
    try:
        value = strict_loads(data, max_bytes=MAX_MANIFEST_BYTES)
        manifest = Manifest.model_validate(value, by_alias=True, by_name=False)
    except StrictDecodeError as error:
        raise MeahError("E_CONFIG", f"The manifest can not be read: {error}.", hint=_HINT) from error
    except ValidationError as error:
        raise _refused([_problem(item) for item in error.errors(include_url=False, include_input=False)]) from error
    if problems := list(_problems(manifest)):
        raise _refused(problems)
    return manifest, canonical_text(value)


def stored(text: str) -> Manifest:
    """One that was read before."""
    return Manifest.model_validate(strict_loads(text), by_alias=True, by_name=False)


def digest_of(text: str) -> str:
    """Hex SHA-256 of a canonical manifest."""
    return digest(_TAG, text.encode())


def order_of(version: str) -> str:
    """Versions as texts that sort as their numbers do; 1 and 1.0.0 are the same."""
    parts = [*version.split("."), "0", "0"][:3]
    return ".".join(part.zfill(5) for part in parts)


def with_defaults(schema: JsonObject, given: JsonObject) -> JsonObject:
    """The input with the defaults that its schema declares at the top."""
    properties = schema.get("properties")
    declared = properties if isinstance(properties, dict) else {}
    defaults = {name: field["default"] for name, field in declared.items() if _has_default(field)}
    return {**defaults, **given}


def _has_default(field: Any) -> bool:
    return isinstance(field, dict) and "default" in field


def _refused(problems: list[str]) -> MeahError:
    more = len(problems) - MAX_PROBLEMS
    told = [*problems[:MAX_PROBLEMS], *([f"and {more} more"] if more > 0 else [])]
    return MeahError(
        "E_CONFIG",
        "The manifest is refused: " + "; ".join(told) + ".",
        hint=_HINT,
        reason="manifest",
        details={"problems": problems[:MAX_PROBLEMS]},
    )


def _problem(item: Any) -> str:
    words = {"extra_forbidden": "is no field of a manifest", "missing": "is required"}
    path = ".".join(one_line(str(part), 60) for part in item["loc"])
    return f"{path or 'manifest'}: {words.get(item['type']) or one_line(item['msg'], 200)}"


# -- checks beyond the shape ------------------------------------------------------------------------------------------


def _problems(manifest: Manifest) -> Iterator[str]:
    spec = manifest.spec
    yield from _schema_problems(spec)
    earlier: set[str] = set()
    for step in spec.steps:
        if step.id in earlier:
            yield f"steps.{step.id}: this id is used twice"
        yield from (f"steps.{step.id}: {problem}" for problem in _step_problems(step, earlier, spec))
        earlier.add(step.id)
    yield from (f"output: {problem}" for problem in _reference_problems(spec.output, earlier, spec))


def _schema_problems(spec: Spec) -> Iterator[str]:
    try:
        check_input_schema(spec.input_schema)
    except SchemaError as error:
        yield f"inputSchema: {error}"
    if spec.output_schema is not None:
        try:
            compile_schema(spec.output_schema)
        except SchemaError as error:
            yield f"outputSchema: {error}"


def _step_problems(step: Step, earlier: set[str], spec: Spec) -> Iterator[str]:
    if step.server.casefold() == RESERVED_NAME:
        yield "a Method calls downstream servers, not MEAH itself"
    yield from (f"dependsOn: {name!r} is no earlier step" for name in step.depends_on if name not in earlier)
    if step.idempotency != "safe" and (step.retry or step.poll):
        yield "retry and poll need idempotency: safe, since they call again"
    if step.poll:
        try:
            parse_path(step.poll.path)
        except ReferenceSyntaxError as error:
            yield f"poll.path: {error}"
    yield from _reference_problems(step.args, earlier, spec)


def _reference_problems(value: Any, earlier: set[str], spec: Spec) -> Iterator[str]:
    try:
        found = list(references(value))
    except ReferenceSyntaxError as error:
        yield str(error)
        return
    for reference in found:
        if reference.step:
            if reference.step not in earlier:
                yield f"${{{reference.path}}}: {reference.step!r} is no earlier step"
        elif not _may_have(spec.input_schema, reference):
            yield f"${{{reference.path}}}: the input schema declares no such value"


def _may_have(schema: Any, reference: Reference) -> bool:
    """Whether the input can hold it, as far as `properties` and `items` say; what they leave open may be there."""
    assert reference.parts[0] == INPUT
    for part in reference.parts[1:]:
        if not isinstance(schema, dict):
            return schema is not False
        properties = schema.get("properties")
        if isinstance(properties, dict) and part in properties:
            schema = properties[part]
        elif part.isdigit() and ("items" in schema or "prefixItems" in schema):
            schema = schema.get("items", True)
        else:
            return _is_open(schema)
    return True


def _is_open(schema: JsonObject) -> bool:
    """A schema that speaks of its keys in other ways than by `properties`, or not at all."""
    if schema.get("additionalProperties") not in (None, False):
        return True
    speaks = {"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "patternProperties"}
    return bool(speaks & schema.keys()) or "properties" not in schema
