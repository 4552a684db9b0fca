from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.core.management import CommandError, call_command
from django.db import transaction

from approvals import models, policy_import, targets
from approvals.policy import Rule
from approvals.policy_store import columns_of, current
from approvals.shipped import SHIPPED_RULES
from audit.models import Entry
from audit.services import verify
from core.errors import MeahError
from tests.approvals.targets import CountingTarget

pytestmark = pytest.mark.django_db

FILE = """\
version: 1
defaults:
  write: deny
rules:
  - name: puts
    effect: require_approval
    server: box
    tool: put
    conditions:
      - path: amount
        op: gt
        value: 100
    reason: "It is \\u202e money"
    approvals: 2
  - name: meah-tools
    effect: deny
    server: meah
    tool: meah_*
"""


@pytest.fixture(autouse=True)
def box(monkeypatch: pytest.MonkeyPatch) -> CountingTarget:
    target = CountingTarget()
    monkeypatch.setitem(targets._targets, "box", target)
    return target


@pytest.fixture(autouse=True)
def approver() -> User:
    return User.objects.create_superuser("eva")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(FILE)
    return path


def policy(*arguments: Any) -> str:
    out = io.StringIO()
    call_command("policy", *map(str, arguments), stdout=out, no_color=True)
    return out.getvalue()


def refused(*arguments: Any) -> str:
    with pytest.raises(CommandError) as caught:
        policy(*arguments)
    return str(caught.value)


def state() -> tuple[Any, ...]:
    return list(models.Rule.objects.order_by("pk").values()), list(models.ApprovalSettings.objects.values())


def imported() -> list[Any]:
    entries = Entry.objects.filter(kind="policy.imported").order_by("seq")
    return [json.loads(bytes(entry.payload)) for entry in entries]


# -- export and import ----------------------------------------------------------------------------------------------


def test_a_new_installation_has_the_shipped_rules_and_its_export_shows_them() -> None:
    text = policy("export")
    assert text.startswith("# MEAH's policy")
    assert all(f"- name: {rule['name']}\n" in text for rule in SHIPPED_RULES)
    assert "workers[*].permissionProfile" in text


def test_importing_an_export_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    assert policy("export", "--out", path) == f"Written to {path}.\n"
    before = state()
    assert "Nothing to change" in policy("import", path, "--yes")
    assert "Nothing to change" in policy("import", path, "--yes", "--replace")
    assert (state(), imported()) == (before, [])
    assert path.read_text() == policy("export")


def test_an_import_is_shown_first_and_written_only_with_yes(file: Path) -> None:
    before = state()
    shown = policy("import", file)
    assert "Nothing is written yet" in shown
    assert (state(), imported()) == (before, [])
    assert shown.splitlines()[:13] == [
        "changed  defaults",
        "           write: require_approval → deny",
        "changed  rule meah-tools",
        "           effect: allow → deny",
        '           reason: MEAH\'s own tools are bounded by its configuration. → ""',
        '           owner: shipped with MEAH → ""',
        "added    rule puts",
        "           server: box",
        "           tool: put",
        '           conditions: [{"path": "amount", "op": "gt", "value": 100}]',
        "           effect: require_approval",
        "           reason: It is ⟨U+202E⟩ money",
        "           approvals: 2",
    ]
    assert "stays    rule meah-exec-run (the file does not name it)" in shown
    assert "shadowed     rule meah-exec-run" in shown
    assert "no_approver  rule puts: It asks for 2 approvals" in shown

    assert "Written: 3 changed." in policy("import", file, "--yes")
    assert [rule.name for rule in current().rules] == [
        "meah-exec-delegate",
        "meah-exec-parallel",
        "meah-exec-run",
        "meah-tools",
        "puts",
    ]
    assert current().defaults.write == "deny"
    assert current().defaults.read == "allow"
    assert "Nothing to change" in policy("import", file, "--yes")


def test_replace_removes_what_the_file_does_not_name(file: Path) -> None:
    shown = policy("import", file, "--replace")
    assert "removed  rule meah-exec-run" in shown
    assert "stays" not in shown
    policy("import", file, "--replace", "--yes")
    assert sorted(rule.name for rule in current().rules) == ["meah-tools", "puts"]


def test_an_import_is_recorded_with_both_texts(file: Path) -> None:
    before = policy("export").partition("version:")[2]
    policy("import", file, "--yes")
    (entry,) = imported()
    assert (entry["principal"], entry["subject"]) == ("system", "policy")
    data = entry["data"]
    assert data["before"].partition("version:")[2] == before
    assert data["after"].partition("version:")[2] == policy("export").partition("version:")[2]
    assert data["changed"] == ["changed defaults", "changed rule meah-tools", "added rule puts"]
    assert data["policy"] == current().digest
    assert verify().word == "whole"


def test_secrets_that_a_rule_holds_do_not_reach_the_chain(file: Path) -> None:
    key = "sk-ant-api03-" + "a1B2" * 20
    file.write_text(FILE.replace("value: 100", f"value: 100\n      - path: id\n        op: eq\n        value: {key}"))
    policy("import", file, "--yes")
    assert key in policy("export")
    assert key not in json.dumps(imported())


def test_nothing_is_written_when_the_chain_can_not_be(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **options: Any) -> None:
        transaction.set_rollback(True)
        raise MeahError("E_AUDIT")

    before = state()
    monkeypatch.setattr(policy_import, "record", fail)
    assert "E_AUDIT" in refused("import", file, "--yes")
    assert state() == before


