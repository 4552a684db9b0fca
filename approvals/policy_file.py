"""The policy as a YAML file for review in git: read and checked whole, written so that reading it changes nothing.

Pure; `policy_import` meets the database.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.errors import JsonObject, MeahError
from core.text import one_line

from .conditions import OPERATORS, Condition
from .policy import Defaults, EffectName, Rule, Verification
from .policy_yaml import MAX_BYTES, Document, Path, YamlTextError, dumps

VERSION: Final = 1
MAX_PROBLEMS_TOLD: Final = 20

HEADER: Final = f"""\
# MEAH's policy: what agents may do. `manage.py policy import FILE` shows what this file would change, and changes it
# with --yes. Rules are matched to stored ones by name; stored rules that the file does not name stay (--replace
# removes them).
#
# deny beats require_approval beats allow, whatever the order. Order (smaller first) only chooses whose reason, ttl_s
# and verification apply; the approvals that every matching require_approval rule asks for must be met. Where no rule
# matches, the default for the tool's class does, or what its server says in place of that.
#
# A rule (only name and effect are needed):
#   name, effect   allow | require_approval | deny
#   order          100 where nothing is said
#   server, tool   globs over exact names, case-sensitive; * crosses '.' and not '/', and alone stands for every name
#   except         globs of tools that the rule does not speak of
#   principal      a glob: agent:claude, token:*, user:eva
#   conditions     all must hold; each has path (amount, customer.id, items[*].price), op and value.
#                  op: {" ".join(OPERATORS)}
#                  matches is a full match by RE2; exists and absent take no value. What can not be told (the argument
#                  is declared but missing, or of another type) makes deny and require_approval match, and allow not.
#   reason         agents and approvers read it
#   owner          who answers for the rule
#   ttl_s          seconds to decide a request
#   approvals      how many persons, of group (none: any approver)
#   verification   after the write call tool, with arguments (name: path in the write's arguments), and expect
#                  (path in its answer: value, or {{argument: path}} for what the write was told)
#   enabled        false switches the rule off
"""


@dataclass(frozen=True)
class PolicyFile:
    """What a file says: rules by name, and those defaults that it mentions ({class: effect})."""

    rules: Mapping[str, Rule] = field(default_factory=dict)
    defaults: Mapping[str, EffectName] = field(default_factory=dict)


def loads(data: bytes) -> PolicyFile:
    """Raises MeahError E_CONFIG with every problem, each with its path and line, under `details.problems`."""
    try:
        document = Document(_decoded(data))
    except YamlTextError as error:
        raise _error([_Problem("The file", error.problem, line=error.line)]) from None
    if not isinstance(document.value, dict):
        raise _error([_Problem("The file", "must hold an object with version and rules")])
    try:
        parsed = _File.model_validate(document.value)
    except ValidationError as error:
        raise _error([_told(item, document) for item in error.errors(include_url=False)]) from None
    rules, problems = _rules(document.value.get("rules", []), document)
    if problems:
        raise _error(problems)
    defaults = {name: effect for name, effect in parsed.defaults if effect is not None}
    return PolicyFile(rules, defaults)


def to_yaml(rules: Iterable[Rule], defaults: Defaults, *, header: str = HEADER) -> str:
    """The file's text. Fields that say what is true anyway are left out."""
    document = {"version": VERSION, "defaults": defaults.as_dict(), "rules": [_as_file(rule) for rule in rules]}
    head, _, body = dumps(document).partition("rules:")
    # An empty line before each rule, for people.
    return header + head + "rules:" + body.replace("\n  - name:", "\n\n  - name:")


