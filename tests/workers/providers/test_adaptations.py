"""Section 2.9 of the reference: parameters that servers refuse, and what is changed to please them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.fake_provider import FakeProvider, Recorded, Reply, chat, json_reply
from tests.workers.providers.quirks import Met, Row, Want, meet
from workers.providers.base import Adaptation

Refusal = Callable[[dict[str, Any]], tuple[int, Any] | None]
UNKNOWN_STREAM_OPTIONS = {"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]}


def openai_error(message: str, code: str = "unsupported_parameter", param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


def refusing(test: Callable[[dict[str, Any]], bool], error: Any, status: int = 400) -> Callable[[Recorded], Reply]:
    """A server that answers only a body that passes."""

    def reply(request: Recorded) -> Reply:
        return json_reply(error, status=status) if test(request.json) else chat("Hello")(request)

    return reply


@dataclass(frozen=True)
class Case:
    name: str
    refused: Callable[[dict[str, Any]], bool]
    error: Any
    learned: list[tuple[str, str, Any]]
    status: int = 400
    known: tuple[Adaptation, ...] = ()


def has(name: str) -> Callable[[dict[str, Any]], bool]:
    return lambda body: name in body


TO_COMPLETION = Adaptation("max_tokens", "rename", "max_completion_tokens")
RENAMED = [("max_tokens", "rename", "max_completion_tokens")]
NO_TEMPERATURE = [("temperature", "drop", None)]
CASES = [
    Case(
        "adapt-rename",
        has("max_tokens"),
        openai_error(
            "Unsupported parameter: 'max_tokens' is not supported with this model. "
            "Use 'max_completion_tokens' instead.",
            param="max_tokens",
        ),
        RENAMED,
    ),
    Case(
        "adapt-rename:copilot",
        has("max_tokens"),
        openai_error("max_tokens is not supported, use 'max_completion_tokens'", "invalid_request_body"),
        RENAMED,
    ),
    Case(
        "adapt-rename-back",
        has("max_completion_tokens"),
        {"detail": [{"loc": ["body", "max_completion_tokens"], "msg": "Extra inputs are not permitted"}]},
        [("max_completion_tokens", "rename", "max_tokens")],
        422,
        (TO_COMPLETION,),
    ),
    Case(
        "adapt-temperature",
        has("temperature"),
        openai_error(
            "Unsupported value: 'temperature' does not support 0.16 with this model. "
            "Only the default (1) value is supported.",
            "unsupported_value",
            "temperature",
        ),
        NO_TEMPERATURE,
    ),
    Case(
        "adapt-temperature:parameter",
        has("temperature"),
        openai_error("Unsupported parameter: 'temperature' is not supported with this model.", param="temperature"),
        NO_TEMPERATURE,
    ),
    Case(
        "adapt-temperature:both-in-one",
        lambda body: "temperature" in body or "max_tokens" in body,
        openai_error("temperature and max_tokens are not supported here, send max_completion_tokens"),
        [*RENAMED, *NO_TEMPERATURE],
    ),
    Case(
        "adapt-moonshot",
        has("temperature"),
        openai_error("invalid temperature: only 1 is allowed for this model", "invalid_request_error"),
        NO_TEMPERATURE,
    ),
    Case(
        "adapt-moonshot:0.6",
        has("temperature"),
        openai_error("invalid temperature: only 0.6 is allowed for this model", "invalid_request_error"),
        NO_TEMPERATURE,
    ),
    Case(
        "adapt-clamp",
        lambda body: body["max_tokens"] > 8192,
        openai_error("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", "invalid_request_error"),
        [("max_tokens", "clamp", 8192)],
    ),
    Case(
        "adapt-clamp:novita",
        lambda body: body["max_tokens"] > 32768,
        {"code": 400, "reason": "BAD", "message": "max_tokens (current value: 65536) must be between 0 and 32768 "},
        [("max_tokens", "clamp", 32768)],
    ),
    Case(
        "adapt-clamp:anthropic",
        lambda body: body["max_tokens"] > 4096,
        openai_error("max_tokens: 65536 > 4096, which is the maximum allowed number of output tokens", "x"),
        [("max_tokens", "clamp", 4096)],
    ),
    Case(
        "adapt-clamp:renamed",
        lambda body: body["max_completion_tokens"] > 16384,
        openai_error("max_tokens is too large: 65536. This model supports at most 16384 completion tokens", "x"),
        [("max_completion_tokens", "clamp", 16384)],
        known=(TO_COMPLETION,),
    ),
    Case(
        "adapt-unknown-name",
        has("temperature"),
        openai_error('Invalid JSON payload received. Unknown name "temperature": Cannot find field.', "400"),
        NO_TEMPERATURE,
    ),
    Case(
        "adapt-stream-options", has("stream_options"), UNKNOWN_STREAM_OPTIONS, [("stream_options", "drop", None)], 422
    ),
    Case(
        "adapt-stream-options:argument",
        has("stream_options"),
        openai_error("Unrecognized request argument supplied: stream_options", "x"),
        [("stream_options", "drop", None)],
    ),
    Case(
        "adapt-stream",
        has("stream"),
        openai_error("Streaming is not supported for this model", "unsupported_value", "stream"),
        [("stream", "drop", None)],
    ),
    Case(
        "adapt-system-role",
        lambda body: any(message["role"] == "system" for message in body["messages"]),
        openai_error("System role not supported", "BadRequestError"),
        [("messages.system", "rename", "user")],
    ),
    Case(
        "adapt-system-role:gemma",
        lambda body: any(message["role"] == "system" for message in body["messages"]),
        openai_error("Developer instruction is not enabled for models/gemma-3", "400"),
        [("messages.system", "rename", "user")],
    ),
]


def ask(fake: FakeProvider, *replies: Any, retries: int = 0, known: tuple[Adaptation, ...] = (), **options: Any) -> Met:
    row = Row("adapt", replies, Want(), temperature=0.16, max_output_tokens=65536, **options)
    return meet(fake, row, retries=retries, adaptations=known)


def said(adaptations: list[Adaptation]) -> list[tuple[str, str, Any]]:
    return [(item.field, item.action, item.value) for item in adaptations]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_refused_parameter_is_changed_once_and_the_lesson_kept(fake: FakeProvider, case: Case) -> None:
    met = ask(fake, refusing(case.refused, case.error, case.status), known=case.known)
    assert met.completion is not None, met.failure and met.failure.as_dict()
    assert met.completion.text == "Hello"
    assert said(met.completion.adaptations_learned) == case.learned
    assert all(item.evidence for item in met.completion.adaptations_learned)
    assert len(fake.requests) == 2
    assert len(met.completion.notes) >= len(case.learned)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_was_learned_is_sent_the_next_time(fake: FakeProvider, case: Case) -> None:
    first = ask(fake, refusing(case.refused, case.error, case.status), known=case.known)
    assert first.completion is not None
    known = (*case.known, *first.completion.adaptations_learned)
    again = ask(fake, refusing(case.refused, case.error, case.status), known=known)
    assert again.completion is not None
    assert len(fake.requests) == 1
    assert again.completion.adaptations_learned == []


def test_the_first_request_uses_what_every_server_takes(fake: FakeProvider) -> None:
    """Ollama knows only max_tokens, and ignores the other name in silence."""
    ask(fake, chat("Hello"))
    body = fake.requests[0].json
    assert body["max_tokens"] == 65536
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}
    assert body["temperature"] == 0.16
    assert set(body) == {"model", "messages", "max_tokens", "stream", "stream_options", "temperature"}


def test_the_system_prompt_moves_into_the_first_user_message(fake: FakeProvider) -> None:
    ask(fake, chat("Hello"), known=(Adaptation("messages.system", "rename", "user"),))
    assert fake.requests[0].json["messages"] == [{"role": "user", "content": "Be brief.\n\nSay hello."}]


def test_two_refusals_in_a_row_are_paid_from_the_retries(fake: FakeProvider) -> None:
    temperature = json_reply(openai_error("Unsupported parameter: 'temperature' is not supported"), status=400)
    tokens = json_reply(openai_error("Use 'max_completion_tokens' instead"), status=400)
    met = ask(fake, temperature, tokens, chat("Hello"), retries=1)
    assert met.completion is not None
    assert said(met.completion.adaptations_learned) == [*NO_TEMPERATURE, *RENAMED]
    assert met.completion.attempts == 3


def test_one_adaptation_is_all_that_goes_beyond_the_retries(fake: FakeProvider) -> None:
    temperature = json_reply(openai_error("Unsupported parameter: 'temperature' is not supported"), status=400)
    tokens = json_reply(openai_error("Use 'max_completion_tokens' instead"), status=400)
    met = ask(fake, temperature, tokens, chat("Hello"), retries=0)
    assert met.failure is not None
    assert met.failure.code == "E_INVALID_REQUEST"
    assert len(fake.requests) == 2


def test_a_server_that_refuses_for_ever_is_asked_a_bounded_number_of_times(fake: FakeProvider) -> None:
    met = ask(fake, json_reply(openai_error("Use 'max_completion_tokens' not max_tokens, unsupported"), status=400),
              retries=5)  # fmt: skip
    assert met.failure is not None
    assert len(fake.requests) == 2


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, openai_error("temperature is not supported")),
        (402, openai_error("temperature is not supported")),
        (429, openai_error("Use max_completion_tokens; temperature is not supported", "insufficient_quota")),
        (400, openai_error("max_tokens: maximum context length exceeded, unsupported", "context_length_exceeded")),
        (400, openai_error("This response_format type is unavailable now")),
        (400, openai_error("The reasoning_content in the thinking mode must be passed back to the API")),
        (400, openai_error("invalid top_p: only 0.95 is allowed for this model")),
        (400, openai_error("temperature must be between 0 and 2", "invalid_value")),
    ],
    ids=["auth", "billing", "quota", "context", "response-format", "replay", "top-p", "own-mistake"],
)
def test_nothing_is_adapted_where_parameters_are_not_the_trouble(fake: FakeProvider, status: int, error: Any) -> None:
    met = ask(fake, json_reply(error, status=status))
    assert met.failure is not None
    assert len(fake.requests) == 1


def test_strict_params_leaves_the_request_as_it_is(fake: FakeProvider) -> None:
    met = ask(fake, refusing(has("temperature"), openai_error("'temperature' is not supported")),
              endpoint={"strict_params": True})  # fmt: skip
    assert met.failure is not None
    assert met.failure.code == "E_INVALID_REQUEST"
    assert len(fake.requests) == 1


def test_a_stored_adaptation_that_makes_no_sense_changes_nothing(fake: FakeProvider) -> None:
    odd = (Adaptation("model", "drop"), Adaptation("top_p", "drop"), Adaptation("max_tokens", "clamp", "many"))
    assert ask(fake, chat("Hello"), known=odd).completion is not None
    assert fake.requests[0].json["model"] == "fake-model"
    assert fake.requests[0].json["max_tokens"] == 65536


@pytest.mark.parametrize("status", [400, 429, 500, 503])
@pytest.mark.parametrize("retries", [0, 1])
def test_a_lesson_survives_the_failure_of_the_adapted_attempt(fake: FakeProvider, status: int, retries: int) -> None:
    refused = json_reply(openai_error("Use 'max_completion_tokens' instead"), status=400)
    met = ask(fake, refused, json_reply({"error": "Busy"}, status=status), retries=retries)
    assert met.failure is not None
    assert said(met.failure.adaptations_learned) == RENAMED
    assert "max_completion_tokens" in fake.requests[-1].json


def test_a_lesson_survives_an_adapted_attempt_that_comes_too_late(fake: FakeProvider) -> None:
    refused = json_reply(openai_error("Use 'max_completion_tokens' instead"), status=400)
    met = ask(fake, refused, Reply(head_pause=60), budget_s=0.6)
    assert met.failure is not None
    assert met.failure.code == "E_TIMEOUT"
    assert said(met.failure.adaptations_learned) == RENAMED


def test_a_failure_that_taught_nothing_carries_no_lesson(fake: FakeProvider) -> None:
    met = ask(fake, json_reply({"error": "Busy"}, status=503))
    assert met.failure is not None
    assert met.failure.adaptations_learned == []
