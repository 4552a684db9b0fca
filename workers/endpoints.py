"""From a configured provider to the client that talks to it."""

from __future__ import annotations

from workers.providers.base import Endpoint, Provider
from workers.routing import ProviderConfig


def provider_for(config: ProviderConfig) -> Provider:
    """A client of its own for one use; the caller closes it."""
    if config.kind == "mock":
        from workers.providers.mock import MockProvider

        return MockProvider()
    # Imported late: httpx is no part of the server's start-up.
    from workers.providers.openai import OpenAICompatible

    return OpenAICompatible(
        Endpoint(config.name, config.base_url, api_key_env=config.api_key_env, private=config.private)
    )
