"""Section 2.8 of the reference: streams on the wire."""

from __future__ import annotations

from typing import Any

from tests.fake_provider import (
    DONE,
    MODEL,
    Cut,
    Reply,
    Stall,
    Step,
    chunk,
    event,
    json_reply,
    stream_reply,
    usage,
    usage_chunk,
)
from tests.workers.providers.quirks import Row, Want
from tests.workers.providers.rows_answers import GREETING, OK
from tests.workers.providers.rows_errors import RATE, SERVER, error, want

HELLO = [chunk("Hello "), chunk("there")]
STOP = chunk(finish="stop")
WHOLE = b"".join([*map(event, HELLO), event(STOP), DONE])
CUT_AT_HELLO = Want("E_NETWORK", True, "truncated", partial="Hello there", asks=1)
NO_FINISH = want(OK, raw=None, note="is missing")


def stream(name: str, *pieces: Any, wanted: Want = OK, **options: Any) -> Row:
    return Row(f"stream-{name}", [stream_reply(*pieces)], wanted, **options)


def wire(name: str, data: bytes, wanted: Want = OK, *, size: int = 0) -> Row:
    """Bytes as they are, in TCP pieces of `size`."""
    size = size or len(data)
    steps: list[Step] = [data[at : at + size] for at in range(0, len(data), size)]
    return Row(f"stream-{name}", [Reply(steps, 200, [("Content-Type", "text/event-stream")], "close")], wanted)


MULTI_LINE = b'data: {"choices": [{"delta":\ndata: {"content": "Hello there"}, "finish_reason": "stop"}]}\n\n' + DONE
AZURE_FIRST = {"model": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {}}]}
BAD_CHUNK = Reply([b"5\r\n" + WHOLE[:5] + b"\r\nzzz\r\n", Cut()], 200, [("Transfer-Encoding", "chunked")], "close")

STREAMS: list[Row] = [
    stream("comments", b": OPENROUTER PROCESSING\n\n", b": keep-alive\n\n", b":\n\n", *HELLO, b":\n", STOP, DONE),
    wire("blank-lines", b"\n\n\n" + WHOLE.replace(b"\n\n", b"\n\n\n\n")),
    stream("azure-first", AZURE_FIRST, *HELLO, STOP, usage_chunk(usage()), DONE, wanted=want(OK, usage=(12, 7, None))),
    stream("usage-last", *HELLO, STOP, usage_chunk(usage(5, 6)), wanted=want(OK, usage=(5, 6, None))),
    stream("error-inside", *HELLO, error("Too many requests", 429), wanted=want(RATE, partial="Hello there", asks=1)),
    stream("error-inside:first", error("Too many requests", 429), DONE, wanted=RATE),
    stream("error-inside:top-level", {**error("Broke", 502), "choices": []}, wanted=SERVER),
    stream("error-inside:finish", *HELLO, chunk(finish="error"), wanted=want(SERVER, reason="finish_error", asks=1)),
    stream("error-event", b'event: error\ndata: {"message": "Slow down", "code": 429}\n\n', wanted=RATE),
    stream("error-event:text", b"event: error\ndata: something broke\n\n", wanted=want(SERVER, says="something broke")),
    stream("error-bare-line", b'{"error": {"message": "Slow down", "code": 429}}\n\n', wanted=RATE),
    stream("no-done", *HELLO, STOP),
    stream("no-done:held-open", *HELLO, STOP, DONE, Stall()),
    stream("no-finish", *HELLO, DONE, wanted=NO_FINISH),
    stream("neither", *HELLO, wanted=CUT_AT_HELLO),
    stream("neither:no-output", chunk(role="assistant", content=""), wanted=Want("E_NETWORK", True, "truncated")),
    stream("only-comments", b": keep-alive\n\n", wanted=Want("E_MALFORMED_RESPONSE", False, "empty_response")),
    stream("only-done", DONE, wanted=Want("E_MALFORMED_RESPONSE", False, "empty_response")),
    wire("done-without-space", WHOLE.replace(b"data: ", b"data:")),
    wire("crlf", WHOLE.replace(b"\n", b"\r\n")),
    wire("cr", WHOLE.replace(b"\n", b"\r")),
    wire("crlf:dripped", WHOLE.replace(b"\n", b"\r\n"), size=7),
    wire("single-newlines", WHOLE.replace(b"\n\n", b"\n")),
    wire("no-last-newline", WHOLE.removesuffix(b"\n\n")),
    wire("multi-line", MULTI_LINE, want(OK, model=None)),
    wire("split", WHOLE, size=11),
    wire("split:bytes", event(chunk("Grüße — 你好 🎉", finish="stop")) + DONE, GREETING, size=1),
    wire("bom", b"\xef\xbb\xbf" + WHOLE),
    wire("ids-and-retry", b"retry: 3000\nid: 1\nevent: message\n" + WHOLE),
    stream("phase-mark", chunk(reasoning_content="hm"), chunk(reasoning_content=""), chunk(reasoning_content=None),
           *HELLO, STOP, DONE),
    stream("ping", {"type": "ping"}, b"event: ping\ndata: {}\n\n", *HELLO, STOP, DONE),
    stream("no-json", b"data: warming up\n\n", *HELLO, STOP, DONE, wanted=want(OK, note="skipped: warming up")),
    stream("broken-json", chunk("Hello "), b'data: {"choices": [{"delta": {"content": "th\n\n', STOP, DONE,
           wanted=Want("E_MALFORMED_RESPONSE", False, "bad_event", partial="Hello ")),
    stream("deep-json", chunk("Hello "), b"data: " + b"[" * 100_000 + b"\n\n", STOP, DONE,
           wanted=Want("E_MALFORMED_RESPONSE", False, "bad_event", partial="Hello ")),
    stream("cut", *HELLO, Cut(), wanted=CUT_AT_HELLO),
    stream("cut:reasoning", chunk(reasoning="hmm"), Cut(), wanted=want(CUT_AT_HELLO, partial="")),
    stream("cut:after-finish", *HELLO, STOP, Cut()),
    stream("cut:before-output", chunk(role="assistant", content=""), Cut(), wanted=Want("E_NETWORK", True, "cut")),
    Row("stream-bad-chunk-size", [BAD_CHUNK], Want("E_NETWORK", True, "protocol")),
    stream("second-choice", {**chunk(), "choices": [{"index": 1, "delta": {"content": "no"}},
           {"index": 0, "delta": {"content": "Hello there"}, "finish_reason": "stop"}]}, DONE),
    stream("text-after-done", DONE, *HELLO, STOP),
    stream("unknown-fields", {**chunk("Hello there", finish="stop"), "provider": "X", "system_fingerprint": {}}, DONE),
    Row("stream-ignored", [json_reply({"model": MODEL, "choices": [{"message": {"content": "Hello there"},
        "finish_reason": "stop"}]})], OK),
]  # fmt: skip
