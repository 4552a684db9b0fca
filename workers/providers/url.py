"""Base URLs as people paste them, made into the two addresses that are called."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import SplitResult, parse_qsl, urlsplit, urlunsplit

from core.errors import MeahError
from core.redaction import is_secret_field

_PASTED_ENDINGS: Final = ("/chat/completions", "/completions", "/models")
_KEY_NAMES: Final = frozenset({"key", "sig", "signature", "auth", "access_key"})
_EXAMPLE: Final = "https://api.example.com/v1"
_LOCAL_HOST: Final = re.compile(r"(localhost|127\.|\[?::1|0\.0\.0\.0|host\.docker\.internal)", re.IGNORECASE)


def normal_base(base_url: str) -> str:
    """The base URL without a pasted endpoint or trailing slash; a query (Azure's api-version) is kept.

    Raises MeahError E_CONFIG when it has no http(s) scheme or host, or carries a user name or password.
    """
    parts = _checked(base_url.strip())
    path = _without_ending(parts.path)
    return urlunsplit((parts.scheme.lower(), parts.netloc, path, parts.query, ""))


def chat_url(base_url: str) -> str:
    return _joined(base_url, "/chat/completions")


def models_url(base_url: str) -> str:
    return _joined(base_url, "/models")


def shown(url: str) -> str:
    """The URL as errors may show it: no user name, password, query or fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "an invalid URL"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _joined(base_url: str, ending: str) -> str:
    parts = urlsplit(normal_base(base_url))
    return urlunsplit(parts._replace(path=parts.path + ending))


def _without_ending(path: str) -> str:
    path = path.rstrip("/")
    for ending in _PASTED_ENDINGS:
        if path.lower().endswith(ending):
            return path[: -len(ending)].rstrip("/")
    return path


def _checked(base_url: str) -> SplitResult:
    if not base_url:
        raise _invalid("The base URL is empty.", f"Give the provider a base URL such as {_EXAMPLE}.")
    if re.search(r"[\x00-\x20\x7f\\]", base_url):
        raise _invalid("The base URL holds a space, a backslash or a control character.", f"Write it as {_EXAMPLE}.")
    if not re.match(r"https?://", base_url, re.IGNORECASE):
        raise _invalid("The base URL has no http:// or https:// in front.", _scheme_hint(base_url))
    return _checked_host(base_url)


def _checked_host(base_url: str) -> SplitResult:
    try:
        parts = urlsplit(base_url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _invalid("The base URL's host or port is not valid.", f"Write it as {_EXAMPLE}.") from None
    if "@" in parts.netloc:
        raise _invalid(
            "The base URL carries a user name or password.",
            "Take it out of the URL; put the key into a variable and name that in apiKeyEnv.",
        )
    if secret := [name for name, _ in parse_qsl(parts.query) if name.lower() in _KEY_NAMES or is_secret_field(name)]:
        raise _invalid(
            f"The base URL carries a key in its query ({secret[0]}).",
            "Take it out of the URL; put the key into a variable and name that in apiKeyEnv.",
        )
    if not host or port == 0:
        raise _invalid("The base URL has no valid host and port.", f"Write it as {_EXAMPLE}.")
    return parts


def _scheme_hint(base_url: str) -> str:
    if "@" in base_url or "?" in base_url:
        return f"Write it as {_EXAMPLE}."
    rest = base_url.split("://", 1)[-1].lstrip("/")
    scheme = "http" if _LOCAL_HOST.match(rest) else "https"
    return f"Write it as {scheme}://{rest}"


def _invalid(message: str, hint: str) -> MeahError:
    return MeahError("E_CONFIG", message, hint=hint, reason="base_url")