def _decoded(data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise YamlTextError(f"larger than {MAX_BYTES:,} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise YamlTextError(f"not UTF-8 at byte {error.start}") from None


def _as_file(rule: Rule) -> JsonObject:
    plain = Rule("x", "allow").as_dict()
    said = {name: value for name, value in rule.as_dict().items() if value != plain[name]}
    first = ("name", "effect", "order", "server", "tool")
    always = {name: rule.as_dict()[name] for name in first}
    if rule.verification and not rule.verification.arguments:
        said["verification"] = {name: value for name, value in said["verification"].items() if name != "arguments"}
    return always | {name: value for name, value in said.items() if name not in first}


# -- what a file may hold -------------------------------------------------------------------------------------------

_Effect = Literal["allow", "require_approval", "deny"]
_Glob = Annotated[str, Field(min_length=1, max_length=128)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=False)


class _Condition(_Part):
    path: str
    op: str
    value: Any = None


class _Verification(_Part):
    tool: str
    arguments: dict[str, str] = {}
    expect: dict[str, Any]


class _Rule(_Part):
    name: str = Field(min_length=1, max_length=100)
    effect: _Effect
    order: int = Field(default=100, ge=0, le=2**31 - 1)
    server: _Glob = "*"
    tool: _Glob = "*"
    excepted: list[_Glob] = Field(default=[], alias="except")
    principal: str = Field(default="*", min_length=1, max_length=255)
    conditions: list[_Condition] = []
    reason: str = Field(default="", max_length=500)
    owner: str = Field(default="", max_length=200)
    ttl_s: int | None = Field(default=None, ge=1, le=2**31 - 1)
    approvals: int = Field(default=1, ge=1, le=10)
    group: str = Field(default="", max_length=150)
    verification: _Verification | None = None
    enabled: bool = True


class _Defaults(_Part):
    read: _Effect | None = None
    write: _Effect | None = None
    destructive: _Effect | None = None


class _File(_Part):
    version: int = Field(ge=VERSION, le=VERSION)
    defaults: _Defaults = _Defaults()
    rules: list[_Rule]


_PARTS: Final[Mapping[Path, type[_Part]]] = {
    (): _File,
    ("defaults",): _Defaults,
    ("rules",): _Rule,
    ("rules", "conditions"): _Condition,
    ("rules", "verification"): _Verification,
}


def _rules(items: list[JsonObject], document: Document) -> tuple[dict[str, Rule], list[_Problem]]:
    """The rules of items of the right form; here everything is checked that spans several fields."""
    rules: dict[str, Rule] = {}
    problems: list[_Problem] = []
    for number, item in enumerate(items):
        path = ("rules", number)
        if item["name"] in rules:
            problems.append(_at(path, document, f"has the name {item['name']!r}, which another rule has already"))
        try:
            rules[item["name"]] = _rule(item)
        except MeahError as error:
            problems.append(_at(path, document, f"({item['name']}) can not be used: {error.message.rstrip('.')}"))
    return rules, problems


def _rule(item: JsonObject) -> Rule:
    """The rule of an item as a file or an export holds it. Raises MeahError E_CONFIG."""
    verification = item.get("verification")
    return Rule(
        **{name: value for name, value in item.items() if name != "except"}
        | {
            "except_tools": tuple(item.get("except", ())),
            "conditions": tuple(map(Condition.from_dict, item.get("conditions", ()))),
            "verification": None if verification is None else Verification.from_dict(verification),
        }
    )


# -- telling what is wrong ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Problem:
    path: str
    problem: str
    fix: str = ""
    line: int = 0

    def __str__(self) -> str:
        where = f" (line {self.line})" if self.line else ""
        return f"{self.path}{where} {self.problem}.{' ' + self.fix if self.fix else ''}"


def _told(item: Any, document: Document) -> _Problem:
    path: Path = item["loc"]
    if item["type"] == "extra_forbidden":
        return _at(path, document, "is not known", _near(str(path[-1]), _known_beside(path)))
    if item["type"] == "missing":
        return _at(path, document, "is missing")
    message = item["msg"].replace("Input should be", "it should be").replace(" or instance of _", ": ")
    return _at(path, document, f"is wrong: {message}")


def _known_beside(path: Path) -> list[str]:
    """The keys that may stand where this one does."""
    part = _PARTS[tuple(step for step in path[:-1] if isinstance(step, str))]
    return [known.alias or name for name, known in part.model_fields.items()]


def _near(key: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(key.lower(), known, n=1, cutoff=0.6)
    return f"Did you mean {near[0]}?" if near else f"Known are: {', '.join(known)}."


def _at(path: Path, document: Document, problem: str, fix: str = "") -> _Problem:
    shown = "".join(f"[{step}]" if isinstance(step, int) else f".{one_line(step, 64)}" for step in path)
    return _Problem(shown.removeprefix("."), problem, fix, document.line_of(path))


def _error(problems: list[_Problem]) -> MeahError:
    first, *others = problems
    return MeahError(
        "E_CONFIG",
        f"{first}{f' {len(others)} more problems.' if others else ''}",
        hint="Correct the file; `manage.py policy export` shows the format.",
        reason="policy_file",
        details={"problems": [str(problem) for problem in problems[:MAX_PROBLEMS_TOLD]]},
    )
