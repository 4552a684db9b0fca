"""Sections 2.6 and 2.7 of the reference: success-side shapes and finish reasons."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

from tests.fake_provider import DONE, answer, chunk, event, json_reply, stream_reply, streamed, text_reply, usage
from tests.workers.providers.quirks import QUESTION, Row, Want
from tests.workers.providers.rows_errors import CONTEXT, INVALID, SERVER, one, want

OK = Want(text="Hello there", raw="stop")
SPENT = Want(
    "E_INVALID_REQUEST",
    False,
    "output_budget_spent_on_reasoning",
    hint="maxOutputTokens to 2000 or more",
    details={"suggestedMaxOutputTokens": 2000},
)
ONLY_REASONING = Want("E_MALFORMED_RESPONSE", False, "empty_content_reasoning_only")
NO_CHOICES = Want("E_MALFORMED_RESPONSE", False, "no_choices", says="id, model, choices")
TOOLS = [{"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]


def both(
    row_id: str, document: dict[str, Any], wanted: Want, *, stream: Want | None = None, **options: Any
) -> list[Row]:
    """The row as one document, and as the stream that says the same."""
    return [
        one(f"{row_id}:json", json_reply(document), wanted, **options),
        one(f"{row_id}:stream", streamed(document), stream or wanted, **options),
    ]


def choices(value: Any) -> dict[str, Any]:
    return {"id": "x", "model": "fake-model", "choices": value}


MISTRAL = [
    {"type": "thinking", "thinking": [{"type": "text", "text": "Let me see."}]},
    {"type": "text", "text": "Hello "},
    {"type": "thinking", "thinking": []},
    {"type": "text", "text": "there"},
]
MIXED = [{"type": "output_text", "text": "Hello "}, "there", {"type": "image_url", "image_url": {"url": "x"}}]
DETAILS = [
    {"type": "reasoning.text", "text": "Thinking."},
    {"type": "reasoning.summary", "summary": "Sum."},
    {"type": "reasoning.encrypted", "data": "opaque"},
]
COUNTED = {"completion_tokens_details": {"reasoning_tokens": 5}}
LONG_PROMPT = [{"role": "user", "content": "word " * 4_000}]


def counted(value: Any, wanted: Any, name: str, row: str = "S15") -> list[Row]:
    return both(f"{row}:{name}", answer("Hello there", usage=value), want(OK, usage=wanted))


SHAPES: list[Row] = [
    *both("S1", answer(None, finish="length", reasoning_content="hmm", usage=usage(10, 100, **COUNTED)),
          want(SPENT, details={"reasoningTokens": 5, "reasoningChars": 3, "suggestedMaxOutputTokens": 2000})),
    *both("S1:empty", answer("", finish="length"), SPENT),
    *both("S1:big", answer(None, finish="length", reasoning="hmm"),
          want(SPENT, details={"suggestedMaxOutputTokens": 8000}), max_output_tokens=4000),
    *both("S2", answer("", reasoning_content="I only thought."), want(ONLY_REASONING, details={"reasoningChars": 15})),
    *both("S2:null", answer(None, reasoning="I only thought."), ONLY_REASONING),
    *both("S2:accepted", answer("", reasoning_content="I only thought."),
          want(OK, text="I only thought.", note="reasoning was taken"), endpoint={"accept_reasoning": True}),
    *both("S3", answer(MISTRAL), OK),
    *both("S3:mixed", answer(MIXED), OK),
    *both("S3:refusal", answer([{"type": "refusal", "refusal": "I will not."}]),
          Want("E_PROVIDER", False, "refusal", says="I will not.")),
    *both("S4", answer("Hello there", reasoning_content="hmm"), OK),
    *both("S5", answer("Hello there", reasoning="hmm"), OK),
    *both("S6", answer("Hello there", reasoning_details=DETAILS), OK),
    *both("S6:only", answer("", reasoning_details=DETAILS), want(ONLY_REASONING, details={"reasoningChars": 13})),
    *(row for tag in ("think", "thought", "thinking", "reasoning", "THINK")
      for row in both(f"S7:{tag}", answer(f"<{tag}>Let me see.</{tag}>\n\nHello there"), OK)),
    one("S7:straddling", stream_reply(*map(chunk, ["<th", "ink>I", " see</thi", "nk>", "\n", "Hello", " there"]),
        chunk(finish="stop"), DONE), OK),
    one("S7:orphan", json_reply(answer("I see.\n</think>\n\nHello there")), want(OK, note="orphaned closing tag")),
    *both("S9", answer("<think>I never stop", finish="length"), want(SPENT, details={"reasoningChars": 12})),
    one("S9:stop", json_reply(answer("<think>I never stop")), ONLY_REASONING),
    one("S10", json_reply(choices(None)), NO_CHOICES),
    one("S10:missing", json_reply({"id": "x", "model": "m"}), want(NO_CHOICES, says="id, model.")),
    one("S10:empty", json_reply(choices([])), NO_CHOICES),
    one("S10:stream", stream_reply(choices(None), DONE), NO_CHOICES),
    one("S12", json_reply(choices([{"index": 0, "text": "Hello there", "finish_reason": "stop"}])), OK),
    one("S12:delta", json_reply(chunk("Hello there", finish="stop")), OK),
    one("S12:message-in-stream", stream_reply(answer("Hello there"), DONE), OK),
    one("S12:message-repeats", stream_reply(chunk("Hello there"), answer("Hello there"), DONE), OK),
    one("S12:ollama", json_reply({"model": "fake-model", "message": {"content": "Hello there"}, "done": True,
        "done_reason": "stop"}), OK),
    *both("S13", answer(None, refusal="I will not do that."),
          Want("E_PROVIDER", False, "refusal", says="I will not do that.", partial="I will not do that.")),
    *both("S14", answer(None, tool_calls=TOOLS, finish="tool_calls"),
          Want("E_MALFORMED_RESPONSE", False, "unexpected_tool_calls")),
    *counted(None, None, "missing"),
    *counted({}, None, "empty"),
    *counted(usage(0, 0), None, "zeros"),
    *counted({"prompt_tokens": "12", "completion_tokens": "7"}, None, "strings"),
    *counted({"prompt_tokens": 12.5, "completion_tokens": 7.0}, None, "floats"),
    *counted([1, 2], None, "list"),
    *counted("lots", None, "text"),
    *counted({"prompt_tokens": -1, "completion_tokens": True}, None, "absurd"),
    *counted({"prompt_tokens": 0, "completion_tokens": 7}, (None, 7, None), "half"),
    *counted({"prompt_tokens": 12, "completion_tokens": 7, "prompt_tokens_details": None}, (12, 7, None), "n", "S16"),
    *counted({"prompt_tokens": 12, "completion_tokens": 7, "prompt_cache_hit_tokens": 4, "cost": 0.5}, (12, 7, None),
             "deepseek", "S16"),
    *counted({"input_tokens": 12, "output_tokens": 7, "output_tokens_details": {"reasoning_tokens": 3}}, (12, 7, 3),
             "responses", "extra"),
    one("extra:groq-usage", stream_reply(chunk("Hello there"), {**chunk(finish="stop"), "x_groq": {"usage": usage()}},
        DONE), want(OK, usage=(12, 7, None))),
    *both("S18", {**answer("Hello there"), "model": "other-model"}, want(OK, model="other-model", note="other-model")),
    *both("S19", answer(""), Want("E_MALFORMED_RESPONSE", False, "empty_completion", hint="context")),
    *both("S19:blank", answer(" \n "), Want("E_MALFORMED_RESPONSE", False, "empty_completion")),
    *both("S20", answer("Hello there", usage=usage(900, 7)), want(OK, note="cut the prompt"), messages=LONG_PROMPT),
    one("S21", json_reply({**answer("Hello there"), "id": None, "created": "now", "object": 7, "model": None}),
        want(OK, model=None)),
    one("S21:stream", stream_reply({**chunk("Hello there", finish="stop"), "id": 3, "object": None, "created": None,
        "model": 4}, DONE), want(OK, model=None)),
]  # fmt: skip


def finishing(name: str, finish: Any, wanted: Want, *, stream: Want | None = None) -> list[Row]:
    return both(f"finish-{name}", answer("Hello there", finish=finish), wanted, stream=stream)


LENGTH = want(OK, finish="length", truncated=True)
FILTERED = want(INVALID, reason="content_filter", partial="Hello there")
FINISHES: list[Row] = [
    *(row for name in ("stop", "eos", "end_turn", "completed", "STOP")
      for row in finishing(name, name, want(OK, raw=name))),
    *(row for name in ("length", "model_length", "max_tokens", "max_output_tokens")
      for row in finishing(name, name, want(LENGTH, raw=name))),
    *(row for name in ("content_filter", "sensitive", "SAFETY", "RECITATION")
      for row in finishing(name, name, FILTERED)),
    *both("finish-content_filter:empty", answer("", finish="content_filter"), want(FILTERED, partial="")),
    *(row for name in ("tool_calls", "function_call")
      for row in finishing(name, name, want(OK, raw=name, note=name))),
    *finishing("insufficient_system_resource", "insufficient_system_resource",
               want(SERVER, reason="insufficient_system_resource", partial="Hello there", asks=1)),
    *both("finish-insufficient_system_resource:empty", answer("", finish="insufficient_system_resource"),
          want(SERVER, reason="insufficient_system_resource")),
    *finishing("error", "error", want(SERVER, reason="finish_error", asks=1)),
    one("finish-error:embedded", json_reply(choices([{"message": {"content": ""}, "finish_reason": "error",
        "native_finish_reason": "MALFORMED", "error": {"code": 502, "message": "Upstream broke"}}])),
        want(SERVER, says="Upstream broke")),
    *both("finish-network_error", answer("", finish="network_error"), Want("E_NETWORK", True, "upstream_network")),
    *finishing("model_context_window_exceeded", "model_context_window_exceeded", want(CONTEXT, partial="Hello there")),
    *finishing("empty", "", want(OK, raw="", note="is missing")),
    *finishing("null", None, want(OK, raw=None, note="is missing")),
    *finishing("unknown", "because", want(OK, raw="because", note="because")),
    one("finish-missing", json_reply(choices([{"message": {"content": "Hello there"}}])),
        want(OK, raw=None, note="is missing")),
    one("finish-cut-stream", stream_reply(chunk("Hello there")),
        Want("E_NETWORK", True, "truncated", partial="Hello there", asks=1)),
]  # fmt: skip

PLAIN = json.dumps(answer("Hello there")).encode()
UMLAUT = answer("Grüße — 你好 🎉")


def encoded(name: str, body: bytes, encoding: str, wanted: Want = OK) -> Row:
    headers = [("Content-Encoding", encoding)] if encoding else []
    return one(f"body-{name}", text_reply(body, content_type="application/json", headers=headers), wanted)


def typed(name: str, body: str | bytes, content_type: str, wanted: Want = OK) -> Row:
    return one(f"body-{name}", text_reply(body, content_type=content_type), wanted)


GREETING = want(OK, text="Grüße — 你好 🎉")
NOT_JSON = Want("E_MALFORMED_RESPONSE", False, "not_json")
BODIES: list[Row] = [
    encoded("gzip", gzip.compress(PLAIN), "gzip"),
    encoded("gzip:two-members", gzip.compress(PLAIN[:20]) + gzip.compress(PLAIN[20:]), "gzip"),
    encoded("gzip:twice", gzip.compress(gzip.compress(PLAIN)), "gzip, gzip"),
    encoded("gzip:no-header", gzip.compress(PLAIN), ""),
    encoded("gzip:wrong-header", PLAIN, "gzip"),
    encoded("gzip:damaged", gzip.compress(PLAIN * 5_000)[:60] + b"\xff" * 400, "gzip",
            Want("E_MALFORMED_RESPONSE", False, "bad_encoding")),
    encoded("deflate", zlib.compress(PLAIN), "deflate"),
    encoded("deflate:raw", zlib.compress(PLAIN)[2:-4], "deflate"),
    encoded("deflate:wrong-header", PLAIN, "deflate"),
    encoded("br:wrong-header", PLAIN, "br"),
    encoded("br", b"\x1b\x3f\x00\xf8\x8d\x94\x6e\xde\x44\x55\x86\x96", "br", want(NOT_JSON, says="br")),
    encoded("gzip:stream", gzip.compress(event(chunk("Hello there", finish="stop")) + DONE), "gzip"),
    typed("charset", json.dumps(UMLAUT, ensure_ascii=False).encode(), "application/json", GREETING),
    typed("charset:wrong", json.dumps(UMLAUT, ensure_ascii=False).encode(), "application/json; charset=ISO-8859-1",
          GREETING),
    typed("charset:utf-16", json.dumps(UMLAUT, ensure_ascii=False).encode("utf-16"), "text/plain; charset=utf-16",
          GREETING),
    typed("charset:latin-1", json.dumps(answer("Grüße"), ensure_ascii=False).encode("latin-1"),
          "application/json; charset=latin1", want(OK, text="Grüße")),
    typed("charset:evil", PLAIN, "application/json; charset=unicode_escape"),
    typed("charset:bad-bytes", PLAIN.replace(b"there", b"\xff\xfe"), "application/json",
          want(OK, text="Hello \ufffd\ufffd")),
    typed("bom", b"\xef\xbb\xbf" + PLAIN, "application/json"),
    typed("blank-lines", b"\n\n \r\n" * 3_000 + PLAIN + b"\n\n", "application/json"),
    typed("sse-unasked", event(chunk("Hello there", finish="stop")) + DONE, "application/json"),
    typed("json-as-sse", PLAIN, "text/event-stream"),
    typed("ndjson", PLAIN + b"\n" + PLAIN, "application/x-ndjson", want(OK, note="2 JSON values")),
    typed("ndjson:chunks", "\n".join(json.dumps(part) for part in (chunk("Hello "), chunk("there", finish="stop"))),
          "application/x-ndjson", want(OK, note="2 JSON values")),
    typed("json-array:chunks", json.dumps([chunk("Hello "), chunk("there", finish="stop")]), "application/json"),
    typed("trailing-garbage", PLAIN + b" <!-- served by x -->", "application/json"),
    typed("list", b"[" + PLAIN + b"]", "application/json"),
    typed("string", json.dumps(PLAIN.decode()), "application/json"),
    typed("wrapped", b'{"code": 200, "message": "ok", "data": ' + PLAIN + b"}", "application/json"),
    typed("wrapped:response", b'{"response": ' + PLAIN + b"}", "application/json"),
    typed("not-json", "upstream connect error", "text/plain",
          want(NOT_JSON, details={"snippet": "upstream connect error"})),
    typed("number", "42", "application/json", NOT_JSON),
    typed("null", "null", "application/json", NOT_JSON),
    typed("plain-string", '"hello"', "application/json", Want("E_MALFORMED_RESPONSE", False, "wrong_shape")),
    typed("deep", b'{"choices":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "application/json",
          want(NOT_JSON, says="nested too deeply")),
    typed("nan", PLAIN.replace(b'"created": 1700000000', b'"created": NaN'), "application/json"),
    typed("huge-int", PLAIN.replace(b"1700000000", b"9" * 6_000), "application/json"),
    typed("lone-surrogate", PLAIN.replace(b"there", b"\\ud83d"), "application/json", want(OK, text="Hello \ufffd")),
    typed("nul", PLAIN.replace(b"there", b"\\u0000"), "application/json", want(OK, text="Hello \ufffd")),
    one("body-split-surrogate", stream_reply(
        event(chunk("A @ B")).replace(b"@ B", b"\\ud83c"), event(chunk("@")).replace(b"@", b"\\udf89"),
        chunk(finish="stop"), DONE), want(OK, text="A 🎉")),
    one("extra:prompt-with-surrogate", json_reply(answer("Hello there")), OK,
        messages=[*QUESTION, {"role": "user", "content": "half \ud83d"}]),
]  # fmt: skip
