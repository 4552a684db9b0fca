"""The client as the pool uses it: keys, redirects, retries, settings."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace

import pytest

from tests.fake_provider import (
    DONE,
    Cut,
    FakeProvider,
    Pause,
    Repeat,
    Reply,
    Stall,
    chat,
    chunk,
    json_reply,
    stream_reply,
    text_reply,
)
from tests.workers.providers.asking import KEY, KEY_NAME, LATE_S, NO_RETRY, REQUEST, ask, endpoint, failure
from workers.providers.base import Completion, Endpoint, RetryPolicy
from workers.providers.openai import OpenAICompatible

# Keys


def test_the_key_goes_out_as_a_bearer_token(fake: FakeProvider, key: str) -> None:
    asyncio.run(ask(endpoint(fake, api_key_env=KEY_NAME)))
    assert fake.requests[0].headers["authorization"] == f"Bearer {key}"


def test_the_key_is_read_when_the_call_is_made(fake: FakeProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_NAME, KEY)

    async def change_between() -> None:
        provider = OpenAICompatible(endpoint(fake, api_key_env=KEY_NAME))
        for key in (KEY, "sk-another-0123456789"):
            monkeypatch.setenv(KEY_NAME, key)
            await provider.complete(REQUEST, deadline=time.monotonic() + 5, retry=NO_RETRY)
        await provider.aclose()

    asyncio.run(change_between())
    assert [request.headers["authorization"] for request in fake.requests] == [
        f"Bearer {KEY}",
        "Bearer sk-another-0123456789",
    ]


def test_without_a_variable_no_key_is_sent(fake: FakeProvider) -> None:
    asyncio.run(ask(endpoint(fake)))
    assert "authorization" not in fake.requests[0].headers


def test_an_unset_key_says_where_to_put_it(fake: FakeProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_NAME, raising=False)
    unset = failure(endpoint(fake, api_key_env=KEY_NAME))
    assert (unset.code, unset.reason, unset.retryable) == ("E_CONFIG", "key_unset", False)
    for place in (KEY_NAME, "shell", ".env", "manage.py", '"env"', "claude_desktop_config.json"):
        assert place in unset.hint
    assert fake.requests == []


@pytest.mark.parametrize("bad", ["sk-two words-12345", "sk-line\nbreak-12345", "sk-ключ-12345"])
def test_a_key_that_no_header_can_carry_is_refused_without_showing_it(
    fake: FakeProvider, monkeypatch: pytest.MonkeyPatch, bad: str
) -> None:
    monkeypatch.setenv(KEY_NAME, bad)
    refused = failure(endpoint(fake, api_key_env=KEY_NAME))
    assert (refused.code, refused.reason) == ("E_CONFIG", "key_invalid")
    assert bad not in json.dumps(refused.as_dict(), ensure_ascii=False)
    assert fake.requests == []


ECHOES = [
    json_reply({"error": {"message": f"Incorrect API key provided: {KEY}", "code": KEY, "param": KEY}}, status=401),
    json_reply({"error": f"bad {KEY[:10]}"}, status=400, headers=[("x-request-id", KEY)]),
    text_reply(f"<html><title>{KEY}</title><body>{KEY}</body></html>", status=502),
    text_reply(f"no json {KEY}"),
    json_reply({KEY: 1}),
    text_reply("", status=302, headers=[("Location", f"http://other.example/{KEY}")]),
    stream_reply(f"warming up {KEY}", chunk("x"), {"error": {"message": KEY, "metadata": {"provider_name": KEY}}}),
    stream_reply(chunk("x"), chunk(finish="error"), DONE),
]


@pytest.mark.parametrize("reply", ECHOES, ids=range(len(ECHOES)))
def test_a_server_that_echoes_the_key_does_not_get_it_into_an_error(fake: FakeProvider, key: str, reply: Reply) -> None:
    fake.reply(reply)
    told = failure(endpoint(fake, api_key_env=KEY_NAME))
    assert key not in json.dumps(told.as_dict(), ensure_ascii=False)
    assert key not in str(told)


# Redirects


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_another_place_is_not_followed(fake: FakeProvider, key: str, status: int) -> None:
    with FakeProvider() as other:
        fake.reply(text_reply("", status=status, headers=[("Location", f"{other.base_url}/chat/completions")]))
        refused = failure(endpoint(fake, api_key_env=KEY_NAME))
        assert (refused.code, refused.reason) == ("E_CONFIG", "redirect")
        assert other.base_url in refused.message
        assert other.requests == []


def test_a_redirect_within_plain_http_is_not_followed(fake: FakeProvider) -> None:
    fake.reply(text_reply("", status=308, headers=[("Location", "/v2/chat/completions")]))
    assert failure(endpoint(fake)).reason == "redirect"
    assert len(fake.requests) == 1


# Retries


def test_retries_stop_at_the_limit_and_are_counted(fake: FakeProvider) -> None:
    fake.reply(json_reply({"error": "Busy"}, status=503))
    failed = failure(endpoint(fake), retry=RetryPolicy(2, 1))
    assert failed.details["attempts"] == len(fake.requests) == 3
    assert failed.details["waitedMs"] > 0


def test_a_later_success_tells_its_attempts(fake: FakeProvider) -> None:
    fake.reply(json_reply({"error": "Busy"}, status=503), Reply([Cut()], framing="raw"), chat("Hello"))
    done = asyncio.run(ask(endpoint(fake), retry=RetryPolicy(2, 1)))
    assert (done.text, done.attempts) == ("Hello", 3)
    assert done.waited_ms >= 50


def test_a_wait_past_the_deadline_is_not_slept(fake: FakeProvider) -> None:
    fake.reply(json_reply({"error": "Later"}, status=429, headers=[("Retry-After", "30")]))
    began = time.monotonic()
    failed = failure(endpoint(fake), within_s=5, retry=RetryPolicy(2, 1))
    assert failed.code == "E_RATE_LIMIT"
    assert failed.details["retryAfterSec"] == 30
    assert time.monotonic() - began < 2
    assert len(fake.requests) == 1


def test_a_backoff_past_the_deadline_is_not_slept(fake: FakeProvider) -> None:
    fake.reply(json_reply({"error": {"code": "1302", "message": "Too many"}}, status=429))
    began = time.monotonic()
    failed = failure(endpoint(fake), within_s=5, retry=RetryPolicy(2, 500))
    assert failed.details["retryAfterSec"] >= 30
    assert time.monotonic() - began < 2


def test_nothing_is_retried_after_output_began(fake: FakeProvider) -> None:
    fake.reply(stream_reply(chunk("Hel"), Cut()), chat("Hello"))
    failed = failure(endpoint(fake), retry=RetryPolicy(2, 1))
    assert (failed.code, failed.reason, failed.retryable) == ("E_NETWORK", "truncated", True)
    assert len(fake.requests) == 1


def test_a_closed_port_is_a_network_failure(fake: FakeProvider) -> None:
    with FakeProvider() as gone:
        place = endpoint(gone)
    failed = failure(place, retry=RetryPolicy(1, 1))
    assert (failed.code, failed.reason, failed.retryable) == ("E_NETWORK", "connect", True)
    assert failed.details["attempts"] == 2


def test_a_host_without_an_address_is_a_network_failure(fake: FakeProvider) -> None:
    failed = failure(replace(endpoint(fake), base_url="http://no-such-host.invalid/v1"))
    assert (failed.code, failed.reason) == ("E_NETWORK", "dns")


def test_https_to_a_plain_port_says_so(fake: FakeProvider) -> None:
    place = replace(endpoint(fake), base_url=fake.base_url.replace("http:", "https:"))
    failed = failure(place)
    assert (failed.code, failed.reason) == ("E_NETWORK", "tls")
    assert "http://" in failed.hint


# Settings of the client


def test_proxies_of_the_environment_are_ignored(fake: FakeProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert asyncio.run(ask(endpoint(fake))).text == "Hello"


def test_a_pasted_address_of_the_endpoint_works(fake: FakeProvider) -> None:
    place = replace(endpoint(fake), base_url=fake.base_url + "/chat/completions/")
    assert asyncio.run(ask(place)).text == "Hello"
    assert fake.requests[0].path == "/v1/chat/completions"


def test_a_bad_base_url_is_a_configuration_error() -> None:
    assert failure(Endpoint("x", "api.example.com/v1", private=True)).code == "E_CONFIG"


def test_on_text_hears_the_answer_as_it_comes_and_no_reasoning(fake: FakeProvider) -> None:
    fake.reply(stream_reply(chunk(reasoning="hm"), chunk("<think>so"), chunk("</think>Hel"), Pause(0.05), chunk("lo"),
               chunk(finish="stop"), DONE))  # fmt: skip
    heard: list[tuple[str, float]] = []

    async def listen() -> None:
        provider = OpenAICompatible(endpoint(fake))
        await provider.complete(
            REQUEST,
            deadline=time.monotonic() + 5,
            retry=NO_RETRY,
            on_text=lambda piece: heard.append((piece, time.monotonic())),
        )
        await provider.aclose()

    asyncio.run(listen())
    assert [piece for piece, _ in heard] == ["Hel", "lo"]
    assert heard[1][1] - heard[0][1] > 0.02


def test_nothing_after_the_end_keeps_an_answer_waiting(fake: FakeProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.providers.openai._AFTER_FINISH_S", 0.2)
    fake.reply(stream_reply(chunk("Hello", finish="stop"), Repeat(b": keep-alive\n\n", 0.02)))
    began = time.monotonic()
    assert asyncio.run(ask(endpoint(fake))).text == "Hello"
    assert time.monotonic() - began < LATE_S


def test_an_error_event_ends_the_stream_at_once(fake: FakeProvider) -> None:
    fake.reply(stream_reply({"error": {"message": "Broke", "code": 502}}, Stall()))
    began = time.monotonic()
    assert failure(endpoint(fake)).code == "E_PROVIDER"
    assert time.monotonic() - began < LATE_S


def test_what_a_server_says_about_itself_is_redacted_and_made_visible(fake: FakeProvider, key: str) -> None:
    fake.reply(stream_reply(f"warming {key}", {**chunk("Hello"), "model": key}, chunk(finish=f"x\u202e{key}"), DONE))
    done = asyncio.run(ask(endpoint(fake, api_key_env=KEY_NAME)))
    assert key not in repr(done)
    assert "\u202e" not in repr(done.notes) + str(done.finish_reason_raw)


@pytest.mark.parametrize("host", ["a..b", "x" * 70, "-ü-.example"])
@pytest.mark.parametrize("private", [True, False])
def test_a_host_that_cannot_be_a_name_is_one_of_our_errors(host: str, private: bool) -> None:
    assert failure(Endpoint("x", f"https://{host}.invalid/v1", private=private)).code in ("E_CONFIG", "E_NETWORK")


def test_two_hundred_slow_answers_come_at_once(fake: FakeProvider) -> None:
    fake.delay = 0.5

    async def many() -> list[Completion]:
        provider = OpenAICompatible(endpoint(fake))
        calls = [provider.complete(REQUEST, deadline=time.monotonic() + 30, retry=NO_RETRY) for _ in range(200)]
        try:
            return await asyncio.gather(*calls)
        finally:
            await provider.aclose()

    began = time.monotonic()
    assert {done.text for done in asyncio.run(many())} == {"Hello"}
    assert time.monotonic() - began < 20
