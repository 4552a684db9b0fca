"""Two providers to start from, for the admin's form and .env.example. They share neither key nor models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Preset:
    """`model` is empty where it is to be picked from the provider's own list; `note` says what to know."""

    name: str
    label: str
    base_url: str
    api_key_env: str
    model: str
    description: str
    note: str


PRESETS: Final = {
    preset.name: preset
    for preset in (
        Preset(
            name="glm",
            label="Z.AI GLM",
            base_url="https://api.z.ai/api/paas/v4",
            api_key_env="MEAH_GLM_API_KEY",
            model="glm-4.5-air",
            description="GLM models of Z.AI, at their own API.",
            note="Put the key of Z.AI into MEAH_GLM_API_KEY.",
        ),
        Preset(
            name="aicredits",
            label="aicredits",
            base_url="https://aicredits.in/v1",
            api_key_env="MEAH_AICREDITS_API_KEY",
            model="",
            description="Models of many vendors behind one key.",
            note=(
                "Put the key into MEAH_AICREDITS_API_KEY, then pick a model from its list: ids are "
                "vendor/model, such as z-ai/glm-4.7 or openai/gpt-4o-mini."
            ),
        ),
    )
}
