"""Redirects: one is followed where it changes nothing that matters, all others are explained."""

from __future__ import annotations

import contextlib
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit

from core.errors import MeahError
from workers.providers.failures import Asked
from workers.providers.network import redirect_failure
from workers.providers.url import normal_base, shown

_METHOD_KEPT: Final = (307, 308)


def followed(status: int, location: str, url: str, asked: Asked) -> str:
    """The URL to ask instead. Raises ProviderFailure E_CONFIG where it is not to be asked."""
    try:
        target = urljoin(url, location)
        if location and status in _METHOD_KEPT and _is_same_place(urlsplit(url), urlsplit(target)):
            return target
    except ValueError:
        target = ""
    raise redirect_failure(status, _shown_base(target) if location else "", asked)


def _is_same_place(old: SplitResult, new: SplitResult) -> bool:
    return (
        old.scheme == new.scheme == "https"
        and old.hostname == new.hostname
        and (old.port or 443) == (new.port or 443)
        and "@" not in new.netloc
    )


def _shown_base(target: str) -> str:
    with contextlib.suppress(MeahError):
        return shown(normal_base(target))
    return shown(target)
