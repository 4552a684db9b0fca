from __future__ import annotations

import json
import random
import re
import string

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.redaction import looks_like_key, redact
from core.redaction.rules import Rule
from core.redaction.scan import RULES
from tests.core.redaction.fakes import ALNUM, FORMATS, chars, jwt, pem

SURROUNDINGS = [
    "{}",
    "the key is {} as agreed",
    '"{}"',
    '{{"k": "{}"}}',
    "X={}\n",
    "- value: {}",
    "`{}`",
    "<{}>",
    "2026-01-01 ERROR [{}] failed",
    "https://h/p?x={}&y=1",
    "('{}')",
    "line\\n{}\\nline",
    "a%20{}",
    "ends here: {}.",
    "a,{},b",
    "é{}漢",
]


def _leaks(secret: str, text: str) -> bool:
    """Whether any eight characters of it in a row are left."""
    plain = text.replace("\n", "")
    secret = secret.replace("\n", "")
    return any(secret[start : start + 8] in plain for start in range(len(secret) - 7))


def _secret_part(name: str, made: str) -> str:
    if name == "z.ai":
        return made.partition(".")[2]
    if name.startswith("private key"):
        return "\n".join(made.split("\n")[1:-1])
    return made


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_found_wherever_it_stands(name: str) -> None:
    rng = random.Random(name)
    for surrounding in SURROUNDINGS * 2:
        made = FORMATS[name](rng)
        text = surrounding.format(made)
        clean = redact(text)
        assert not _leaks(_secret_part(name, made), clean), text
        assert clean.startswith(surrounding.partition("{")[0][:3])
        assert redact(clean) == clean
        assert looks_like_key(text)


@pytest.mark.parametrize("name", [name for name in FORMATS if name.startswith("private key")])
def test_a_private_key_is_found_in_json_and_in_code(name: str) -> None:
    made = FORMATS[name](random.Random(1))
    inner = made.split("\n")
    for text in (json.dumps(made), json.dumps(json.dumps(made)), "".join(f'"{line}\\n"\n    ' for line in inner)):
        clean = redact(text)
        assert not any(line[:16] in clean for line in inner[1:-2])
        assert clean.count("[redacted:private-key]") == 1


def test_a_private_key_that_is_cut_off_is_found() -> None:
    made = pem(random.Random(2), lines=8)
    cut = made[:300]
    assert redact(f"{cut}\n\nThe file goes on.") == "[redacted:private-key]\n\nThe file goes on."


def test_a_short_fake_of_a_private_key_is_found() -> None:
    assert redact("-----BEGIN PRIVATE KEY-----\nabc123def\n-----END PRIVATE KEY-----") == "[redacted:private-key]"


def test_an_encrypted_private_key_goes_with_its_headers() -> None:
    begin, *rest = pem(random.Random(3)).split("\n")
    text = "\n".join([begin, "Proc-Type: 4,ENCRYPTED", "DEK-Info: AES-256-CBC,00FF", "", *rest])
    assert redact(f"a\n{text}\nb") == "a\n[redacted:private-key]\nb"


def test_the_frame_of_a_private_key_alone_stays() -> None:
    code = 'BEGIN = b"-----BEGIN OPENSSH PRIVATE KEY-----"\nEND = b"-----END OPENSSH PRIVATE KEY-----"\n'
    assert redact(code) == code


def test_an_aws_secret_is_found_beside_its_key_id() -> None:
    rng = random.Random(4)
    key, secret = "AK" + "IA" + chars(rng, 16, string.ascii_uppercase), chars(rng, 40, ALNUM + "+/")
    for text in (f"{key},{secret}", f'("{key}", "{secret}")', f"id={key} key={secret}", f"Key: {key} Secret: {secret}"):
        clean = redact(text)
        assert key not in clean
        assert secret not in clean
        assert clean.count("[redacted:aws-key]") == 2


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.slack." + "com/services/T0123ABCD/B0123ABCD/{}",
        "https://discord." + "com/api/webhooks/123456789012345678/{}",
    ],
)
def test_webhooks_are_found(url: str) -> None:
    secret = chars(random.Random(5), 24)
    assert secret not in redact(f"post to {url.format(secret)} please")


def test_an_azure_connection_string_keeps_its_other_parts() -> None:
    secret = chars(random.Random(6), 86) + "=="
    text = f"DefaultEndpointsProtocol=https;AccountName=x;AccountKey={secret};EndpointSuffix=core.example"
    assert redact(text) == text.replace(secret, "[redacted:azure-key]")


@pytest.mark.parametrize(
    "text",
    [
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "id 123e4567-e89b-12d3-a456-426614174000 and w_0123456789abcdef0123",
        "integrity sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
        "meah_list_models meah_cleanup_workspace meah_parallel_agents",
        "the task-force asks risk-averse disk-images of sk-learn",
        ".sk-fading-circle-with-some-more-words {",
        "eyJ is how base64 of JSON begins, eyJhbGciOi and so on",
        "eyJub3QiOiJhIGhlYWRlciJ9.eyJub3QiOiJhIHRva2VuIn0.c2lnbmF0dXJl",
        "d41d8cd98f00b204e9800998ecf8427e.chunk.js",
        "12:34:56:78 1700000000:info AKIA is a prefix, AKIAEXAMPLE",
        "ghp_short npm_config_registry hf_hub_download xai-grok gsk_",
        "github_pat_ and glpat- and xoxb- are prefixes",
        "SG.x SK-1234 SKU0123456789",
        "-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIUQ\n-----END CERTIFICATE-----",
        "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE\n-----END PUBLIC KEY-----",
    ],
)
def test_text_that_only_looks_alike_stays(text: str) -> None:
    assert redact(text) == text
    assert not looks_like_key(text)


@pytest.mark.parametrize("count", [15, pytest.param(400, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rule", RULES, ids=[f"{rule.name or 'no secret'}-{i}" for i, rule in enumerate(RULES)])
def test_a_rule_begins_with_the_bytes_it_says_and_is_held_back_by_a_stream(rule: Rule, count: int) -> None:
    """Were a first byte missing, the rule would never be asked; were `open` too narrow, a stream would let go of it."""
    opened = re.compile(rule.open.replace(r"\z", r"\Z").encode())

    @settings(max_examples=count, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.from_regex(re.compile(rule.start.encode()), fullmatch=True))
    def holds(found: bytes) -> None:
        assert chr(found[0]).lower() in rule.first
        assert opened.match(found)

    holds()


def test_a_token_takes_the_rest_of_its_word_along() -> None:
    token = jwt(random.Random(7))
    assert redact(f"{token}_and-more") == "[redacted:jwt]"
    assert redact(f"{token}. Then prose.") == "[redacted:jwt]. Then prose."
