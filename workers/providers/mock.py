"""The built-in provider: no key, no network, the same answer to the same question.

It does what directives in the task tell it, written in square brackets, several in one where wanted:

    [mock wait=1500]              says nothing for 1500 ms, then answers
    [mock every=200]              waits 200 ms before each piece of its answer
    [mock fail=E_RATE_LIMIT]      fails with that code (any code of the error table)
    [mock cut=E_NETWORK]          says half of its answer, then fails with that code
    [mock length=50000]           answers with exactly that many characters, whatever maxOutputTokens says
    [mock finish=length]          says that it was cut at the limit
    [mock usage=none]             reports no usage
    [mock text=Any words here]    answers with exactly these words (the last directive of its bracket)
    [mock wait=300 fail=E_AUTH]   both, in that order

Without `length`, an answer longer than maxOutputTokens (at 4 characters a token) is cut there, as a real
one would be. Only the task is read: directives inside untrusted context do nothing.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

from core.errors import CODES
from workers.providers.base import (
    Adaptation,
    Completion,
    CompletionRequest,
    ModelList,
    OnText,
    ProviderFailure,
    RetryPolicy,
    Usage,
)

MODEL: Final = "mock"
CHARS_PER_TOKEN: Final = 4
MAX_LENGTH_CHARS: Final = 4_000_000
_PIECES: Final = 8
_DIRECTIVE: Final = re.compile(r"\[mock\s+([^\]]*)\]")
_SETTING: Final = re.compile(r"([a-z]+)=(\S+)")
_TEXT: Final = re.compile(r"(?:^|\s)text=(.*)\Z", re.DOTALL)
_UNTRUSTED: Final = re.compile(r"^.*BEGIN UNTRUSTED", re.MULTILINE)
_HEADING: Final = re.compile(r"[#*\s]*(your )?task[*\s]*:?[*\s]*\Z", re.IGNORECASE)
_ROLE: Final = re.compile(r"\b(researcher|builder|coder|debugger|reviewer|summarizer)\b", re.IGNORECASE)
_QUOTE_CHARS: Final = 200


@dataclass(frozen=True)
class Script:
    """What the task told the mock to do."""

    wait: str = "0"
    every: str = "0"
    fail: str = ""
    cut: str = ""
    length: str = ""
    finish: str = "stop"
    usage: str = ""
    text: str | None = None

    @property
    def wait_s(self) -> float:
        return _number("wait", self.wait) / 1000

    @property
    def every_s(self) -> float:
        return _number("every", self.every) / 1000


class MockProvider:
    """Implements `Provider`; see the module's text for what it can be told."""

    async def complete(
        self,
        request: CompletionRequest,
        *,
        deadline: float,
        retry: RetryPolicy,
        adaptations: Sequence[Adaptation] = (),
        on_text: OnText | None = None,
    ) -> Completion:
        task = _task_of(request)
        script = read_script(task)
        text, finish = _answer(script, request, task)
        await _sleep(script.wait_s, deadline, said="")
        if script.fail:
            raise _failure(script.fail)
        end = len(text) // 2 if script.cut else len(text)
        await _say(text[:end], script, deadline, on_text)
        if script.cut:
            raise _failure(script.cut, partial_text=text[:end])
        return Completion(
            text=text,
            finish_reason="length" if finish == "length" else "stop",
            finish_reason_raw=finish,
            usage=None if script.usage == "none" else _usage(request, text),
            resolved_model=request.model,
            truncated=finish == "length",
        )

    async def list_models(self, *, deadline: float) -> ModelList:
        return ModelList(ids=(MODEL,))

    async def aclose(self) -> None:
        return None


def read_script(task: str) -> Script:
    """The directives of a task. Raises ProviderFailure E_INVALID_REQUEST for one that does not exist."""
    told: dict[str, str] = {}
    for match in _DIRECTIVE.finditer(task):
        settings = match[1]
        if words := _TEXT.search(settings):
            told["text"] = words[1]
            settings = settings[: words.start()]
        told.update(_SETTING.findall(settings))
    unknown = set(told) - {field.name for field in fields(Script)}
    if unknown:
        raise _misled(f"The mock has no directive {', '.join(sorted(unknown))}.")
    return _checked(Script(**told))


