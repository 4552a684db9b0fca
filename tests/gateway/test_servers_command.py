"""`manage.py servers`, with real children and a real database."""

from __future__ import annotations

import io
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command

from approvals import tokens
from audit.models import Entry
from gateway.models import GatewaySettings, Server, Tool
from tests.gateway.support import RAW

OBJECT = {"type": "object"}


def servers(*arguments: str) -> tuple[str, str, int]:
    out, err, status = io.StringIO(), io.StringIO(), 0
    try:
        call_command("servers", *arguments, stdout=out, stderr=err)
    except SystemExit as ended:
        status = int(ended.code or 0)
    return out.getvalue(), err.getvalue(), status


def write(path: Path, **entries: Any) -> str:
    path.write_text(json.dumps({"mcpServers": entries}))
    return str(path)


def entry(*options: str, **more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(RAW), *options], **more}


def token(scope: str = "operate") -> str:
    user = get_user_model()._default_manager.create_superuser("olga", password="x")
    return tokens.create(name="t", user=user, scopes=[scope], expires_at=None, principal="system")[1]


def test_an_import_shows_everything_first_and_applies_with_yes(home: Any, tmp_path: Path) -> None:
    file = write(
        tmp_path / "a.mcp.json",
        crm=entry(meah={"exposure": "direct", "prefix": ""}, extra=1),
        broken=entry("--die-at-start"),
        unset=entry(env={"KEY": "${NO_SUCH_VARIABLE_EVER}"}),
        meah=entry(),
    )
    out, _, status = servers("import", file)
    assert status == 1
    assert "echo" in out and "readOnlyHint=True" in out and "unknown and left out: extra" in out
    assert "no such database" in out, "the end of stderr"
    assert "env.KEY refers to ${NO_SUCH_VARIABLE_EVER}" in out
    assert "MEAH's own" in out
    assert "Nothing was changed" in out
    assert not Server.objects.exists()

    out, _, status = servers("import", file, "--yes", "--exposure", "lazy")
    assert "Applied: crm, broken, unset." in out
    rows = {server.name: server for server in Server.objects.all()}
    assert [(rows[name].exposure, rows[name].state) for name in ("crm", "broken", "unset")] == [
        ("direct", "idle"),
        ("lazy", "failed"),
        ("lazy", "failed"),
    ]
    classes = dict(Tool.objects.filter(server=rows["crm"]).values_list("name", "effect_class"))
    assert (classes["echo"], classes["seen"], classes["delete"]) == ("read", "write", "destructive")
    kinds = list(Entry.objects.values_list("kind", flat=True))
    assert kinds.count("server.added") == 3
    assert kinds.count("tool.pinned") == len(classes)


def test_a_second_import_pins_nothing_new_by_itself(home: Any, tmp_path: Path) -> None:
    file = tmp_path / "tools.json"
    file.write_text(json.dumps([{"name": "get", "inputSchema": OBJECT}]))
    config = write(tmp_path / "a.mcp.json", crm=entry("--tools", str(file)))
    assert servers("import", config, "--yes", "--exposure", "direct")[2] == 0
    assert servers("import", config, "--yes")[2] == 0
    assert Server.objects.get().exposure == "direct", "what was chosen stays"
    file.write_text(json.dumps([{"name": "get", "description": "x", "inputSchema": OBJECT}]))
    out, _, _ = servers("import", config, "--yes")
    assert "changed, to be accepted" in out
    assert Tool.objects.get().pin_state == "quarantined"


def test_an_import_waits_as_long_and_starts_as_many_as_is_set(home: Any, tmp_path: Path) -> None:
    GatewaySettings.objects.create(pk=1, start_timeout_s=1, starts_at_once=2)
    silent = {f"silent{number}": entry("--silent") for number in range(4)}
    begun = time.monotonic()
    out, _, status = servers("import", write(tmp_path / "a.mcp.json", **silent))
    assert status == 1 and out.count("not started") == 4
    assert 2 <= time.monotonic() - begun < 20, "two at a time, a second each"


def test_bare_names_that_collide_are_refused(home: Any, tmp_path: Path) -> None:
    bare = {"exposure": "direct", "prefix": ""}
    file = write(tmp_path / "a.mcp.json", one=entry(meah=bare), two=entry(meah=bare), three=entry())
    out, _, status = servers("import", file, "--yes", "--exposure", "direct")
    assert status == 1
    assert "would be listed like" in out
    assert list(Server.objects.values_list("name", flat=True)) == ["three"]


