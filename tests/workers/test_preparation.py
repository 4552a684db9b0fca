"""From a task's fields to what is sent: routes, redaction, refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.errors import MeahError
from core.secrets import name_secrets
from workers.preparation import prepare, refuse_key_shaped, refuse_secrets
from workers.routing import AllowedCommand, Config, Limits, ProviderConfig, RouteConfig, TerminalConfig
from workers.schemas import TaskIn, parse
from workers.terminal import probes, sandbox

KEY_SHAPED = "sk-" + "a1B2c3D4" * 5
VALUE = "correct-horse-battery-staple"


def task(**fields: Any) -> TaskIn:
    return parse(TaskIn, {"task": "Look."} | fields)


def config(**limits: Any) -> Config:
    return Config(
        providers={"glm": ProviderConfig("glm", "https://glm.example/v1", model="glm-5")},
        routes={"coder": RouteConfig("coder", max_output_tokens=4_000, temperature=0.25, system_prompt="You code.")},
        limits=Limits(**limits),
    )


def test_a_task_takes_its_route_from_its_role_and_its_limits_from_the_settings() -> None:
    plain = prepare(task(), config(timeout_ms=9_000))
    assert (plain.choice.provider.name, plain.choice.model, plain.timeout_ms) == ("glm", "glm-5", 9_000)
    assert (plain.choice.max_output_tokens, plain.choice.temperature) == (2_048, None)
    coder = prepare(task(role="coder", timeoutMs=500), config(timeout_ms=9_000))
    assert (coder.choice.max_output_tokens, coder.choice.temperature, coder.timeout_ms) == (4_000, 0.25, 500)
    assert coder.prompt.messages[0]["content"].startswith("You code.")
    own = prepare(task(role="coder", maxOutputTokens=10, temperature=0), config())
    assert (own.choice.max_output_tokens, own.choice.temperature) == (10, 0)


def test_key_shaped_text_is_replaced_in_the_material_and_counted() -> None:
    prepared = prepare(
        task(
            task=f"Why is {KEY_SHAPED} refused?",
            context=[KEY_SHAPED, {"name": "a.txt", "content": KEY_SHAPED}],
            constraints=[f"Never print {KEY_SHAPED}."],
        ),
        config(),
    )
    assert prepared.redactions == 4
    everything = repr(prepared) + repr(prepared.as_dry_run())
    assert KEY_SHAPED not in everything


@pytest.mark.parametrize("field", ["label", "expectedOutput", "provider", "model", "commands"])
def test_key_shaped_text_anywhere_else_is_refused(field: str) -> None:
    # A provider's name is too short for a whole key.
    shaped = KEY_SHAPED[:32]
    with pytest.raises(MeahError) as caught:
        prepare(task(**{field: [shaped] if field == "commands" else shaped}), config())
    assert caught.value.code == "E_PERMISSION" and field in caught.value.message
    assert shaped not in caught.value.message + caught.value.hint


def test_the_refusal_of_a_key_names_the_field() -> None:
    refuse_key_shaped(reason="no longer wanted")
    with pytest.raises(MeahError, match="reason"):
        refuse_key_shaped(reason=KEY_SHAPED)


@pytest.mark.parametrize(
    "arguments",
    [
        {"task": f"use {VALUE}"},
        {"context": [{"name": "x", "content": VALUE}]},
        {VALUE: 1},
        {"task": "Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5LXN0YXBsZQ=="},
        {"workers": [{"task": "x"}, {"constraints": [[VALUE]]}]},
    ],
    ids=["task", "context", "key", "base64", "deep"],
)
def test_the_value_of_a_configured_key_is_refused_wherever_it_stands(
    arguments: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEAH_TEST_PREPARATION_KEY", VALUE)
    name_secrets(["MEAH_TEST_PREPARATION_KEY"])
    refuse_secrets({"task": "harmless"})
    with pytest.raises(MeahError) as caught:
        refuse_secrets(arguments)
    assert caught.value.code == "E_PERMISSION" and "MEAH_TEST_PREPARATION_KEY" in caught.value.message
    assert VALUE not in caught.value.message


def test_context_over_the_budget_is_cut_and_the_record_says_so() -> None:
    items = [{"name": f"{number}.txt", "content": "x" * 2_000} for number in range(3)]
    prepared = prepare(task(context=items), config(max_context_chars=3_500))
    assert prepared.prompt.context_truncated and prepared.prompt.dropped_context == ("2.txt",)
    assert prepared.as_dry_run()["droppedContext"] == ["2.txt"]
    # The whole material is kept: a rerun under a wider budget needs it.
    assert [len(item.content) for item in prepared.context] == [2_000] * 3
    with pytest.raises(MeahError) as caught:
        prepare(task(task="x" * 4_000), config(max_context_chars=3_500))
    assert caught.value.code == "E_CONTEXT_LIMIT"


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "C:\\x", "a/../../b", "NUL", "a\x07b"])
def test_a_context_name_that_leads_out_is_refused_where_files_are_made(name: str) -> None:
    items = [{"name": name, "content": "x"}]
    with pytest.raises(MeahError) as caught:
        prepare(task(context=items), config())
    assert caught.value.code == "E_PATH_ESCAPE"
    assert prepare(task(context=items, permissionProfile="none"), config()).permission_profile == "none"


def test_commands_are_refused_with_what_they_need() -> None:
    with pytest.raises(MeahError) as refused:
        prepare(task(commands=["ls"]), config())
    assert refused.value.code == "E_PERMISSION"
    assert "workspace-exec" in refused.value.hint and "terminal.enabled" in refused.value.hint
    with pytest.raises(MeahError) as off:
        prepare(task(permissionProfile="workspace-exec"), config())
    assert (off.value.code, off.value.reason) == ("E_PERMISSION", "terminal_disabled")


def with_commands(**values: Any) -> Config:
    terminal = TerminalConfig(enabled=True, allowlist=(AllowedCommand("/bin/ls", None),), **values)
    return replace(config(), terminal=terminal)


def test_commands_that_are_allowed_become_argument_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "missing", lambda: "")
    asked = task(commands=["ls -l", ["ls"]], permissionProfile="workspace-exec")
    assert prepare(asked, with_commands()).commands == [["/bin/ls", "-l"], ["/bin/ls"]]
    for commands, reason in ((["cat x"], "command_refused"), (["ls"] * 6, "too_many_commands")):
        with pytest.raises(MeahError) as refused:
            prepare(task(commands=commands, permissionProfile="workspace-exec"), with_commands())
        assert (refused.value.code, refused.value.reason) == ("E_PERMISSION", reason)


def test_what_is_allowed_has_to_be_there_and_outside_of_the_workspaces(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sandbox, "missing", lambda: "")
    root = tmp_path / "workspaces"
    (root / "w").mkdir(parents=True)
    (root / "w" / "tool").write_text("#!/bin/sh")
    (root / "w" / "tool").chmod(0o700)
    (tmp_path / "link").symlink_to(root / "w" / "tool")
    (tmp_path / "plain").write_text("no program")
    for path, why in (
        (root / "w" / "tool", "within the workspaces"),
        (tmp_path / "link", "within the workspaces"),
        (tmp_path / "nothing", "is not there"),
        (tmp_path / "plain", "is not there or can not be executed"),
        (tmp_path, "is not there"),
    ):
        terminal = TerminalConfig(enabled=True, allowlist=(AllowedCommand(str(path), None),))
        asked = task(commands=[str(path)], permissionProfile="workspace-exec")
        with pytest.raises(MeahError) as wrong:
            prepare(asked, replace(config(workspace_root=str(root)), terminal=terminal))
        assert (wrong.value.code, wrong.value.reason) == ("E_CONFIG", "allowlist") and why in wrong.value.message


def test_a_sandbox_that_was_found_open_is_refused_before_a_person_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "missing", lambda: "")
    monkeypatch.setattr(probes, "known", lambda: "the sandbox lets through: TCP")
    with pytest.raises(MeahError) as unsafe:
        prepare(task(commands=["ls"], permissionProfile="workspace-exec"), with_commands())
    assert unsafe.value.code == "E_SANDBOX_UNAVAILABLE" and "TCP" in unsafe.value.message


def test_without_a_sandbox_commands_are_refused_unless_the_operator_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "missing", lambda: "bubblewrap (bwrap) is not installed")
    asked = task(commands=["ls"], permissionProfile="workspace-exec")
    with pytest.raises(MeahError) as unsafe:
        prepare(asked, with_commands())
    assert unsafe.value.code == "E_SANDBOX_UNAVAILABLE" and "bubblewrap" in unsafe.value.message
    monkeypatch.setenv(sandbox.UNSANDBOXED, "true")
    assert prepare(asked, with_commands()).commands == [["/bin/ls"]]


def test_a_dry_run_shows_all_that_would_be_sent() -> None:
    shown = prepare(task(context=["material"], temperature=1.5), config()).as_dry_run()
    assert set(shown) == {
        "dryRun",
        "provider",
        "model",
        "maxOutputTokens",
        "temperature",
        "timeoutMs",
        "messages",
        "contextTruncated",
        "droppedContext",
        "redactions",
        "commands",
    }
    assert shown["dryRun"] is True and shown["temperature"] == 1.5
    assert "material" in shown["messages"][1]["content"] and "BEGIN UNTRUSTED" in shown["messages"][1]["content"]
