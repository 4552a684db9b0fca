"""No row of the reference is forgotten."""

from __future__ import annotations

from tests.workers.providers.test_adaptations import CASES
from tests.workers.providers.test_catalogue import SHAPES
from tests.workers.providers.test_quirks import ROWS

ERROR_SHAPES = {f"E{n}" for n in (*range(1, 8), 9, 10, 11, *range(13, 18), 19, 20, 21, 23, 24, 25, 27, 29, 30)}
ANSWER_SHAPES = {f"S{n}" for n in (*range(1, 8), 9, 10, 12, 13, 14, 15, 16, 18, 19, 20, 21)}
STATUSES = {
    f"status-{code}"
    for code in (
        *(0, 204, 301, 302, 303, 307, 308, 400, 401, 402, 403, 404, 405, 406, 408, 409, 410, 412, 413, 415, 422, 424),
        *(425, 426, 429, 434, 435, 451, 498, 499, 500, 502, 503, 504, *range(520, 528), 529, 530),
    )
} | {"status-200-empty"}
MEANINGS = {
    f"429-{name}"
    for name in (
        *("insufficient-quota", "1113", "1302", "1305", "window", "plan", "1301", "1234", "params", "auth"),
        *("gemini-day", "gemini-delay", "groq", "openrouter", "moonshot", "too-long"),
    )
}
DELAYS = {
    f"delay-{name}"
    for name in (*("ms", "x-ms", "seconds", "http-date", "ignored", "should-retry", "ratelimit-reset", "both"),)
}
FINISHES = {
    f"finish-{name}"
    for name in (
        *("stop", "eos", "end_turn", "completed", "length", "model_length", "max_tokens", "max_output_tokens"),
        *("content_filter", "sensitive", "SAFETY", "RECITATION", "tool_calls", "function_call", "error"),
        *("insufficient_system_resource", "network_error", "model_context_window_exceeded"),
        *("empty", "null", "missing", "unknown", "cut-stream"),
    )
}
STREAMS = {
    f"stream-{name}"
    for name in (
        *("comments", "blank-lines", "azure-first", "usage-last", "error-inside", "no-done", "done-without-space"),
        *("crlf", "multi-line", "error-event", "split", "neither", "phase-mark", "ignored"),
    )
}
ADAPTATIONS = {
    f"adapt-{name}"
    for name in (
        "rename",
        "rename-back",
        "temperature",
        "moonshot",
        "clamp",
        "unknown-name",
        "stream-options",
        "stream",
    )
}
LISTS = {
    f"models-{name}"
    for name in (*("openai", "bare-array", "key", "name", "context-window", "no-context", "price", "skipped", "empty"),)
}
BOTH_WAYS = ERROR_SHAPES - {"E20", "E21", "E29"}


def test_every_row_of_the_reference_has_a_case() -> None:
    covered = {row.row_id for row in ROWS} | {case.name.partition(":")[0] for case in CASES}
    covered |= {shape[0].partition(":")[0] for shape in SHAPES}
    wanted = ERROR_SHAPES | ANSWER_SHAPES | STATUSES | MEANINGS | DELAYS | FINISHES | STREAMS | ADAPTATIONS | LISTS
    assert wanted - covered == set()


def test_every_error_that_can_be_an_event_is_also_tried_as_one() -> None:
    names = {row.name for row in ROWS}
    assert {row_id for row_id in BOTH_WAYS if f"{row_id}:stream" not in names} == set()


def test_row_names_are_unique() -> None:
    names = [row.name for row in ROWS]
    assert sorted(names) == sorted(set(names))
