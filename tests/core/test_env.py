from __future__ import annotations

import os
from pathlib import Path

import pytest

from core.env import load_env_file, read_env_file
from core.errors import MeahError


@pytest.fixture
def env_file(tmp_path: Path) -> Path:
    return tmp_path / "dot.env"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("A=1", {"A": "1"}),
        ("  A = spaced out  ", {"A": "spaced out"}),
        ("export A=1", {"A": "1"}),
        ("export\tA=1", {"A": "1"}),
        ("A=", {"A": ""}),
        ("A=''", {"A": ""}),
        ('A=""', {"A": ""}),
        ("A=b=c==", {"A": "b=c=="}),
        ("A='it is # no comment'", {"A": "it is # no comment"}),
        ('A="it is # no comment" # this is', {"A": "it is # no comment"}),
        ("A=value # a comment", {"A": "value"}),
        ("A=value#no comment", {"A": "value#no comment"}),
        ("A= # only a comment", {"A": ""}),
        ("A=#hash", {"A": ""}),
        (r'A="line\nbreak\ttab \"quoted\" back\\slash \$x"', {"A": 'line\nbreak\ttab "quoted" back\\slash $x'}),
        (r"A='no \n escape'", {"A": r"no \n escape"}),
        (r"A=no\nescape", {"A": r"no\nescape"}),
        ("A=$HOME/${X}", {"A": "$HOME/${X}"}),
        ("A=it's", {"A": "it's"}),
        ("# a comment", {}),
        ("   # another", {}),
        ("", {}),
        ("\ufeffA=1", {"A": "1"}),
        ("A=1\r\nB=2\r\n", {"A": "1", "B": "2"}),
        ("A=1\nA=2", {"A": "2"}),
        ("A=né漢", {"A": "né漢"}),
        ("A=form\x0cfeed\u2028and more", {"A": "form\x0cfeed\u2028and more"}),
    ],
)
def test_lines_are_read_as_shells_would(line: str, found: dict[str, str], env_file: Path) -> None:
    env_file.write_text(line, encoding="utf-8", newline="")
    assert read_env_file(env_file) == found


@pytest.mark.parametrize(
    "line",
    [
        "no sign",
        "=xyz",
        "1A=x",
        "A-B=x",
        "A B=x",
        "export",
        'A="open',
        "A='open",
        "A='a' b",
        'A="a"b',
        "A: x",
        "A=\0",
    ],
)
def test_a_bad_line_is_named_without_its_text(line: str, env_file: Path) -> None:
    env_file.write_text(f"OK=1\n\n{line}\nOK2=hidden-value")
    with pytest.raises(MeahError) as refused:
        read_env_file(env_file)
    assert refused.value.code == "E_CONFIG"
    assert f"{env_file}, line 3" in refused.value.message
    assert line not in refused.value.message.removeprefix(f"{env_file}, line 3")
    assert refused.value.hint


def test_text_that_is_no_utf_8_is_refused(env_file: Path) -> None:
    env_file.write_bytes(b"A=\xff")
    with pytest.raises(MeahError, match="UTF-8"):
        read_env_file(env_file)


def test_variables_that_are_set_win_even_when_empty(env_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env_file.write_text("MEAH_T_NEW=from file\nMEAH_T_SET=from file\nMEAH_T_EMPTY=from file\n")
    monkeypatch.delenv("MEAH_T_NEW", raising=False)
    monkeypatch.setenv("MEAH_T_SET", "set before")
    monkeypatch.setenv("MEAH_T_EMPTY", "")
    assert load_env_file(env_file) == ["MEAH_T_NEW"]
    assert os.environ["MEAH_T_NEW"] == "from file"
    assert os.environ["MEAH_T_SET"] == "set before"
    assert os.environ["MEAH_T_EMPTY"] == ""
    monkeypatch.delenv("MEAH_T_NEW")


def test_a_missing_file_is_an_error_only_when_it_is_required(env_file: Path) -> None:
    assert load_env_file(env_file) == []
    with pytest.raises(MeahError, match="cannot be read"):
        load_env_file(env_file, required=True)
    with pytest.raises(MeahError, match="cannot be read"):
        read_env_file(env_file)


def test_a_bad_file_sets_nothing(env_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEAH_T_NEW", raising=False)
    env_file.write_text("MEAH_T_NEW=x\nbad\n")
    with pytest.raises(MeahError):
        load_env_file(env_file)
    assert "MEAH_T_NEW" not in os.environ