def test_changes_are_refreshed_shown_and_accepted_by_a_person(home: Any, tmp_path: Path, monkeypatch: Any) -> None:
    file = tmp_path / "tools.json"
    get = {"name": "get", "description": "Gets.", "inputSchema": OBJECT}
    file.write_text(json.dumps([get]))
    servers("import", write(tmp_path / "a", crm=entry("--tools", str(file))), "--yes", "--exposure", "direct")
    odd = {"name": "odd", "inputSchema": {"type": "int"}}
    file.write_text(
        json.dumps([get | {"description": "Gets \x1b[2J\u2066."}, {"name": "new", "inputSchema": OBJECT}, odd])
    )
    out, _, status = servers("refresh", "crm")
    assert status == 1 and "3 quarantined" in out and "To be accepted: new" in out
    file.write_text(json.dumps([get | {"description": "Gets and more."}, {"name": "new", "inputSchema": OBJECT}, odd]))
    servers("refresh", "crm")

    out, err, status = servers("accept", "crm", "--show")
    assert "-description: Gets." in out and "+description: Gets and more." in out
    assert "odd can not be accepted" in err
    _, err, status = servers("accept", "crm")
    assert status == 1 and "MEAH_TOKEN" in err, "nobody is authenticated"
    monkeypatch.setenv("MEAH_TOKEN", token())
    out, _, status = servers("accept", "crm", "get")
    assert status == 0 and "Accepted crm/get" in out
    assert Tool.objects.get(name="get").accepted_by == "user:olga"
    assert Tool.objects.get(name="new").pin_state == "quarantined"
    assert servers("accept", "crm", "nope")[2] == 1
    assert servers("accept", "crm", "new", "--class", "destructive")[2] == 0
    assert Tool.objects.get(name="new").effect_class == "destructive"


def test_lists_say_posture_rule_class_and_pin_and_show_what_hides(home: Any, tmp_path: Path) -> None:
    file = tmp_path / "tools.json"
    evil = {"name": "evil\x1b[2J", "inputSchema": OBJECT}
    read = {"name": "read", "inputSchema": OBJECT, "annotations": {"readOnlyHint": True}}
    file.write_text(json.dumps([read, evil]))
    out, _, _ = servers(
        "import", write(tmp_path / "a", crm=entry("--tools", str(file))), "--yes", "--exposure", "direct"
    )
    assert "\x1b" not in out and "⟨U+001B⟩" in out
    out, _, _ = servers("tools")
    assert "crm/read" in out and "allow" in out and "\x1b" not in out
    found = {tool["tool"]: tool for tool in json.loads(servers("tools", "crm", "--json")[0])}
    assert found["read"]["posture"] == "allow" and found["read"]["class"] == "read"
    assert found["read"]["rule"] == "default: read" and found["read"]["pinState"] == "accepted"
    assert found["evil\x1b[2J"]["pinState"] == "quarantined"
    assert servers("mark", "crm", "read", "write")[2] == 0
    assert "require_approval" in servers("tools", "crm")[0]
    assert json.loads(servers("list", "--json")[0])[0]["quarantined"] == 1
    assert "crm" in servers("list")[0]


def test_an_export_can_be_imported_again(home: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("CRM_KEY", "the-secret-in-the-environment")
    crm = entry(env={"KEY": "${CRM_KEY}"}, meah={"exposure": "direct", "prefix": "", "writeDefault": "deny"})
    servers("import", write(tmp_path / "a", crm=crm), "--yes")
    out, _, _ = servers("export")
    assert "the-secret-in-the-environment" not in out
    assert json.loads(out)["mcpServers"]["crm"] == crm
    (tmp_path / "b").write_text(out)
    before = Entry.objects.count()
    assert servers("import", str(tmp_path / "b"), "--yes")[2] == 0
    assert Entry.objects.count() == before, "nothing changed"


@pytest.mark.parametrize(
    "arguments", [("import", "/no/such/file"), ("refresh", "x"), ("tools", "x"), ("accept", "x"), ("export", "x")]
)
def test_mistakes_are_told_without_a_traceback(home: Any, arguments: tuple[str, ...]) -> None:
    out, err, status = servers(*arguments)
    assert status == 1
    assert err and "Traceback" not in out + err
