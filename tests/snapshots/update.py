"""`python -m tests.snapshots.update`: write what MEAH's surface is now. The diff is the change of surface."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TOOLS = {role: HERE / f"tools.{role}.json" for role in ("agent", "approver")}


def text(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"MEAH_HOME": home, "MEAH_ENV_FILE": "", "DJANGO_SETTINGS_MODULE": "meah_site.settings_mcp"}
        import django

        django.setup()
        from meah_site.own_tools import listed

        for role, path in TOOLS.items():
            path.write_text(text({"tools": listed(role)}))


if __name__ == "__main__":
    main()
