"""A fake provider as the only one configured, by the environment."""

from __future__ import annotations

from tests.fake_provider import FakeProvider, Reply, Stall, stream_reply


def environ(fake: FakeProvider, **more: str) -> dict[str, str]:
    return {"MEAH_PROVIDER_FAKE_BASE_URL": fake.base_url, "MEAH_PROVIDER_FAKE_MODEL": "fake-model", **more}


def silent() -> Reply:
    """Takes the request, begins an answer and says nothing more."""
    return stream_reply(Stall())
