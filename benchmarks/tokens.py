"""What the list of tools costs a model's context, counted with a tokenizer that ships its vocabulary."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

from benchmarks.machine import ROOT
from benchmarks.measure import Aim, Measure, Outcome, Skipped
from benchmarks.startup import listed_tools

TITLE = "tokens of the eight worker tools in tools/list"
TOKENIZER: Final = "gpt-tokenizer"
VERSION: Final = "4.0.0"
# Kept between runs; git ignores it.
PLACE: Final = ROOT / "var" / "bench-node"


def measure(home: Path) -> Outcome:
    if why := missing():
        return Skipped("tokens", TITLE, why)
    tools = json.loads(listed_tools(home).read_text())
    workers = [tool for tool in tools if tool["name"].startswith("meah_")]
    whole = compact({"tools": workers})
    each = sorted(((counted(compact(tool)), tool["name"]) for tool in tools), reverse=True)
    return Measure(
        "tokens",
        TITLE,
        counted(whole),
        "tokens",
        Aim("value", "at most", 3_500),
        notes=(
            f"With all {len(tools)} of MEAH's own tools: {counted(compact({'tools': tools})):,}.",
            f"{len(workers)} tools, {len(whole):,} characters of compact JSON; npm {TOKENIZER} {VERSION}, o200k_base.",
            "Each: " + ", ".join(f"{name} {count}" for count, name in each) + ".",
        ),
    )


def missing() -> str:
    """Why tokens can not be counted here, or nothing. Installs the tokenizer at its first use."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "there is no node or no npm here"
    if not (PLACE / "node_modules" / TOKENIZER / "package.json").exists():
        PLACE.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--silent", "--no-save", "--no-package-lock", f"{TOKENIZER}@{VERSION}"]
        done = subprocess.run(command, cwd=PLACE, capture_output=True, timeout=300)
        if done.returncode:
            return f"npm could not install {TOKENIZER}"
    return ""


def counted(text: str) -> int:
    script = ROOT / "benchmarks" / "count_tokens.mjs"
    done = subprocess.run(
        ["node", str(script), str(PLACE)], input=text, check=True, capture_output=True, text=True, timeout=60
    )
    return int(done.stdout)


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
