"""What bounds a call: its deadline, a cancellation, the cap on a body."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
import zlib
from typing import Any

import pytest

from tests.fake_provider import (
    DONE,
    FakeProvider,
    Pause,
    Repeat,
    Reply,
    Stall,
    answer,
    chunk,
    event,
    json_reply,
    stream_reply,
    text_reply,
)
from tests.workers.providers.asking import LATE_S, ask, endpoint, failure
from workers.providers.base import ProviderFailure, RetryPolicy

SOON_S = 0.4

# Deadlines


def dripped(document: dict[str, Any]) -> Reply:
    body = json.dumps(document).encode()
    return Reply([step for byte in body for step in (bytes([byte]), Pause(0.05))], 200, [], "close")


GZIPPED = gzip.compress(b'data: {"choices":[]}\n\n' * 1_000)
SLOW = {
    "headers never come": (Reply(head_pause=60), "no_response"),
    "headers drip": (Reply([b"HTTP/1.1 200 OK\r\n", Repeat(b"X-Slow: 1\r\n", 0.05)], framing="raw"), "no_response"),
    "body never comes": (stream_reply(Stall()), "no_output"),
    "comments for ever": (stream_reply(Repeat(b": keep-alive\n\n", 0.05)), "no_output"),
    "blank lines for ever": (Reply([Repeat(b"\n", 0.05)], 200, [], "chunked"), "no_output"),
    "empty deltas for ever": (stream_reply(Repeat(event(chunk("")), 0.05)), "no_output"),
    "json drips": (dripped(answer("Hello " * 50)), "still_writing"),
    "text for ever": (stream_reply(Repeat(event(chunk("la ")), 0.05)), "still_writing"),
    "reasoning for ever": (stream_reply(Repeat(event(chunk(reasoning="hm ")), 0.05)), "still_writing"),
    "gzip trickles": (
        Reply([step for byte in GZIPPED for step in (bytes([byte]), Pause(0.05))], 200,
              [("Content-Encoding", "gzip")], "close"),
        "no_output",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("reply", "reason"), SLOW.values(), ids=SLOW)
def test_one_deadline_holds_whatever_the_server_drips(fake: FakeProvider, reply: Reply, reason: str) -> None:
    fake.reply(reply)
    began = time.monotonic()
    late = failure(endpoint(fake), within_s=SOON_S)
    assert (late.code, late.reason, late.retryable) == ("E_TIMEOUT", reason, False)
    assert SOON_S * 0.9 <= time.monotonic() - began < LATE_S


def test_a_timeout_keeps_the_text_that_came(fake: FakeProvider) -> None:
    fake.reply(stream_reply(chunk("Half of "), chunk("it"), Stall()))
    late = failure(endpoint(fake), within_s=SOON_S)
    assert isinstance(late, ProviderFailure)
    assert late.partial_text == "Half of it"
    assert late.details["partialChars"] == 10
    assert late.details["attempts"] == 1


def test_a_begun_answer_that_pauses_too_long_has_stalled(fake: FakeProvider) -> None:
    fake.reply(stream_reply(chunk("Half of it"), Repeat(b": keep-alive\n\n", 0.02)))
    began = time.monotonic()
    late = failure(endpoint(fake), within_s=30, stall_s=0.3)
    assert (late.code, late.reason) == ("E_TIMEOUT", "stalled")
    assert time.monotonic() - began < LATE_S
    assert fake.requests[0].gone.wait(5)


def test_a_deadline_that_has_passed_sends_nothing(fake: FakeProvider) -> None:
    assert failure(endpoint(fake), within_s=-1).code == "E_TIMEOUT"
    assert fake.requests == []


@pytest.mark.parametrize("rest", [Stall(), Repeat(b" ", 0.02)], ids=["stalls", "drips"])
def test_an_error_body_that_never_ends_does_not_hide_its_status(fake: FakeProvider, rest: Stall | Repeat) -> None:
    fake.reply(Reply([b'{"error":', rest], 401, [], "chunked"))
    assert failure(endpoint(fake), within_s=SOON_S).code == "E_AUTH"


def test_a_timeout_after_a_retry_says_what_went_wrong_before(fake: FakeProvider) -> None:
    fake.reply(json_reply({"error": "Busy"}, status=503), Reply(head_pause=60))
    late = failure(endpoint(fake), within_s=1.0, retry=RetryPolicy(2, 1))
    assert late.code == "E_TIMEOUT"
    assert late.details["lastError"]["code"] == "E_PROVIDER"
    assert late.details["attempts"] == 2


# Cancelling


@pytest.mark.parametrize(
    "reply",
    [Reply(head_pause=60), stream_reply(Stall()), stream_reply(chunk("Hello"), Repeat(b": on\n\n", 0.05))],
    ids=["before the head", "before the body", "amid the stream"],
)
def test_cancelling_the_task_aborts_the_request(fake: FakeProvider, reply: Reply) -> None:
    fake.reply(reply)

    async def cancel_soon() -> None:
        task = asyncio.create_task(ask(endpoint(fake)))
        while not fake.requests:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_soon())
    assert fake.requests[0].gone.wait(5)


def test_cancelling_during_a_wait_ends_it(fake: FakeProvider) -> None:
    fake.reply(json_reply({"error": "Busy"}, status=429, headers=[("Retry-After", "5")]))

    async def cancel_soon() -> float:
        task = asyncio.create_task(ask(endpoint(fake), within_s=30, retry=RetryPolicy(2, 1)))
        while not fake.requests:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        task.cancel()
        began = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await task
        return time.monotonic() - began

    assert asyncio.run(cancel_soon()) < 2
    assert len(fake.requests) == 1


# Caps

MEGABYTE = b"x" * 1_000_000
BOMB = zlib.compressobj(9, wbits=31)
BOMB_BYTES = b'{"choices":[{"message":{"content":"'
BOMB_BODY = BOMB.compress(BOMB_BYTES + b"a" * 100_000_000) + BOMB.flush()
TOO_LARGE = {
    "json": Reply([b'{"choices":"', *[MEGABYTE] * 18, b'"}'], 200, [], "chunked"),
    "stream": stream_reply(*[event(chunk("y" * 1_000_000))] * 18, DONE),
    "one endless line": stream_reply(b"data: ", *[MEGABYTE] * 18),
    "endless blank lines": Reply([b"\n" * 1_000_000] * 18, 200, [], "chunked"),
    "gzip bomb": text_reply(BOMB_BODY, content_type="application/json", headers=[("Content-Encoding", "gzip")]),
}


@pytest.mark.parametrize("reply", TOO_LARGE.values(), ids=TOO_LARGE)
def test_a_body_over_the_cap_is_refused(fake: FakeProvider, reply: Reply) -> None:
    fake.reply(reply)
    refused = failure(endpoint(fake), within_s=20)
    assert (refused.code, refused.reason, refused.retryable) == ("E_MALFORMED_RESPONSE", "too_large", False)


def test_the_bomb_is_small_on_the_wire() -> None:
    assert len(BOMB_BODY) < 200_000


def test_text_before_the_cap_is_kept(fake: FakeProvider) -> None:
    fake.reply(TOO_LARGE["stream"])
    refused = failure(endpoint(fake), within_s=20)
    assert isinstance(refused, ProviderFailure)
    assert len(refused.partial_text) >= 14_000_000


def test_an_answer_of_many_megabytes_is_whole(fake: FakeProvider) -> None:
    fake.reply(json_reply(answer("z" * 8_000_000)))
    assert len(asyncio.run(ask(endpoint(fake), within_s=20)).text) == 8_000_000
