from __future__ import annotations

import random
import time
from pathlib import Path

import django
import pytest

from core.redaction import StreamRedactor, redact, redact_counted
from core.redaction.scan import RULES
from tests.core.redaction.conftest import Configure

HOSTILE_UNITS = [
    *("sk-", "sk-" + "a" * 20, "sk-ant-", "eyJ", "eyJaaaaaaaaaaa-", "eyJ" + "a" * 600, "eyJaaaaaaaaaaaaa.aaaa "),
    *("-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\n+++++++++++++++++"),
    *(
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4\n",
        "password=",
        "password='",
        'password="a',
        "token=",
        "token: x",
    ),
    *(
        "secret=aaaaaaaaaaaa",
        "api_key:",
        "--a",
        "--a-a-a-a-token ",
        "--token aaaaaaaaaaaaaaaa ",
        "://",
        "://a:",
        "://:",
    ),
    *("://aaaaaaaaaaaaaaaaaaaaa:", "://a:bbbbbbbbbb", "AKIA", "AKIAAAAAAAAAAAAAAAAA ", "AKIAAAAAAAAAAAAAAAAA,a", "SG."),
    *("SG.aaaaaaaaaaaaaaaaa.", "a.", "0123456789abcdef0123456789abcdef.", "123456789:A", "authorization: basic "),
    *("bearer ", "cookie:", "cookie: a=", "Set-Cookie: a=bbbbbbb;", "-u a:bbbbb ", "[redacted:", "\\n", '\\\\"', "="),
    *(
        'password\\\\\\"',
        "password = string = ",
        "page_token=",
        "AccountKey=",
        "meah_",
        "meah_aaaaaaaaaaaaaaaaaaaaaaaaa ",
    ),
    *(
        "hooks.slack.com/",
        "hf_",
        "PASSWORD=",
        "PASSWORD=a",
        "TOKEN=$(",
        "password:'\\",
        "+",
        "A",
        "-",
        "_",
        " ",
        "é",
        "\n",
    ),
]


@pytest.mark.parametrize("unit", HOSTILE_UNITS)
def test_a_hostile_text_takes_linear_time(unit: str) -> None:
    redact("password='warm up 1!' eyJaaaaaaaaaaaaaaaaaaaaaa")
    short, long = (_seconds_of((unit * (size // len(unit) + 1))[:size]) for size in (15_000, 60_000))
    assert long < 1.5
    # Quadratic would be sixteenfold; what takes next to no time cannot be compared.
    assert long < 0.1 or long < short * 11


def _seconds_of(text: str) -> float:
    started = time.process_time()
    redact(text)
    return time.process_time() - started


def test_a_hostile_stream_takes_bearable_time() -> None:
    started = time.monotonic()
    for unit in ("token=", "eyJ", "-u a:bbbbb ", "://a:", "aaaaaaaaaaaa"):
        stream = StreamRedactor()
        for start in range(0, 20_000, 50):
            stream.feed((unit * 20_000)[start : start + 50])
        stream.flush()
    assert time.monotonic() - started < 15


def _clean_text() -> str:
    """About two megabytes of code, hashes, ids, logs and prose without a secret."""
    rng = random.Random(39)
    root = Path(django.__file__).parent
    code = "".join(path.read_text() for path in sorted(root.glob("db/**/*.py")))[:1_200_000]
    script = "".join(path.read_text() for path in sorted(root.glob("contrib/admin/static/admin/js/**/*.min.js")))
    hashes = "\n".join(f"{rng.getrandbits(256):064x}  dist/file-{number}.whl" for number in range(3_000))
    ids = "\n".join(
        f'{{"id": "{rng.getrandbits(80):020x}", "etag": "{rng.getrandbits(128):032x}"}}' for _ in range(2_000)
    )
    logs = "\n".join(
        f"2026-01-01T00:00:{number % 60:02}Z INFO http://127.0.0.1:7817/api/v1/workers?limit={number} 200 in {number}ms"
        for number in range(3_000)
    )
    return "\n".join((code, script, hashes, ids, logs))


def test_clean_text_is_left_alone_at_speed(configured: Configure) -> None:
    configured(MEAH_A_KEY="some-configured-value", MEAH_B_KEY="another/configured value")
    text = _clean_text()
    assert len(text) > 1_500_000
    redact(text)
    started = time.perf_counter()
    clean, count = redact_counted(text)
    took = time.perf_counter() - started
    assert count <= len(text) // 100_000
    assert count or clean is text
    # 20 MB/s, five times over.
    assert len(text) / took > 4_000_000


def test_every_rule_has_a_name_that_can_stand_in_a_replacement() -> None:
    assert all(rule.name.replace("-", "").isalnum() for rule in RULES if rule.name)
    assert len({rule.name for rule in RULES}) >= 25
