"""Base URLs as people paste them."""

from __future__ import annotations

import pytest

from core.errors import MeahError
from workers.providers.url import chat_url, models_url, normal_base, shown


@pytest.mark.parametrize(
    ("pasted", "base"),
    [
        ("https://api.example.com/v1", "https://api.example.com/v1"),
        ("https://api.example.com/v1/", "https://api.example.com/v1"),
        ("  https://api.example.com/v1//  ", "https://api.example.com/v1"),
        ("https://api.example.com/v1/chat/completions", "https://api.example.com/v1"),
        ("https://api.example.com/v1/chat/completions/", "https://api.example.com/v1"),
        ("https://api.example.com/v1/Chat/Completions", "https://api.example.com/v1"),
        ("https://api.example.com/v1/models", "https://api.example.com/v1"),
        ("https://api.z.ai/api/paas/v4", "https://api.z.ai/api/paas/v4"),
        ("https://g.example.com/v1beta/openai/", "https://g.example.com/v1beta/openai"),
        ("HTTPS://api.example.com", "https://api.example.com"),
        ("http://localhost:8000/v1#top", "http://localhost:8000/v1"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
        (
            "https://a.example.com/openai/x?api-version=2024-02-01",
            "https://a.example.com/openai/x?api-version=2024-02-01",
        ),
    ],
)
def test_a_base_url_is_normalised_once_and_for_all(pasted: str, base: str) -> None:
    assert normal_base(pasted) == base
    assert normal_base(normal_base(pasted)) == base
    assert normal_base(chat_url(pasted)) == base


def test_the_called_addresses_keep_the_query_behind_the_path() -> None:
    assert chat_url("https://a.example.com/x?v=1") == "https://a.example.com/x/chat/completions?v=1"
    assert models_url("https://a.example.com/v1/chat/completions") == "https://a.example.com/v1/models"


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("api.example.com/v1", "https://api.example.com/v1"),
        ("localhost:8000/v1", "http://localhost:8000/v1"),
        ("//api.example.com/v1", "https://api.example.com/v1"),
        ("ftp://api.example.com/v1", "no http:// or https://"),
        ("file:///etc/passwd", "no http:// or https://"),
        ("https://", "no valid host"),
        ("https:///v1", "no valid host"),
        ("https://user:secret@api.example.com/v1", "user name or password"),
        ("https://user@api.example.com/v1", "user name or password"),
        ("https://api.example.com:99999/v1", "not valid"),
        ("https://api.example.com:0/v1", "no valid host and port"),
        ("https://api.example.com:abc/v1", "not valid"),
        ("https://[::1/v1", "not valid"),
        ("https://api example.com/v1", "space"),
        ("https://api.example.com/v1\nHost: x", "control character"),
        ("https:\\\\api.example.com", "backslash"),
    ],
)
def test_a_bad_base_url_is_refused_with_the_way_out(bad: str, word: str) -> None:
    with pytest.raises(MeahError) as caught:
        normal_base(bad)
    assert caught.value.code == "E_CONFIG"
    assert word in caught.value.message + caught.value.hint
    assert "secret" not in str(caught.value.as_dict())


def test_a_shown_url_has_no_password_and_no_query() -> None:
    assert shown("https://u:p@api.example.com/v1?key=abc#x") == "https://api.example.com/v1"
    assert shown("https://[::1/") == "an invalid URL"
