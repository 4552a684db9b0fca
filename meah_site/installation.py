"""Which installation this is: how two processes find out that they belong together."""

from __future__ import annotations

from django.utils.crypto import salted_hmac

_SALT = "meah_site.installation"


def installation_id() -> str:
    """The same in every process of one MEAH_HOME, another elsewhere; tells nothing about the secret key."""
    return salted_hmac(_SALT, "installation", algorithm="sha256").hexdigest()[:20]
