"""An OAuth issuer on loopback: its metadata, its published keys, and access tokens signed with them or with others."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat


class Key:
    """One signing key; `public` is what a JWKS holds of it."""

    def __init__(self, kid: str, algorithm: str = "RS256") -> None:
        self.kid = kid
        self.algorithm = algorithm
        self.private: Any = (
            ec.generate_private_key(ec.SECP256R1())
            if algorithm == "ES256"
            else rsa.generate_private_key(public_exponent=65_537, key_size=2048)
        )

    @property
    def public(self) -> dict[str, Any]:
        kind = jwt.algorithms.ECAlgorithm if self.algorithm == "ES256" else jwt.algorithms.RSAAlgorithm
        return json.loads(kind.to_jwk(self.private.public_key())) | {"kid": self.kid, "use": "sig"}

    @property
    def pem(self) -> bytes:
        return self.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def signed(self, claims: dict[str, Any], **header: Any) -> str:
        return jwt.encode(claims, self.private, algorithm=self.algorithm, headers={"kid": self.kid} | header)


class Issuer:
    """Serves itself at `url`; `published` is what its JWKS holds at the moment, `asked` counts who wanted it."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.key = Key("one")
        self.published = [self.key.public]
        self.asked = 0

    def claims(self, audience: str, **changed: Any) -> dict[str, Any]:
        """Good ones; None takes one away."""
        now = int(time.time())
        made = {"iss": self.url, "aud": audience, "sub": "ann", "client_id": "desk", "scope": "agent"}
        made |= {"iat": now, "exp": now + 300} | changed
        return {name: value for name, value in made.items() if value is not None}

    def token(self, audience: str, *, key: Key | None = None, **changed: Any) -> str:
        return (key or self.key).signed(self.claims(audience, **changed))

    def answer(self, path: str) -> dict[str, Any] | None:
        if path == "/keys":
            self.asked += 1
            return {"keys": self.published}
        if path == "/.well-known/openid-configuration":
            return {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
        return None


def unsigned(claims: dict[str, Any]) -> str:
    """`alg: none`, as a forger writes it by hand."""
    parts = [{"alg": "none", "typ": "JWT"}, claims]
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


def confused(key: Key, claims: dict[str, Any]) -> str:
    """HS256 with the public key as the secret: what a library that trusts the header would accept."""
    import hashlib
    import hmac

    parts = [{"alg": "HS256", "typ": "JWT", "kid": key.kid}, claims]
    text = ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    mac = hmac.new(key.pem, text.encode(), hashlib.sha256).digest()
    return text + "." + base64.urlsafe_b64encode(mac).decode().rstrip("=")


@contextmanager
def running_issuer() -> Iterator[Issuer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = issuer.answer(self.path)
            body = json.dumps(found or {}).encode()
            self.send_response(200 if found is not None else 404)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        issuer = Issuer(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield issuer
        finally:
            server.shutdown()
            thread.join()
