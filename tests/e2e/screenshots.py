"""Makes docs/screenshots/: `python -m tests.e2e.screenshots`. The real console, with invented work.

The providers are a fake one on loopback under the names and addresses of real ones, so that nothing leaves the machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.e2e.consoles import ROOT, Console, chromium
from tests.fake_provider import (
    DONE,
    FakeProvider,
    Pause,
    Recorded,
    Reply,
    chunk,
    json_reply,
    stream_reply,
    usage,
    usage_chunk,
)
from tests.fake_provider import answer as whole_answer

OUT = ROOT / "docs" / "screenshots"
VIEWPORT = {"width": 1280, "height": 860}
DONE_WITHIN_S = 60

ADDRESSES = {"glm": "https://api.z.ai/api/paas/v4", "aicredits": "https://aicredits.in/v1"}
ENVIRONMENT = {
    "MEAH_GLM_API_KEY": "an-invented-key-for-glm",
    "MEAH_AGENT": "claude",
    "MEAH_MAX_CONCURRENT": "6",
    "MEAH_PROVIDER_WORKSTATION_DESCRIPTION": "Qwen on the workstation under the desk",
    "MEAH_PROVIDER_WORKSTATION_MODEL": "qwen3-coder-30b",
}

REVIEW = """\
## Result

Two defects, both reachable from `import_rows`.

1. `importer.py:88` - a row whose `amount` is an empty string becomes `0`, not "missing".
   Scenario: an export with one blank cell. The monthly total is right, the average is not.
2. `importer.py:131` - the file is closed before the generator that reads it has run.
   Scenario: `list(import_rows(path))` works, `next(import_rows(path))` raises ValueError.

## Assumptions

- Rows come from the CSV export shown in export.csv; other dialects were not supplied.

## Open questions

- Is an empty amount allowed at all? If not, the import should stop there and name the line.
"""
SUMMARY = """\
## Result

Release 4.2 changes three things for operators: sessions last 8 hours instead of 14 days, the queue table
gains an index (about 40 s of migration per million rows), and `--legacy-auth` is gone. It does not change the API.

## Assumptions

None.

## Open questions

