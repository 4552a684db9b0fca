from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from core.redaction import StreamRedactor, redact
from core.redaction.stream import MAX_HELD_BYTES
from tests.core.redaction.conftest import Configure
from tests.core.redaction.fakes import ALNUM, FORMATS, chars, jwt, pem

MAX_REACH_BYTES = 768

RNG = random.Random(38)
TEXTS: dict[str, str] = {
    **{name: f"See {make(RNG)} and 'so' on.\n" for name, make in FORMATS.items()},
    "a configured value": "It is hidden/välue, or hidden%2Fv%C3%A4lue, or aGlkZGVuL3bDpGx1ZQ== indeed.",
    "an assignment": 'password: str = "hunter2hunter" and token = "abc123def456" end',
    "a cursor": 'nextPageToken\\": \\"abc123def456ghi\\" and token\\": \\"abc123def456ghi\\"',
    "a header": "Authorization: Bearer abcdef0123456789abcdef\nCookie: a=b1c2d3e4; f=g\n",
    "a URL": "go to postgres://app:s3cr3t-pass@db/x or https://x/y:z@w or ://",
    "options": "run --db-password hunter2x --0-token abc123def456 -u me:pa55word --help",
    "an environment": "export A_TOKEN=abc123def456\nPASSWORD=x1y2z3w4 SECRET_KEY_BASE=0123456789abcdef",
    "replacements": "password=[redacted:MEAH_A_KEY] [redacted:jwt] [redacted:",
    "prose": "The password and the token are secrets. Bearer of news: sk- eyJ -----BEGIN AKIA://",
    "not ASCII": "é漢😀" * 30 + " password=hunter2hunter é\ud800漢",
    "a private key in JSON": pem(RNG).replace("\n", "\\n") + '", "x": 1}',
    "two in a row": f"{jwt(RNG)}{pem(RNG)}{jwt(RNG)}",
    "a broken private key": pem(RNG)[:250] + "\nand so on",
}


def _streamed(text: str, sizes: Callable[[], int]) -> str:
    stream = StreamRedactor()
    pieces = []
    position = 0
    while position < len(text):
        size = sizes()
        pieces.append(stream.feed(text[position : position + size]))
        position += size
    return "".join([*pieces, stream.flush()])


@pytest.fixture
def one_value(configured: Configure) -> None:
    configured(MEAH_A_KEY="hidden/välue", MEAH_B_KEY="aaaabaaaabaaaac")


@pytest.mark.usefixtures("one_value")
@pytest.mark.parametrize("name", TEXTS)
def test_a_text_cut_anywhere_gives_what_the_whole_gives(name: str) -> None:
    text = TEXTS[name]
    whole = redact(text)
    for cut in range(1, len(text)):
        stream = StreamRedactor()
        assert stream.feed(text[:cut]) + stream.feed(text[cut:]) + stream.flush() == whole, cut
    for size in (1, 2, 3, 5, 8, 13, 21, 34, 64):
        assert _streamed(text, lambda size=size: size) == whole, size


_PIECES: list[Callable[[random.Random], str]] = [
    *FORMATS.values(),
    *(lambda rng, text=text: text for text in TEXTS.values()),
    *(
        lambda rng, text=text: text
        for text in (
            *("password", "passwd", "token", "secret", "api_key", "page_token", "Authorization", "Bearer ", "Basic "),
            *("Cookie", "=", ": ", " = ", '": "', "':'", '\\": \\"', '"', "'", "\\n", "\n", " ", "%20", "(", ")", "["),
            *("]", "[redacted:", "[redac", "<", ">", "&", ";", "://", "https://user:", "@", "@host/", "--", "-u ", ":"),
            *("--db-password ", "/", ".", "-", "_", "é漢", "\ud800", "...", "${", "}", "hunter2xyz", " string = ", "s"),
            *(": str = ", "PASSWORD=", "SECRET_KEY_BASE=", "%3D", "=>", "bearer%20", "eyJ", "-----BEGIN ", "sk-", "::"),
            *(
                "-----BEGIN PRIVATE KEY-----",
                "-----END PRIVATE KEY-----",
                "Proc-Type: 4,ENCRYPTED",
                "AKIA",
                "aaaabaaaab",
            ),
            *("aaaabaaaabaaaac", "hidden/välue", "hidden%2Fv%C3%A4lue"),
        )
    ),
    lambda rng: chars(rng, rng.randint(1, 4)),
    lambda rng: chars(rng, rng.randint(4, 60)),
    lambda rng: chars(rng, rng.randint(100, 500), ALNUM + "+/"),
]


@pytest.mark.usefixtures("one_value")
@pytest.mark.parametrize("count", [150, pytest.param(5_000, marks=pytest.mark.slow)])
def test_streams_are_exact_and_redaction_is_stable_on_mixtures(count: int) -> None:
    rng = random.Random(39)
    for _ in range(count):
        pool = rng.choices(_PIECES, k=8) if rng.random() < 0.5 else _PIECES
        text = "".join(rng.choice(pool)(rng) for _ in range(rng.randint(1, 20)))
        whole = redact(text)
        assert redact(whole) == whole
        longest = rng.choice([1, 5, 20, 100, 1000])
        assert _streamed(text, lambda longest=longest: rng.randint(1, longest)) == whole


def test_prose_comes_out_word_by_word() -> None:
    stream = StreamRedactor()
    shown = fed = ""
    for word in ("The ", "password ", "of ", "this ", "token ", "bucket ", "is ", "a ", "secret, ", "they ", "say. "):
        shown += stream.feed(word)
        fed += word
        assert len(fed) - len(shown) <= 12
    assert shown + stream.flush() == fed


def test_what_is_held_back_is_bounded() -> None:
    stream = StreamRedactor()
    fed = shown = 0
    for _ in range(2_000):
        piece = "token = x, https://h/ " * 3
        fed += len(piece)
        shown += len(stream.feed(piece))
        assert fed - shown <= MAX_REACH_BYTES + len(piece)


@pytest.mark.parametrize(
    ("begin", "unit", "end"),
    [
        ("see ", "eyJhbGciOiJIUzI1NiJ9." + "a" * 80, " end."),
        ("see sk-" + "ant-", "0123456789abcdef", " end."),
        ('password = "', "hunter2hunter", '" end.'),
        ("Cookie: a=b1c2d3e4", "; x=0123456789", "\nend."),
    ],
)
def test_a_credential_of_a_megabyte_is_swallowed_in_little_memory(begin: str, unit: str, end: str) -> None:
    stream = StreamRedactor()
    pieces = [stream.feed(begin)]
    for _ in range(1_000_000 // (len(unit) * 50)):
        pieces.append(stream.feed(unit * 50))
        assert len(stream._patterns._held) <= MAX_HELD_BYTES + len(unit) * 50 + MAX_REACH_BYTES
    pieces += [stream.feed(end), stream.flush()]
    clean = "".join(pieces)
    assert clean.count("[redacted:") == 1
    assert clean.endswith("end.")
    assert len(clean) < 100
    if unit.startswith("eyJ"):
        return
    repeated = 1_000_000 // (len(unit) * 50) * 50
    assert clean == redact(begin + unit * repeated + end)


def test_a_private_key_of_a_megabyte_never_appears() -> None:
    text = f"a {pem(random.Random(40), lines=15_000)} b"
    clean = _streamed(text, lambda: 997)
    assert clean == "a [redacted:private-key] b"
    assert redact(text) == clean


def test_an_empty_stream_is_empty() -> None:
    stream = StreamRedactor()
    assert stream.feed("") == ""
    assert stream.flush() == ""
