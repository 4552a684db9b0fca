"""An issuer's public keys: fetched when they are first needed, again when an unknown one turns up, and now and then."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import jwt

from core.addresses import is_local_name
from core.canonical import StrictDecodeError, strict_loads
from core.errors import JsonObject, MeahError
from core.logs import event

log = logging.getLogger("meah.http")

FRESH_S: Final = 300.0
# An issuer that does not answer is bridged by its last known keys for this long.
USABLE_S: Final = 3600.0
# Unknown key ids are for anybody to make up: they must not become requests to the issuer.
ASK_EVERY_S: Final = 10.0
WITHIN_S: Final = 5.0
MAX_BYTES: Final = 1_000_000
MAX_KEYS: Final = 100
TYPES: Final = ("RSA", "EC", "OKP")
CURVES: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512", "Ed25519": "EdDSA"}


class IssuerKeys:
    """The keys of one issuer, by their ids."""

    def __init__(self, issuer: str, jwks_url: str = "") -> None:
        self._issuer = issuer
        self._url = jwks_url
        self._keys: list[JsonObject] = []
        self._fetched = self._asked = float("-inf")
        self._lock = asyncio.Lock()

    async def find(self, key_id: Any, algorithm: str) -> jwt.PyJWK | None:
        """The key for a token's header; None where there is none. Raises MeahError E_NETWORK without any keys."""
        if (found := self._known(key_id, algorithm)) is not None and self._age() < FRESH_S:
            return found
        async with self._lock:
            if (found := self._known(key_id, algorithm)) is None or self._age() >= FRESH_S:
                await self._ask()
                found = self._known(key_id, algorithm)
        if self._age() >= USABLE_S:
            raise MeahError("E_NETWORK", "The issuer's keys can not be read at the moment.")
        return found

    def _known(self, key_id: Any, algorithm: str) -> jwt.PyJWK | None:
        """Without an id in the token: the only key that fits, where there is just one."""
        fitting = [key for key in self._keys if _fits(key, algorithm)]
        if key_id is not None:
            fitting = [key for key in fitting if key.get("kid") == key_id]
        return _usable(fitting[0], algorithm) if len(fitting) == 1 else None

    def _age(self) -> float:
        return time.monotonic() - self._fetched

    async def _ask(self) -> None:
        if time.monotonic() - self._asked < ASK_EVERY_S:
            return
        self._asked = time.monotonic()
        try:
            self._url = self._url or await self._discovered()
            self._keys = _public_keys(await _fetched(self._url))
            self._fetched = time.monotonic()
        except (httpx.HTTPError, MeahError, OSError) as error:
            event(log, "issuer_keys_not_read", level="warn", issuer=self._issuer, why=str(error) or repr(error))

    async def _discovered(self) -> str:
        """By RFC 8414, or by OpenID's older place."""
        parts = urlsplit(self._issuer)
        base, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
        places = (
            f"{base}/.well-known/oauth-authorization-server{path}",
            f"{base}{path}/.well-known/openid-configuration",
        )
        for place in places:
            try:
                found = await _fetched(place)
            except (httpx.HTTPError, MeahError):
                continue
            if found.get("issuer") == self._issuer and isinstance(found.get("jwks_uri"), str):
                return str(found["jwks_uri"])
        raise MeahError("E_CONFIG", "The issuer publishes no metadata that name it and its keys.")


def check_url(url: str) -> None:
    """Raises MeahError E_CONFIG unless it is https, or http on this very machine."""
    parts = urlsplit(url)
    local = parts.scheme == "http" and is_local_name(parts.hostname or "")
    if not (parts.scheme == "https" or local) or not parts.hostname or parts.username is not None:
        raise MeahError(
            "E_CONFIG", f"{url[:200]!r} is no https address.", hint="Correct it; http is for this machine alone."
        )


async def _fetched(url: str) -> JsonObject:
    """A JSON object from there: no redirects, no proxy of the environment, bounded in time and size."""
    check_url(url)
    async with (
        httpx.AsyncClient(timeout=WITHIN_S, trust_env=False, follow_redirects=False) as client,
        asyncio.timeout(2 * WITHIN_S),
        client.stream("GET", url, headers={"accept": "application/json"}) as response,
    ):
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MAX_BYTES:
                raise MeahError("E_NETWORK", "the answer is too large")
        if response.status_code != 200:
            raise MeahError("E_NETWORK", f"it answered with HTTP {response.status_code}")
    try:
        found = strict_loads(bytes(body))
    except StrictDecodeError as error:
        raise MeahError("E_NETWORK", f"it answered with something else than JSON: {error}") from error
    if not isinstance(found, dict):
        raise MeahError("E_NETWORK", "it answered with something else than an object")
    return found


def _public_keys(jwks: JsonObject) -> list[JsonObject]:
    """Those that are for signatures; a symmetric one is no public key."""
    listed = jwks.get("keys")
    keys = listed[:MAX_KEYS] if isinstance(listed, list) else []
    return [key for key in keys if isinstance(key, dict) and key.get("kty") in TYPES and key.get("use", "sig") == "sig"]


def _fits(key: JsonObject, algorithm: str) -> bool:
    """By the key's own word where it has one, else by what such a key can sign: an RSA key any of its family."""
    if key.get("alg"):
        return bool(key["alg"] == algorithm)
    if key["kty"] == "RSA":
        return algorithm[:2] in ("RS", "PS")
    return CURVES.get(str(key.get("crv"))) == algorithm


def _usable(key: JsonObject, algorithm: str) -> jwt.PyJWK | None:
    try:
        return jwt.PyJWK(key, algorithm)
    except jwt.PyJWTError:
        return None