def _checked(script: Script) -> Script:
    for code in (script.fail, script.cut):
        if code and code not in CODES:
            raise _misled(f"The mock cannot fail with {code}: there is no such code.")
    if script.finish not in ("stop", "length"):
        raise _misled("The mock can finish only with stop or length.")
    if script.length and _number("length", script.length) > MAX_LENGTH_CHARS:
        raise _misled(f"The mock answers with at most {MAX_LENGTH_CHARS} characters.")
    _number("wait", script.wait)
    _number("every", script.every)
    return script


def _number(name: str, value: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", value):
        raise _misled(f"The mock's directive {name} needs a whole number, not {value}.")
    return int(value)


def _misled(message: str) -> ProviderFailure:
    return ProviderFailure(
        "E_INVALID_REQUEST",
        message,
        hint="Directives: wait, every, fail, cut, length, finish, usage, text; such as [mock wait=1500].",
        reason="mock_directive",
    )


def _failure(code: str, *, partial_text: str = "") -> ProviderFailure:
    return ProviderFailure(code, f"The mock was told to fail with {code}.", reason="mock", partial_text=partial_text)


def _task_of(request: CompletionRequest) -> str:
    said = [message["content"] for message in request.messages if message["role"] == "user"]
    return _UNTRUSTED.split(said[-1], maxsplit=1)[0] if said else ""


def _answer(script: Script, request: CompletionRequest, task: str) -> tuple[str, str]:
    if script.length:
        return _filled(int(script.length)), script.finish
    text = _default_text(request, task) if script.text is None else script.text
    most = request.max_output_tokens * CHARS_PER_TOKEN
    return (text[:most], "length") if len(text) > most else (text, script.finish)


def _default_text(request: CompletionRequest, task: str) -> str:
    role = _role_of(request)
    return (
        f'Result\n\nThis is the mock provider{role}. It was asked: "{_first_line(task)}"\n'
        "It does no work: it shows that the way to a worker and back is whole.\n\n"
        "Assumptions\n\n- None.\n\n"
        "Open questions\n\n- Which real provider should do this task?\n"
    )


def _first_line(task: str) -> str:
    lines = (_DIRECTIVE.sub("", line).strip() for line in task.splitlines())
    first = next((line for line in lines if line and not _HEADING.match(line)), "(nothing)")
    return first if len(first) <= _QUOTE_CHARS else first[: _QUOTE_CHARS - 1] + "…"


def _role_of(request: CompletionRequest) -> str:
    system = " ".join(message["content"] for message in request.messages if message["role"] == "system")
    found = _ROLE.search(system)
    return f" in the role of {found[1].lower()}" if found else ""


def _filled(length: int) -> str:
    """Exactly `length` characters in numbered lines, so that a page read twice or left out is seen."""
    lines: list[str] = []
    size = 0
    while size < length:
        line = f"{len(lines) + 1:>7} The mock provider fills this line, as it was told to.\n"
        lines.append(line)
        size += len(line)
    return "".join(lines)[:length]


def _usage(request: CompletionRequest, text: str) -> Usage:
    asked = sum(len(message["content"]) for message in request.messages)
    return Usage(input_tokens=_tokens(asked), output_tokens=_tokens(len(text)), reasoning_tokens=0)


def _tokens(chars: int) -> int:
    return max(1, -(-chars // CHARS_PER_TOKEN))


async def _say(text: str, script: Script, deadline: float, on_text: OnText | None) -> None:
    size = max(1, -(-len(text) // _PIECES))
    for start in range(0, len(text), size):
        await _sleep(script.every_s, deadline, said=text[:start])
        if on_text is not None:
            on_text(text[start : start + size])


async def _sleep(seconds: float, deadline: float, *, said: str) -> None:
    left = deadline - time.monotonic()
    await asyncio.sleep(max(0.0, min(seconds, left)))
    if seconds > left:
        raise ProviderFailure(
            "E_TIMEOUT",
            "The mock did not answer within the time budget.",
            reason="stalled" if said else "no_response",
            details={"partialChars": len(said)} if said else None,
            partial_text=said,
        )
