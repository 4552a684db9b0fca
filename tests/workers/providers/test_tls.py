"""Over TLS: trust, the one redirect that is followed, and handshakes that are given up."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from core.errors import MeahError
from tests.fake_provider import FakeProvider, Reply, chat, text_reply
from tests.workers.providers.asking import KEY, KEY_NAME, ask, endpoint, failure


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate of 127.0.0.1 with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.fixture(scope="module")
def server(certificate: Path) -> Iterator[FakeProvider]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with FakeProvider(tls=context) as running:
        yield running


@pytest.fixture
def trust(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate))


def moved(location: str, status: int = 308) -> Reply:
    return text_reply("", status=status, headers=[("Location", location)])


def test_one_redirect_within_the_same_https_host_is_followed(
    server: FakeProvider, trust: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_NAME, KEY)
    server.reply(moved("/v2/chat/completions"), chat("Hello"))
    done = asyncio.run(ask(endpoint(server, api_key_env=KEY_NAME), tls=trust))
    assert done.text == "Hello"
    assert [request.path for request in server.requests] == ["/v1/chat/completions", "/v2/chat/completions"]
    assert server.requests[1].method == "POST"
    assert server.requests[1].json["model"] == "fake-model"
    assert server.requests[1].headers["authorization"] == f"Bearer {KEY}"


def test_a_second_redirect_is_not_followed(server: FakeProvider, trust: ssl.SSLContext) -> None:
    server.reply(moved("/v2/chat/completions"))
    assert failure(endpoint(server), tls=trust).reason == "redirect"
    assert len(server.requests) == 2


@pytest.mark.parametrize("status", [301, 302, 303])
def test_redirects_that_change_the_method_are_not_followed(
    server: FakeProvider, trust: ssl.SSLContext, status: int
) -> None:
    server.reply(moved("/v2/chat/completions", status))
    assert failure(endpoint(server), tls=trust).reason == "redirect"
    assert len(server.requests) == 1


def test_a_redirect_from_https_to_http_is_not_followed(server: FakeProvider, trust: ssl.SSLContext) -> None:
    with FakeProvider() as plain:
        server.reply(moved(f"{plain.base_url}/chat/completions"))
        assert failure(endpoint(server), tls=trust).reason == "redirect"
        assert plain.requests == []


def test_a_certificate_that_nobody_vouches_for_is_refused(server: FakeProvider) -> None:
    server.requests.clear()
    refused = failure(endpoint(server))
    assert (refused.code, refused.reason, refused.retryable) == ("E_NETWORK", "tls_certificate", False)
    assert server.requests == []


def test_a_handshake_that_is_given_up_closes_its_connection(trust: ssl.SSLContext) -> None:
    closed = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as mute:

        def listen() -> None:
            connection, _ = mute.accept()
            connection.settimeout(10)
            with connection:
                while connection.recv(4096):
                    pass
            closed.set()

        threading.Thread(target=listen, daemon=True).start()

        async def give_up() -> None:
            place = endpoint(None, base_url=f"https://127.0.0.1:{mute.getsockname()[1]}/v1")
            with pytest.raises(MeahError) as caught:
                await ask(place, within_s=0.2, tls=trust)
            assert caught.value.code == "E_TIMEOUT"
            assert await asyncio.to_thread(closed.wait, 5)

        asyncio.run(give_up())
