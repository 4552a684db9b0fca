from __future__ import annotations

import pytest

from core import secrets
from core.secrets import name_secrets, named_secrets, read_secret, secret_values


@pytest.fixture(autouse=True)
def no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_named", set())


@pytest.mark.parametrize(
    ("value", "read"), [("abc", "abc"), ("  abc \n", "abc"), ("", None), ("   ", None), ("a b", "a b")]
)
def test_a_secret_is_read_without_the_space_around_it(
    value: str, read: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEAH_T_KEY", value)
    assert read_secret("MEAH_T_KEY") == read


def test_an_unset_variable_has_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEAH_T_KEY", raising=False)
    assert read_secret("MEAH_T_KEY") is None


def test_only_named_variables_that_are_set_have_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEAH_T_A", "a")
    monkeypatch.setenv("MEAH_T_UNNAMED", "u")
    monkeypatch.delenv("MEAH_T_B", raising=False)
    name_secrets(["MEAH_T_A", "MEAH_T_B", ""])
    name_secrets(["MEAH_T_A"])
    assert named_secrets() == {"MEAH_T_A", "MEAH_T_B"}
    assert secret_values() == {"MEAH_T_A": "a"}
