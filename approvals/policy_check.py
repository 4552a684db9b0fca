"""What a policy says that its author can hardly have meant. Pure: the known tools and approvers are handed in."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from core.text import has_hidden, visible

from .argument_paths import declares, steps_of
from .conditions import PRESENCE, equal
from .policy import ANY, REQUIRE_APPROVAL, Policy, Rule, argument_of, glob_matches, is_stricter

TOOLS_TOLD: Final = 5


@dataclass(frozen=True)
class KnownTool:
    server: str
    name: str
    effect_class: str
    schema: Mapping[str, Any] | None = None

    def __str__(self) -> str:
        return f"{self.server}/{self.name}"


@dataclass(frozen=True)
class Finding:
    """`kind` is a word for programs; a note is worth knowing and nothing to mend. `rule` is empty for the whole."""

    kind: str
    rule: str
    message: str
    is_note: bool = False


# How many users of a group can decide (an empty group: of all users); None when there is no such group.
Approvers = Callable[[str], int | None]


def check(policy: Policy, tools: Sequence[KnownTool], approvers: Approvers) -> list[Finding]:
    """Everything worth saying about the rules that are enabled, in their order; notes come last."""
    found: list[Finding] = []
    for rule in (rule for rule in policy.rules if rule.enabled):
        about = [tool for tool in tools if _is_about(rule, tool)]
        found += _lookalikes(rule)
        found += _unmatched(rule, about, tools)
        found += _undeclared(rule, about)
        found += _shadowed(rule, about, policy)
        found += _verification(rule, about, tools)
        if rule.effect == REQUIRE_APPROVAL:
            found += _approvers(rule, approvers)
    if not approvers(""):
        found.append(Finding("no_approver", "", "Nobody holds the permission approvals.decide_approval."))
    return [*found, *_uncovered(policy, tools)]


def _is_about(rule: Rule, tool: KnownTool) -> bool:
    excepted = any(glob_matches(glob, tool.name) for glob in rule.except_tools)
    return rule.enabled and rule.names_tool(tool.server, tool.name) and not excepted


# -- globs ----------------------------------------------------------------------------------------------------------


def _unmatched(rule: Rule, about: Sequence[KnownTool], tools: Sequence[KnownTool]) -> Iterator[Finding]:
    if not about:
        near = difflib.get_close_matches(
            f"{rule.server}/{rule.tool}".casefold(), {str(tool): None for tool in tools}, n=1, cutoff=0.75
        )
        hint = f" Did you mean {near[0]}?" if near else ""
        yield Finding("no_tool", rule.name, f"It matches no known tool ({rule.server}/{rule.tool}).{hint}")
    for glob in rule.except_tools:
        names = [tool.name for tool in tools if rule.names_tool(tool.server, tool.name)]
        if about and not any(glob_matches(glob, name) for name in names):
            yield Finding("no_exception", rule.name, f"Its exception {glob} matches none of its tools.")


def _lookalikes(rule: Rule) -> Iterator[Finding]:
    globs = (rule.server, rule.tool, rule.principal, *rule.except_tools)
    for glob in globs:
        if not glob.isascii():
            yield Finding("lookalike", rule.name, f"The glob {_spelled(glob)} has characters that look like others.")
    values = [text for condition in rule.conditions for text in _texts(condition.value)]
    for text in values:
        if has_hidden(text) or unicodedata.normalize("NFKC", text) != text:
            message = f"The value {_spelled(text)} is not what it looks like; arguments are compared exactly."
            yield Finding("lookalike", rule.name, message)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _spelled(text: str) -> str:
    """With every character that is not ASCII named."""
    odd = sorted({character for character in text if not character.isascii()})
    names = ", ".join(f"U+{ord(character):04X} {unicodedata.name(character, 'unnamed')}" for character in odd)
    return f"{visible(text)!r} ({names})"


# -- conditions -----------------------------------------------------------------------------------------------------


def _undeclared(rule: Rule, about: Sequence[KnownTool]) -> Iterator[Finding]:
    for condition in rule.conditions:
        steps = steps_of(condition.path)
        lacking = [tool for tool in about if tool.schema is not None and not declares(tool.schema, steps)]
        if lacking:
            effect = "asks only the arguments" if condition.op in PRESENCE else "is false unless a call has it anyway"
            message = (
                f"The condition {condition.as_text()} {effect}: {_listed(lacking)} has no argument {condition.path}."
            )
            yield Finding("undeclared", rule.name, message)


def _listed(tools: Sequence[KnownTool]) -> str:
    more = f" and {len(tools) - TOOLS_TOLD} more" if len(tools) > TOOLS_TOLD else ""
    return ", ".join(map(str, tools[:TOOLS_TOLD])) + more


# -- rules beside each other ----------------------------------------------------------------------------------------


def _shadowed(rule: Rule, about: Sequence[KnownTool], policy: Policy) -> Iterator[Finding]:
    """Whether, for each of its tools, some stricter rule always matches too."""
    stricter = [other for other in policy.rules if is_stricter(other.effect, rule.effect) and _always_with(other, rule)]
    shadows = [next((other for other in stricter if _is_about(other, tool)), None) for tool in about]
    if about and all(shadows):
        names = ", ".join(dict.fromkeys(other.name for other in shadows if other))
        yield Finding("shadowed", rule.name, f"It never decides: {names} is stricter and matches whenever it does.")


def _always_with(other: Rule, rule: Rule) -> bool:
    """Whether `other` matches every call that `rule` does, tools aside: fewer conditions, no fewer principals."""
    covers = other.principal == ANY or (rule.principal != ANY and glob_matches(other.principal, rule.principal))
    held = [condition.as_dict() for condition in rule.conditions]
    return covers and all(any(equal(condition.as_dict(), item) for item in held) for condition in other.conditions)


def _uncovered(policy: Policy, tools: Sequence[KnownTool]) -> Iterator[Finding]:
    for tool in tools:
        if not any(_is_about(rule, tool) for rule in policy.rules):
            effect = policy.default(tool.server, tool.effect_class)
            message = f"{tool} is matched by no rule: as {tool.effect_class} it gets {effect} by default."
            yield Finding("no_rule", "", message, is_note=True)


# -- approvers and verification -------------------------------------------------------------------------------------


def _approvers(rule: Rule, approvers: Approvers) -> Iterator[Finding]:
    there = approvers(rule.group)
    if there is None:
        yield Finding("no_approver", rule.name, f"It asks the group {rule.group}, which does not exist.")
    elif there < rule.approvals and (rule.group or there):
        who = f"of the group {rule.group}" if rule.group else "users"
        message = f"It asks for {rule.approvals} approvals, and {there} {who} can decide: it can not be met."
        yield Finding("no_approver", rule.name, message)


def _verification(rule: Rule, about: Sequence[KnownTool], tools: Sequence[KnownTool]) -> Iterator[Finding]:
    if rule.verification is None:
        return
    for server in dict.fromkeys(tool.server for tool in about):
        found = [tool for tool in tools if (tool.server, tool.name) == (server, rule.verification.tool)]
        writes = [tool for tool in about if tool.server == server]
        problems = _of_check(rule, found[0], writes) if found else [f"{server} has no tool {rule.verification.tool}"]
        for problem in problems:
            yield Finding("verification", rule.name, f"Its verification can not work: {problem}.")


def _of_check(rule: Rule, reading: KnownTool, writes: Iterable[KnownTool]) -> Iterator[str]:
    assert rule.verification is not None
    if reading.effect_class != "read":
        yield f"{reading} is no read but {reading.effect_class}"
    for name in rule.verification.arguments:
        if reading.schema is not None and not declares(reading.schema, steps_of(name)):
            yield f"{reading} has no argument {name}"
    expected = (argument_of(value) for value in rule.verification.expect.values())
    for path in dict.fromkeys([*rule.verification.arguments.values(), *filter(None, expected)]):
        for write in writes:
            if write.schema is not None and not declares(write.schema, steps_of(path)):
                yield f"{write} has no argument {path}"
