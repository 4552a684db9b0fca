"""Where a provider that is not private may be reached."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from core.errors import MeahError
from tests.fake_provider import FakeProvider
from workers.providers.address import Target, targets_of
from workers.providers.base import CompletionRequest, Endpoint, RetryPolicy
from workers.providers.openai import OpenAICompatible

PUBLIC = Endpoint("acme", "https://api.example.com/v1")
PRIVATE = Endpoint("acme", "http://localhost:8000/v1", private=True)


def targets(url: str, endpoint: Endpoint = PUBLIC) -> list[Target]:
    return asyncio.run(targets_of(url, endpoint))


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0x7f000001", "2130706433", "10.0.0.5", "192.168.1.1",
        "172.16.0.1", "169.254.169.254", "0.0.0.0", "100.64.0.1", "[fe80::1]", "[fc00::1]", "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]", "224.0.0.1", "255.255.255.255",
    ],
)  # fmt: skip
def test_an_address_inside_is_refused(host: str) -> None:
    with pytest.raises(MeahError) as caught:
        targets(f"https://{host}/v1/chat/completions")
    assert (caught.value.code, caught.value.reason) == ("E_CONFIG", "private_address")
    assert "MEAH_PROVIDER_ACME_PRIVATE=true" in caught.value.hint


def test_a_public_address_is_connected_to_by_number_under_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve(monkeypatch, ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "93.184.215.14"])
    found = targets("https://api.example.com:8443/v1/chat/completions?v=1")
    assert found == [
        Target("https://93.184.215.14:8443/v1/chat/completions?v=1", "api.example.com:8443", "api.example.com"),
        Target(
            "https://[2606:2800:21f:cb07:6820:80da:af6b:8b2c]:8443/v1/chat/completions?v=1",
            "api.example.com:8443",
            "api.example.com",
        ),
    ]


def test_one_address_inside_among_public_ones_is_enough_to_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve(monkeypatch, ["93.184.215.14", "10.0.0.1"])
    with pytest.raises(MeahError):
        targets("https://api.example.com/v1")


def test_plain_http_is_for_private_providers_only() -> None:
    with pytest.raises(MeahError) as caught:
        targets("http://93.184.215.14/v1")
    assert "not https" in caught.value.message


def test_a_private_provider_may_be_anywhere() -> None:
    assert targets("http://localhost:8000/v1", PRIVATE) == [
        Target("http://localhost:8000/v1", "localhost:8000", "localhost")
    ]


def test_no_packet_reaches_a_server_inside() -> None:
    with FakeProvider() as fake:

        async def ask() -> None:
            provider = OpenAICompatible(Endpoint("acme", fake.base_url))
            with pytest.raises(MeahError) as caught:
                await provider.complete(CompletionRequest("m", [], 10), deadline=1e9, retry=RetryPolicy(0))
            assert caught.value.reason == "private_address"
            await provider.aclose()

        asyncio.run(ask())
        assert fake.requests == []


def resolve(monkeypatch: pytest.MonkeyPatch, addresses: list[str]) -> None:
    """Answer every name with these; no name server is asked."""

    def answer(host: Any, port: Any, *_rest: Any, **_more: Any) -> list[Any]:
        families = (socket.AF_INET6 if ":" in address else socket.AF_INET for address in addresses)
        pairs = zip(families, addresses, strict=True)
        return [(family, socket.SOCK_STREAM, 6, "", (address, port)) for family, address in pairs]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
