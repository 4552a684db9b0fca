"""The built-in provider does what the task tells it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from core.errors import CODES
from workers.providers.base import Completion, CompletionRequest, ProviderFailure, RetryPolicy
from workers.providers.mock import MockProvider
from workers.roles import system_prompt


def ask(task: str, *, tokens: int = 2048, within_s: float = 5.0, system: str = "", pieces: Any = None) -> Completion:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": task}]
    heard = pieces if pieces is not None else []
    return asyncio.run(
        MockProvider().complete(
            CompletionRequest("mock", messages, tokens),
            deadline=time.monotonic() + within_s,
            retry=RetryPolicy(),
            on_text=heard.append,
        )
    )


def failure(task: str, **options: Any) -> ProviderFailure:
    with pytest.raises(ProviderFailure) as caught:
        ask(task, **options)
    return caught.value


def test_the_usual_answer_has_its_sections_and_quotes_the_task() -> None:
    done = ask("# Task\n\nName three rivers.\nBriefly.", system=system_prompt("reviewer"))
    for part in ("Result", "Assumptions", "Open questions", '"Name three rivers."', "role of reviewer"):
        assert part in done.text
    assert (done.finish_reason, done.truncated, done.attempts) == ("stop", False, 1)
    assert done.usage is not None
    assert done.usage.input_tokens
    assert done.usage.output_tokens


def test_the_same_question_gets_the_same_answer() -> None:
    assert ask("Name three rivers.") == ask("Name three rivers.")


def test_the_answer_is_said_in_pieces() -> None:
    pieces: list[str] = []
    done = ask("Hello", pieces=pieces)
    assert len(pieces) > 3
    assert "".join(pieces) == done.text


def test_it_waits() -> None:
    began = time.monotonic()
    ask("[mock wait=200] Hello")
    assert 0.19 <= time.monotonic() - began < 3


def test_it_says_its_pieces_slowly() -> None:
    began = time.monotonic()
    ask("[mock every=30 text=12345678]")
    assert 0.2 <= time.monotonic() - began < 3


def test_a_wait_past_the_deadline_ends_there() -> None:
    began = time.monotonic()
    late = failure("[mock wait=60000]", within_s=0.1)
    assert (late.code, late.reason) == ("E_TIMEOUT", "no_response")
    assert time.monotonic() - began < 3


def test_a_deadline_amid_the_answer_keeps_what_was_said() -> None:
    late = failure("[mock every=60 text=12345678]", within_s=0.15)
    assert (late.code, late.reason) == ("E_TIMEOUT", "stalled")
    assert late.partial_text == "12"


@pytest.mark.parametrize("code", CODES)
def test_it_fails_with_any_code(code: str) -> None:
    failed = failure(f"Please [mock fail={code}] now")
    assert (failed.code, failed.retryable) == (code, CODES[code].retryable)


def test_it_breaks_off_amid_its_answer() -> None:
    pieces: list[str] = []
    failed = failure("[mock cut=E_NETWORK text=12345678]", pieces=pieces)
    assert (failed.code, failed.partial_text, "".join(pieces)) == ("E_NETWORK", "1234", "1234")


def test_it_answers_at_length_whatever_the_limit() -> None:
    done = ask("[mock length=50000]", tokens=10)
    assert len(done.text) == 50_000
    assert (done.finish_reason, done.truncated) == ("stop", False)
    assert done.text == ask("[mock length=50000]").text


def test_it_says_given_words_with_brackets_left_out() -> None:
    assert ask("[mock text=Only these words, please: a=b]").text == "Only these words, please: a=b"
    assert ask("[mock usage=none text=x wait=9]").text == "x wait=9"


def test_other_answers_are_cut_at_the_limit() -> None:
    done = ask("[mock text=" + "x" * 100 + "]", tokens=10)
    assert (len(done.text), done.finish_reason, done.truncated) == (40, "length", True)


def test_it_can_say_that_it_was_cut_and_hide_its_usage() -> None:
    done = ask("[mock finish=length usage=none]")
    assert (done.finish_reason, done.truncated, done.usage) == ("length", True, None)


@pytest.mark.parametrize(
    "task",
    [
        "[mock jump=1]",
        "[mock wait=soon]",
        "[mock fail=E_NOPE]",
        "[mock length=99999999]",
        "[mock finish=x]",
        "[mock every=-1]",
    ],
)
def test_a_directive_that_makes_no_sense_says_which_there_are(task: str) -> None:
    refused = failure(task)
    assert (refused.code, refused.reason) == ("E_INVALID_REQUEST", "mock_directive")
    assert "wait, every, fail" in refused.hint


def test_untrusted_context_cannot_direct_it() -> None:
    assert ask("Do it.\n\n--- BEGIN UNTRUSTED abc ---\n[mock fail=E_AUTH]\n").text


def test_cancelling_ends_a_wait() -> None:
    async def cancel_soon() -> None:
        task = asyncio.create_task(
            MockProvider().complete(
                CompletionRequest("mock", [{"role": "user", "content": "[mock wait=60000]"}], 10),
                deadline=time.monotonic() + 90,
                retry=RetryPolicy(),
            )
        )
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(cancel_soon(), 5))


def test_it_lists_its_model() -> None:
    assert asyncio.run(MockProvider().list_models(deadline=time.monotonic() + 1)).ids == ("mock",)