def test_a_file_that_is_wrong_changes_nothing_and_names_every_problem(file: Path) -> None:
    file.write_text(FILE.replace("effect: deny", "effect: denied").replace("approvals: 2", "aprovals: 2"))
    before = state()
    told = refused("import", file, "--yes")
    assert told.splitlines() == [
        "E_CONFIG: nothing is changed.",
        "  rules[0].aprovals (line 14) is not known. Did you mean approvals?",
        "  rules[1].effect (line 16) is wrong: it should be 'allow', 'require_approval' or 'deny'.",
    ]
    assert state() == before


def test_files_that_can_not_be_read_or_written_are_named(tmp_path: Path) -> None:
    assert "No such file" in refused("import", tmp_path / "none.yaml")
    assert "No such file" in refused("export", "--out", tmp_path / "none" / "x.yaml")
    assert "Is a directory" in refused("check", tmp_path)


# -- check ----------------------------------------------------------------------------------------------------------


def test_there_is_nothing_to_mend_in_a_new_installation() -> None:
    told = policy("check")
    assert "4 rules, nothing to mend." in told
    assert "box/put is matched by no rule: as write it gets require_approval by default." in told


def test_check_looks_at_a_file_as_it_would_be_after_its_import(file: Path) -> None:
    before = state()
    with pytest.raises(CommandError) as caught:
        policy("check", file)
    assert caught.value.returncode == 1
    assert "to mend" in str(caught.value)
    assert state() == before
    file.write_text("version: 1\nrules:\n  - {name: gets, effect: allow, server: box, tool: get}\n")
    assert "5 rules, nothing to mend." in policy("check", file)


def test_check_counts_the_users_of_a_group_who_can_decide(approver: User) -> None:
    models.Rule.objects.create(**columns_of(Rule("r", "require_approval", server="box", tool="put", group="finance")))
    assert "1 to mend" in refused("check")
    group = Group.objects.create(name="finance")
    member = User.objects.create_user("mia")
    member.groups.add(group)
    assert "1 to mend" in refused("check")
    group.permissions.add(Permission.objects.get(codename="decide_approval"))
    assert "nothing to mend" in policy("check")
    User.objects.filter(username="mia").update(is_active=False)
    assert "1 to mend" in refused("check")
    approver.groups.add(group)
    assert "nothing to mend" in policy("check")


# -- explain --------------------------------------------------------------------------------------------------------


def test_explain_says_the_verdict_the_rule_and_all_that_had_a_say(file: Path, tmp_path: Path) -> None:
    policy("import", file, "--yes")
    models.Rule.objects.create(**columns_of(Rule("ci", "allow", server="box", principal="token:ci")))
    told = policy("explain", "box", "put", '{"amount": 500}')
    assert told.splitlines() == [
        "verdict   require_approval",
        "rule      puts",
        "reason    It is ⟨U+202E⟩ money",
        "approvals 2 of any approvers",
        "decide in 86400 s",
        "class     write, which without a rule gets deny",
        "posture   [policy: deny, require_approval if amount > 100]",
        f"digest    {current().digest}",
        "",
        "matched   puts (require_approval, order 100)",
        "            amount > 100: true",
        "not       ci (allow, order 100)",
        "            it is about the principal token:ci",
    ]
    arguments = tmp_path / "arguments.json"
    arguments.write_text('{"amount": 5}')
    told = policy("explain", "box", "put", f"@{arguments}", "--as", "token:ci")
    assert told.startswith("verdict   allow\nrule      ci\n")
    assert "amount > 100: false" in told


def test_explain_judges_the_arguments_as_the_gate_would() -> None:
    """MEAH's own tools make their defaults explicit, so a call without a profile is no unknown."""
    assert policy("explain", "meah", "meah_run_agent", '{"task": "x"}').startswith("verdict   allow\n")
    tasks = json.dumps({"workers": [{"task": "x"}, {"task": "y", "permissionProfile": "workspace-exec"}]})
    held = policy("explain", "meah", "meah_parallel_agents", tasks)
    assert held.startswith("verdict   require_approval\nrule      meah-exec-parallel\n")


def test_explain_shows_a_destructive_default() -> None:
    told = policy("explain", "box", "drop", "{}")
    assert "rule      default: destructive" in told
    assert "a note is required" in told
    assert "No rule is about this tool." in told


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("bix", "put", "{}"), "Did you mean box put?"),
        (("box", "puts", "{}"), "Did you mean box put?"),
        (("nowhere", "at all", "{}"), "servers tools"),
        (("box", "put", "[1]"), "JSON object"),
        (("box", "put", "{'a': 1}"), "can not be read as JSON"),
        (("box", "put", '{"a": 1, "a": 2}'), "same key twice"),
        (("box", "put", '{"a": NaN}'), "NaN"),
        (("box", "put", "@/nowhere.json"), "No such file"),
        (("box", "put", '{"id": 5}'), "E_INVALID_REQUEST"),
        (("meah", "meah_run_agent", '{"tusk": "x"}'), "E_INVALID_REQUEST"),
    ],
)
def test_explain_says_what_is_wrong_with_the_question(arguments: tuple[str, ...], says: str) -> None:
    assert says in refused("explain", *arguments)
