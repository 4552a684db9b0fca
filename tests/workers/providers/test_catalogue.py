"""Section 2.10 of the reference: shapes of /models."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.fake_provider import FakeProvider, Recorded, Reply, html_reply, json_reply, text_reply
from workers.providers.base import Endpoint, ModelList, ProviderFailure
from workers.providers.openai import OpenAICompatible

OPENROUTER = {
    "data": [
        {
            "id": "z-ai/glm-4.7",
            "top_provider": {"context_length": 202752},
            "pricing": {"prompt": "0.0000004", "completion": "0.0000017"},
        }
    ]
}
LM_STUDIO = {
    "models": [{"key": "qwen", "max_context_length": 40960, "loaded_instances": [{"config": {"context_length": 4096}}]}]
}
SHAPES: list[tuple[str, Any, ModelList]] = [
    ("models-openai", {"object": "list", "data": [{"id": "a"}, {"id": "b"}]}, ModelList(("a", "b"))),
    ("models-bare-array", [{"id": "a", "context_length": 8192}], ModelList(("a",), {"a": 8192})),
    ("models-key", LM_STUDIO, ModelList(("qwen",), {"qwen": 4096})),
    ("models-name", {"models": [{"name": "llama3:8b", "model": "llama3:8b"}]}, ModelList(("llama3:8b",))),
    ("models-strings", {"data": ["a", "b"]}, ModelList(("a", "b"))),
    ("models-context-window", {"data": [{"id": "a", "context_window": 131072}]}, ModelList(("a",), {"a": 131072})),
    ("models-max-model-len", {"data": [{"id": "a", "max_model_len": 32768}]}, ModelList(("a",), {"a": 32768})),
    ("models-no-context", {"data": [{"id": "a", "context_length": None}]}, ModelList(("a",))),
    ("models-absurd-context", {"data": [{"id": "a", "context_length": "big"}]}, ModelList(("a",))),
    ("models-skipped", {"data": [{"id": "a"}, {}, {"id": None}, 7, {"id": " "}]}, ModelList(("a",), skipped=4)),
    ("models-twice", {"data": [{"id": "a"}, {"id": "a"}]}, ModelList(("a",))),
    ("models-empty", {"object": "list", "data": []}, ModelList()),
    ("models-empty:null", {"object": "list", "data": None}, ModelList()),
    (
        "models-price",
        OPENROUTER,
        ModelList(("z-ai/glm-4.7",), {"z-ai/glm-4.7": 202752}, prices={"z-ai/glm-4.7": ("0.0000004", "0.0000017")}),
    ),
]


def listed(fake: FakeProvider, reply: Any, *, suffix: str = "") -> ModelList:
    fake.requests.clear()
    fake.models = reply

    async def ask() -> ModelList:
        provider = OpenAICompatible(Endpoint("fake", fake.base_url + suffix, private=True))
        try:
            return await provider.list_models(deadline=time.monotonic() + 5)
        finally:
            await provider.aclose()

    return asyncio.run(ask())


@pytest.mark.parametrize(("name", "body", "wanted"), SHAPES, ids=[shape[0] for shape in SHAPES])
def test_every_shape_of_a_list_is_read(fake: FakeProvider, name: str, body: Any, wanted: ModelList) -> None:
    assert listed(fake, json_reply(body)) == wanted


@pytest.mark.parametrize("status", [404, 405, 501])
def test_a_server_without_a_list_is_unknown_and_not_down(fake: FakeProvider, status: int) -> None:
    assert listed(fake, json_reply({"error": "no"}, status=status)) == ModelList(listed=False)


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (json_reply({"error": "Unexpected endpoint or method. (GET /models)"}), "E_INVALID_REQUEST"),
        (json_reply({"error": {"message": "bad key"}}, status=401), "E_AUTH"),
        (json_reply({"hello": "world"}), "E_MALFORMED_RESPONSE"),
        (html_reply("<html><title>Sign in</title></html>"), "E_MALFORMED_RESPONSE"),
        (text_reply(""), "E_MALFORMED_RESPONSE"),
        (text_reply("data: {}\n\n", content_type="text/event-stream"), "E_MALFORMED_RESPONSE"),
        (json_reply({}, status=503), "E_PROVIDER"),
    ],
    ids=["200-error", "401", "other-json", "html", "empty", "stream", "503"],
)
def test_what_is_no_list_is_an_error(fake: FakeProvider, reply: Reply, code: str) -> None:
    with pytest.raises(ProviderFailure) as caught:
        listed(fake, reply)
    assert caught.value.code == code


def test_pages_are_followed_to_the_last(fake: FakeProvider) -> None:
    def page(request: Recorded) -> Reply:
        last = request.path.partition("after_id=")[2]
        if not last:
            return json_reply({"data": [{"id": "a"}], "has_more": True, "last_id": "a"})
        return json_reply({"data": [{"id": "b"}], "has_more": False, "last_id": "b"})

    assert listed(fake, page).ids == ("a", "b")


def test_a_list_that_never_ends_is_left(fake: FakeProvider) -> None:
    assert listed(fake, json_reply({"models": [{"name": "a"}], "nextPageToken": "again"})).ids == ("a",)
    assert len(fake.requests) == 2


def test_the_list_is_asked_for_beside_the_completions(fake: FakeProvider) -> None:
    listed(fake, json_reply([]), suffix="/chat/completions/")
    assert (fake.requests[0].method, fake.requests[0].path) == ("GET", "/v1/models")
