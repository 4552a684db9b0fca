from __future__ import annotations

from typing import Any

import pytest

from core.redaction import holds_secret_value, is_secret_field, redact_value
from tests.core.redaction.conftest import Configure

SECRET_FIELDS = [
    "authorization",
    "Authorization",
    "Proxy-Authorization",
    "cookie",
    "Set-Cookie",
    "cookies",
    "api_key",
    "apikey",
    "apiKey",
    "api-key",
    "X-Api-Key",
    "OPENAI_API_KEY",
    "token",
    "accessToken",
    "csrfmiddlewaretoken",
    "x-amz-security-token",
    "password",
    "userPassword",
    "new_password",
    "passwd",
    "pwd",
    "passphrase",
    "secret",
    "clientSecret",
    "secrets",
    "credential",
    "credentials",
    "private_key",
    "privateKey",
    "AWS_SECRET_ACCESS_KEY",
]
PLAIN_FIELDS = [
    "maxOutputTokens",
    "inputTokens",
    "tokens",
    "max_tokens",
    "tokenCount",
    "token_type",
    "apiKeyEnv",
    "api_key_env",
    "keySet",
    "passwordSet",
    "key",
    "publicKey",
    "idempotencyKey",
    "nextPageToken",
    "progressToken",
    "eos_token",
    "secretName",
    "author",
    "authorized",
    "text",
    "",
]


@pytest.mark.parametrize("name", SECRET_FIELDS)
def test_a_string_under_the_name_of_a_credential_is_replaced(name: str) -> None:
    assert is_secret_field(name)
    clean = redact_value({"a": [{name: "xyz"}]})
    assert clean["a"][0][name].startswith("[redacted:")
    assert redact_value(clean) == clean


@pytest.mark.parametrize("name", PLAIN_FIELDS)
def test_a_string_under_another_name_stays(name: str) -> None:
    assert not is_secret_field(name)
    assert redact_value({name: "xyz"}) == {name: "xyz"}


@pytest.mark.parametrize("kept", [True, False, None, 0, 7, 1.5, "", [], {}])
def test_only_strings_are_replaced_in_secret_fields(kept: Any) -> None:
    assert redact_value({"token": kept}) == {"token": kept}


def test_lists_of_strings_in_secret_fields_are_replaced() -> None:
    value = {"headers": {"Set-Cookie": ["a=b", "c=d"], "Accept": ["x/y"]}}
    assert redact_value(value) == {
        "headers": {"Set-Cookie": ["[redacted:cookie]", "[redacted:cookie]"], "Accept": ["x/y"]}
    }


def test_an_object_in_a_secret_field_is_redacted_by_its_own_names() -> None:
    value = {"password": {"type": "string", "value": "abc"}, "secret": [{"password": "abc"}]}
    assert redact_value(value) == {
        "password": {"type": "string", "value": "abc"},
        "secret": [{"password": "[redacted:password]"}],
    }


def test_keys_and_strings_lose_their_secrets_and_the_original_keeps_them(configured: Configure) -> None:
    configured(MEAH_A_KEY="hidden-value")
    value = {"hidden-value": ["see hidden-value", ("hidden-value",)], "n": 1}
    assert redact_value(value) == {
        "[redacted:MEAH_A_KEY]": ["see [redacted:MEAH_A_KEY]", ["[redacted:MEAH_A_KEY]"]],
        "n": 1,
    }
    assert "hidden-value" in value


def test_no_entry_is_lost_when_two_keys_become_the_same(configured: Configure) -> None:
    configured(MEAH_A_KEY="hidden-value")
    value = {"hidden-value": 1, "hidden%2Dvalue": 2, b"hidden-value".hex(): 3, "x": 4}
    clean = redact_value(value)
    assert sorted(clean.values()) == [1, 2, 3, 4]
    assert "hidden-value" not in str(clean)


def test_a_value_that_nests_too_deep_is_cut_and_not_followed() -> None:
    deep: Any = "end"
    for _ in range(5_000):
        deep = [deep]
    assert "[redacted:too-deep]" in str(redact_value(deep))
    circle: dict[str, Any] = {}
    circle["self"] = circle
    assert "[redacted:too-deep]" in str(redact_value(circle))


def test_bytes_and_sets_lose_their_secrets_too(configured: Configure) -> None:
    configured(MEAH_A_KEY="hidden-value")
    value = {"raw": b"\xff hidden-value", "set": {"hidden-value"}, "token": b"abc"}
    assert redact_value(value) == {
        "raw": "\\xff [redacted:MEAH_A_KEY]",
        "set": ["[redacted:MEAH_A_KEY]"],
        "token": "[redacted:secret]",
    }
    assert holds_secret_value([b"hidden-value"]) == "MEAH_A_KEY"
    assert holds_secret_value({("a", "hidden-value"): 1}) == "MEAH_A_KEY"


def test_circles_and_huge_numbers_are_looked_through(configured: Configure) -> None:
    configured(MEAH_A_KEY="hidden-value")
    circle: list[Any] = [10**6000, 1.5, True, None]
    circle.append(circle)
    assert holds_secret_value(circle) is None
    circle.append("hidden-value")
    assert holds_secret_value(circle) == "MEAH_A_KEY"
