"""What children get to see of MEAH's environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.errors import MeahError
from core.redaction import redact
from gateway.environment import ALLOWED, child_environment
from tests.gateway.support import pool_of, raw


def test_a_child_sees_the_allowlist_and_what_was_declared_and_nothing_else(
    run: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    for name in ("LD_PRELOAD_X", "PYTHONSTARTUP", "GIT_SSH_COMMAND", "BASH_ENV", "OPENAI_API_KEY", "MEAH_TOKEN"):
        monkeypatch.setenv(name, "poison")
    monkeypatch.setenv("INHERITED", "yes")
    monkeypatch.setenv("CRM_SECRET", "the-secret-of-the-crm")
    monkeypatch.setenv("SHELL", "() { :; }; echo vulnerable")
    launch = raw(env=(("KEY", "id:${CRM_SECRET}"), ("MODE", "test")), inherit_env=("INHERITED", "NOT_THERE"))

    async def scenario() -> dict[str, str]:
        async with pool_of(tmp_path) as pool:
            return dict((await (await pool.connection(launch).open()).call("env", {}))["structuredContent"])

    seen = run(scenario())
    assert seen.keys() <= ALLOWED | {"KEY", "MODE", "INHERITED", "_MEAH_CHILD", "LC_CTYPE"}
    assert (seen["KEY"], seen["MODE"], seen["INHERITED"]) == ("id:the-secret-of-the-crm", "test", "yes")
    assert "PATH" in seen
    assert "SHELL" not in seen
    assert redact("the-secret-of-the-crm") == "[redacted:CRM_SECRET]"


@pytest.mark.parametrize("value", ["${NOT_SET_AT_ALL}", "x${NOT_SET_AT_ALL}y", "${NOT_SET_AT_ALL:-z}", "${}", "${1}"])
def test_a_reference_that_does_not_resolve_names_its_field(value: str) -> None:
    with pytest.raises(MeahError) as failed:
        child_environment(raw(env=(("KEY", value),)), {})
    assert failed.value.code == "E_CONFIG"
    assert "env.KEY" in failed.value.message


def test_a_dollar_alone_is_text() -> None:
    assert child_environment(raw(env=(("PRICE", "$5 $HOME"),)), {}) == {"PRICE": "$5 $HOME"}


def from_the_vault(name: str) -> str | None:
    return {"VAULTED": "kept-in-the-vault"}.get(name)


def test_a_secret_provider_is_asked_for_what_the_environment_does_not_have(monkeypatch: Any) -> None:
    monkeypatch.setenv("MEAH_SECRET_PROVIDER", f"{__name__}.from_the_vault")
    assert child_environment(raw(env=(("KEY", "${VAULTED}"),)), {}) == {"KEY": "kept-in-the-vault"}
    assert redact("kept-in-the-vault") == "[redacted:VAULTED]"
    with pytest.raises(MeahError):
        child_environment(raw(env=(("KEY", "${NOT_IN_IT}"),)), {})
    monkeypatch.setenv("VAULTED", "the environment wins")
    assert child_environment(raw(env=(("KEY", "${VAULTED}"),)), {}) == {"KEY": "the environment wins"}


@pytest.mark.parametrize("path", ["nowhere.at_all", "json.loads", "os"])
def test_a_secret_provider_that_does_not_work_says_so(monkeypatch: Any, path: str) -> None:
    monkeypatch.setenv("MEAH_SECRET_PROVIDER", path)
    with pytest.raises(MeahError) as failed:
        child_environment(raw(env=(("KEY", "${SOMETHING_SECRET}"),)), {})
    assert failed.value.code == "E_CONFIG"