- The notes do not say whether running jobs survive the migration.
"""
SURVEY = [
    "## Result\n\nOf the four queue libraries supplied, two fit: they keep jobs in PostgreSQL, and need no broker.\n\n",
    "- [supplied: notes.md] The first claims jobs with SKIP LOCKED and has run here since March without a lost job.\n",
    "- [supplied: notes.md] The second polls once a second, which the team measured as 3 % of the database's load.\n",
    "- [background] Both are maintained by few people; ",
]


def asked(request: Recorded) -> str:
    return " ".join(str(message["content"]) for message in request.json["messages"])


def answer(request: Recorded) -> Reply:
    """What the invented model says, by what it was asked."""
    text = asked(request)
    if "four queue libraries" in text:
        steps: list[Any] = [chunk(role="assistant", content="")]
        for piece in SURVEY:
            steps += [Pause(0.4), chunk(piece)]
        return stream_reply(*steps, Pause(600), usage_chunk(usage(3_950, 240)), DONE)
    if "importer.py" in text:
        return after(5.2, said(request, REVIEW, usage(2_871, 342)))
    if "flaky" in text:
        return json_reply({"error": {"message": "All upstream providers failed", "code": 502}}, status=502)
    return after(2.1, said(request, SUMMARY, usage(1_644, 171)))


def said(request: Recorded, text: str, counted: dict[str, Any]) -> Reply:
    return json_reply(whole_answer(text, usage=counted) | {"model": request.json["model"]})


def after(seconds: float, reply: Reply) -> Reply:
    return replace(reply, head_pause=seconds)


MODELS = json_reply({"object": "list", "data": [{"id": name} for name in ("glm-4.5-air", "glm-4.6", "glm-5.3")]})

HELLO: list[dict[str, Any]] = [
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "claude-code", "version": "2.1"},
        },
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "meah_list_models", "arguments": {}}},
]
IMPORTER = "def import_rows(path):\n    with open(path) as file:\n        return parse(file)\n"
TASKS: list[dict[str, Any]] = [
    {"task": "Summarise the notes of release 4.2 for operators.", "role": "summarizer", "label": "Release notes 4.2"},
    {"task": "List the breaking changes only.", "role": "summarizer", "provider": "aicredits", "model": "z-ai/glm-4.7"},
    {"task": "Find out why test_checkout is flaky.", "role": "debugger", "label": "Flaky checkout test"},
    {"task": "Write a changelog entry for the importer fix.", "role": "coder", "provider": "workstation"},
    {
        "task": "Review importer.py for real defects. Each with a scenario that fails.",
        "role": "reviewer",
        "label": "Review of the importer",
        "context": [{"name": "importer.py", "content": IMPORTER}, {"name": "export.csv", "content": "id,amount\n1,\n"}],
        "constraints": ["No remarks on style."],
        "expectedOutput": "Numbered list, most serious first.",
    },
]
LAST: dict[str, Any] = {
    "task": "Compare the four queue libraries in notes.md and recommend one.",
    "role": "researcher",
    "label": "Queue libraries",
    "context": [{"name": "notes.md", "content": "...\n" * 200}],
    "timeoutMs": 600_000,
}


@contextmanager
def filled_console(home: Path) -> Iterator[Console]:
    with FakeProvider() as fake:
        fake.reply(answer)
        fake.models = MODELS
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        local = {"MEAH_PROVIDER_WORKSTATION_BASE_URL": fake.base_url, "PATH": path}
        console = Console(home, ENVIRONMENT | local)
        try:
            console.start()
            with agent(console):
                fill(console, fake.base_url)
                yield console
        finally:
            console.stop()


@contextmanager
def agent(console: Console) -> Iterator[None]:
    """A `runmcp` that waits, as under Claude; without the keys, as it often is there."""
    environ = {name: value for name, value in console.environ.items() if name != "MEAH_GLM_API_KEY"}
    child = subprocess.Popen(
        [sys.executable, "manage.py", "runmcp"],
        cwd=ROOT,
        env=environ,
        stdin=subprocess.PIPE,
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert child.stdin is not None
    try:
        child.stdin.writelines(json.dumps(message) + "\n" for message in HELLO)
        child.stdin.flush()
        yield
    finally:
        child.stdin.close()
        child.wait(20)


def fill(console: Console, base_url: str) -> None:
    """Providers, prices, routes and work, through the services of the same installation."""
    for name in [name for name in os.environ if name.startswith("MEAH_")]:
        del os.environ[name]
    os.environ |= {name: value for name, value in console.environ.items() if name.startswith("MEAH_")}
    os.environ["DJANGO_SETTINGS_MODULE"] = "meah_site.settings"
    import django

    django.setup()
    from audit.services import verify_and_record
    from workers.models import Provider, ProviderModel, RoleRoute, WorkerSettings
    from workers.starts import start

    WorkerSettings.objects.create(pk=1, retry_base_ms=1)
    glm = Provider.objects.create(
        name="glm", base_url=base_url, api_key_env="MEAH_GLM_API_KEY", model="glm-4.5-air", private=True
    )
    Provider.objects.create(name="aicredits", base_url=base_url, model="z-ai/glm-4.7", private=True)
    for name, sent, said in (("glm-4.5-air", "0.2", "1.1"), ("glm-4.6", "0.6", "2.2")):
        ProviderModel.objects.create(provider=glm, name=name, input_price=Decimal(sent), output_price=Decimal(said))
    RoleRoute.objects.create(role="coder", provider="workstation")
    RoleRoute.objects.create(role="reviewer", provider="glm", model="glm-4.6", temperature=0.1)
    for role in ("researcher", "builder", "debugger", "summarizer"):
        RoleRoute.objects.create(role=role, provider="glm")
    for task in TASKS:
        wait_for_end(start(task, principal="agent:claude", door="mcp"))
    verify_and_record(principal="user:admin")
    running = start(LAST, principal="agent:claude", door="mcp")
    wait_until(lambda: "The first claims jobs" in _fresh(running).partial)
    govern(console)
    for name, address in ADDRESSES.items():
        variable = f"MEAH_{name.upper()}_API_KEY"
        Provider.objects.filter(name=name).update(base_url=address, api_key_env=variable, private=None)


HELD: list[tuple[str, dict[str, Any]]] = [
    ("update_ticket", {"ticket_id": "T-1001", "status": "in_progress"}),
    ("issue_refund", {"customer_id": "C-1", "amount": 40, "reason": "The parcel was two weeks late."}),
    ("update_ticket", {"ticket_id": "T-1001", "status": "closed", "priority": "P3"}),
]


def govern(console: Console) -> None:
    """The example CRM behind the example policy, one update that was approved, and two requests that wait."""
    from approvals import governor, services
    from approvals.models import Approval, Call
    from approvals.targets import CallRequest

    config = console.home / "crm.mcp.json"
    entry = {"command": "python", "args": ["examples/crm/server.py"]}
    config.write_text(json.dumps({"mcpServers": {"crm": entry | {"meah": {"exposure": "direct", "prefix": ""}}}}))
    for words in (("servers", "import", str(config), "--yes"), ("policy", "import", "examples/policy.yaml", "--yes")):
        command = [sys.executable, "manage.py", *words]
        subprocess.run(command, cwd=ROOT, env=console.environ, check=True, stdout=subprocess.DEVNULL)
    from django.contrib.auth.models import User

    ann = User.objects.create_superuser("ann", "ann@example.com")
    for tool, arguments in HELD:
        outcome = governor.decide_now(CallRequest("agent:claude", "crm", tool, arguments, "mcp"))
        assert outcome.approval is not None
        if tool == "update_ticket" and not Call.objects.filter(server="crm", state="done").exists():
            approval = services.get(outcome.approval["approvalId"])
            services.approve(approval, user=ann, note="Agreed with the customer.", door="admin")
            wait_until(lambda: Call.objects.filter(server="crm", state="done").exists())
    assert Approval.objects.filter(state="pending").count() == 2


def _fresh(worker: Any) -> Any:
    worker.refresh_from_db()
    return worker


def wait_for_end(worker: Any) -> None:
    wait_until(lambda: not _fresh(worker).is_active)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DONE_WITHIN_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("the invented work did not end")
        time.sleep(0.1)


def take(console: Console, browser: Any) -> None:
    context = browser.new_context(base_url=console.base_url, viewport=VIEWPORT)
    page = context.new_page()
    page.goto(console.new_link())
    page.get_by_role("button", name="Log in as admin").click()
    page.get_by_label("New password", exact=False).first.fill("correct horse battery")
    page.get_by_label("New password confirmation").fill("correct horse battery")
    page.get_by_role("button", name="Set password").click()
    page.wait_for_url("**/admin/")
    for name, url in {
        "overview": "/admin/",
        "providers": "/admin/workers/provider/",
        "workers": "/admin/workers/worker/",
        "routes": "/admin/workers/roleroute/",
        "audit": "/admin/audit/entry/",
        "console": "/admin/console/",
        "requests": "/admin/approvals/approval/",
        "rules": "/admin/approvals/rule/",
        "servers": "/admin/gateway/server/",
        "tools": "/admin/gateway/tool/",
        "calls": "/admin/approvals/call/",
    }.items():
        page.goto(url)
        shoot(page, name, whole=name == "overview")
    page.goto("/admin/console/")
    page.locator("#rows a").first.click()
    page.wait_for_timeout(500)
    shoot(page, "console")
    page.goto("/admin/approvals/approval/")
    page.locator("#result_list a", has_text="update_ticket").first.click()
    shoot(page, "request", whole=True)
    page.goto("/admin/gateway/server/")
    page.locator("#result_list tbody a").first.click()
    shoot(page, "server", whole=True)
    page.goto("/admin/workers/worker/")
    page.get_by_role("link", name="Review of the importer").click()
    shoot(page, "worker")
    page.goto("/admin/workers/worker/")
    page.get_by_role("link", name="Queue libraries").click()
    shoot(page, "worker-running")
    take_form(page)
    dark = browser.new_context(
        base_url=console.base_url, viewport=VIEWPORT, color_scheme="dark", storage_state=context.storage_state()
    ).new_page()
    dark.goto("/admin/")
    shoot(dark, "overview-dark", whole=True)


def take_form(page: Any) -> None:
    page.goto("/admin/workers/worker/add/")
    page.get_by_role("textbox", name="Task:").fill(
        "Review importer.py for real defects.\nEach with a scenario that fails."
    )
    page.get_by_label("Role").select_option("reviewer")
    page.get_by_label("Label").fill("Review of the importer")
    page.get_by_text("Context", exact=True).click()
    page.get_by_label("Name").first.fill("importer.py")
    page.get_by_label("Content").first.fill(IMPORTER)
    shoot(page, "run")


def shoot(page: Any, name: str, *, whole: bool = False) -> None:
    page.wait_for_load_state("networkidle")
    page.screenshot(path=str(OUT / f"{name}.png"), animations="disabled", caret="hide", full_page=whole)


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="meah-screenshots-") as directory,
        filled_console(Path(directory)) as console,
        chromium() as browser,
    ):
        take(console, browser)
    print(f"{OUT} has {', '.join(sorted(path.name for path in OUT.glob('*.png')))}")


if __name__ == "__main__":
    main()
