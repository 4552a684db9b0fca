from __future__ import annotations

import json
import logging
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core import secrets
from core.logs import configure, event
from tests.core.redaction.fakes import FORMATS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def own_handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


def _lines(captured: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in captured.splitlines()]


def test_a_line_is_one_json_object_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info")
    logging.getLogger("meah.test").warning("two\nlines of %s", "text", extra={"workerId": "w_1"})
    out, err = capsys.readouterr()
    assert out == ""
    [line] = _lines(err)
    assert line.pop("ts").endswith("Z")
    assert line == {"level": "warn", "logger": "meah.test", "message": "two\nlines of text", "workerId": "w_1"}


def test_an_event_has_its_name_and_fields(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info")
    event(logging.getLogger("meah"), "server_ready", port=7817, tools=["a", "b"], message="kept apart")
    event(logging.getLogger("meah"), "not shown", level="debug")
    [line] = _lines(capsys.readouterr().err)
    assert line["event"] == line["message"] == "server_ready"
    assert line["port"] == 7817
    assert line["tools"] == ["a", "b"]
    assert line["message_"] == "kept apart"


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        ("debug", ["debug", "info", "warn", "error"]),
        ("info", ["info", "warn", "error"]),
        ("warn", ["warn", "error"]),
        ("error", ["error"]),
        ("silent", []),
    ],
)
def test_a_level_shows_itself_and_what_is_worse(
    level: str, shown: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    configure("info")
    configure(level)
    logger = logging.getLogger("meah.levels")
    for number in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
        logger.log(number, "x")
    assert [line["level"] for line in _lines(capsys.readouterr().err)] == shown


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="debug, info, warn, error, silent"):
        configure("verbose")


def test_no_secret_gets_out_by_any_way(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEAH_LOGGED_KEY", "configured/value")
    monkeypatch.setattr(secrets, "_named", {"MEAH_LOGGED_KEY"})
    token = FORMATS["github classic"](random.Random(1))
    configure("debug")
    logger = logging.getLogger("meah.leaks")
    logger.info("key %s and %s", "configured/value", token)
    logger.info(
        "fields", extra={"authorization": "abc", "nested": {"x": [token], "Cookie": "a"}, token: "configured/value"}
    )
    try:
        raise RuntimeError(f"failed with configured/value and {token}")
    except RuntimeError as error:
        logger.exception("caught", extra={"error": error})
    event(logger, "done", url="https://u:configured%2Fvalue@h/", raw=token.encode(), apiKeyEnv="MEAH_LOGGED_KEY")
    err = capsys.readouterr().err
    assert token not in err
    assert "configured/value" not in err
    assert "configured%2Fvalue" not in err
    lines = _lines(err)
    assert lines[1]["authorization"] == "[redacted:authorization]"
    assert lines[1]["nested"]["Cookie"] == "[redacted:cookie]"
    assert lines[2]["exception"].startswith("Traceback")
    assert "RuntimeError: failed with [redacted:MEAH_LOGGED_KEY] and [redacted:github-token]" in lines[2]["exception"]
    assert lines[3]["apiKeyEnv"] == "MEAH_LOGGED_KEY"


class _Breaks:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class _Loops:
    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.values["self"] = self.values


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1, 2},
        b"\xff\x00",
        float("nan"),
        float("-inf"),
        10**5000,
        "\ud800 lone",
        Path("/x"),
        _Breaks(),
        _Loops().values,
        {("a", 1): {None: ValueError("x")}},
    ],
    ids=lambda value: type(value).__name__,
)
def test_nothing_that_is_logged_raises_or_breaks_the_line(value: object, capsys: pytest.CaptureFixture[str]) -> None:
    configure("info")
    logger = logging.getLogger("meah.odd")
    event(logger, "odd", value=value)
    logger.info("%s", value)
    logger.info("too few %s %s", value)
    logger.info(value)
    err = capsys.readouterr().err
    assert err.isascii()
    lines = _lines(err)
    assert len(lines) == 4
    assert all(line["level"] == "info" for line in lines)
    assert "NaN" not in err.replace('"nan"', "")


def test_a_long_text_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info")
    logging.getLogger("meah").info("x" * 1_000_000)
    [line] = _lines(capsys.readouterr().err)
    assert len(line["message"]) < 40_000
    assert line["message"].endswith("(1000000 characters)")


def test_warnings_are_logged_too() -> None:
    code = "import warnings; from core.logs import configure; configure('warn'); warnings.warn('mind the gap')"
    done = _run(code)
    assert done.stdout == ""
    [line] = _lines(done.stderr)
    assert line["logger"] == "py.warnings"
    assert "mind the gap" in line["message"]


def test_a_closed_stderr_is_no_error() -> None:
    code = (
        "import logging, sys; from core.logs import configure; configure('info');"
        "sys.stderr.close(); logging.getLogger('x').error('lost'); sys.stderr = None;"
        "logging.getLogger('x').error('lost'); print('alive')"
    )
    assert _run(code).stdout == "alive\n"


def _run(code: str) -> subprocess.CompletedProcess[str]:
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environ)
