"""The house: its floors, its rooms, its measures, and that whatever a user can name is in the docs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

FLOORS = [{"core"}, {"audit"}, {"approvals"}, {"workers", "gateway"}, {"meah_site"}]
APPS = [app for floor in FLOORS for app in sorted(floor) if (ROOT / app).is_dir()]
DOORS = {"tools", "api", "admin", "consumers", "management"}
PURE = {
    "audit": {"bundle", "chain", "verdict"},
    "workers": {"prompt", "roles", "routing", "workspace", "workspace_names", "context_files", "providers"},
    "approvals": {"conditions", "policy", "step_key"},
}
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
DOCS = "\n".join(path.read_text() for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))])


def sources() -> list[Path]:
    """Every module of the product; not tests, benchmarks, migrations."""
    found = [path for app in APPS for path in (ROOT / app).rglob("*.py") if "migrations" not in path.parts]
    return [ROOT / "manage.py", *found]


def imports(path: Path, *, runtime_only: bool = False) -> Iterator[str]:
    """Absolute names of the modules that a file imports; relative ones are resolved."""
    package = ".".join(path.relative_to(ROOT).with_suffix("").parts[:-1])
    tree = ast.parse(path.read_text())
    skipped = set(_type_checking(tree)) if runtime_only else set()
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module or "") if part)
            yield from (f"{module}.{alias.name}" for alias in node.names)


def _type_checking(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            yield from ast.walk(node)


def floor_of(app: str) -> int:
    return next(number for number, floor in enumerate(FLOORS) if app in floor)


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", sources(), ids=relative)
def test_imports_run_downwards_only(path: Path) -> None:
    app = path.relative_to(ROOT).parts[0]
    if app not in APPS:
        return
    for name in imports(path):
        other = name.split(".")[0]
        if other in APPS and other != app:
            assert floor_of(other) < floor_of(app), f"{relative(path)} imports {name}"


def test_the_ground_has_no_django() -> None:
    offending = [
        f"{relative(path)}: {name}"
        for path in (ROOT / "core").rglob("*.py")
        for name in imports(path)
        if name.split(".")[0] == "django"
    ]
    assert offending == []


def test_pure_modules_import_no_django_and_no_models() -> None:
    offending = []
    for app, modules in PURE.items():
        for path in (ROOT / app).rglob("*.py"):
            if path.relative_to(ROOT / app).with_suffix("").parts[0] in modules:
                names = imports(path, runtime_only=True)
                offending += [
                    f"{relative(path)}: {name}"
                    for name in names
                    if name.split(".")[0] == "django" or name.split(".")[1:2] == ["models"]
                ]
    assert offending == []


def test_doors_never_import_doors() -> None:
    offending = []
    for path in sources():
        parts = path.relative_to(ROOT).with_suffix("").parts
        if len(parts) < 2 or parts[0] == "meah_site" or parts[1] not in DOORS:
            continue
        for name in imports(path):
            other = name.split(".")
            if other[0] in APPS and len(other) > 1 and other[1] in DOORS and other[:2] != list(parts[:2]):
                offending.append(f"{relative(path)}: {name}")
    assert offending == []


def test_services_never_await() -> None:
    offending = [
        relative(path)
        for path in sources()
        if path.name == "services.py"
        and any(isinstance(node, ast.AsyncFunctionDef | ast.Await) for node in ast.walk(ast.parse(path.read_text())))
    ]
    assert offending == []


def test_files_stay_readable() -> None:
    long = {
        relative(path): count for path in sources() if (count := len(path.read_text().splitlines())) > MAX_FILE_LINES
    }
    assert long == {}


def test_functions_stay_readable() -> None:
    long = [
        f"{relative(path)}:{node.lineno} {node.name}: {length} lines"
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION_LINES
    ]
    assert long == []


def test_nothing_prints() -> None:
    """stdout is the protocol; commands write to their own stream."""
    offending = [
        f"{relative(path)}:{node.lineno}"
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert offending == []


def test_secrets_are_read_in_one_place() -> None:
    """Besides settings, only `core.secrets` looks a secret's value up in the environment."""
    allowed = {"core/secrets.py", "core/env.py", "meah_site/settings.py", "workers/config_env.py"}
    offending = [
        relative(path)
        for path in sources()
        if relative(path) not in allowed and re.search(r"os\.environ\[|os\.getenv", path.read_text())
    ]
    assert offending == []


def commands() -> list[str]:
    return [
        path.stem
        for app in APPS
        for path in (ROOT / app / "management" / "commands").glob("*.py")
        if path.stem != "__init__"
    ]


@pytest.mark.parametrize("command", commands())
def test_every_command_is_in_the_docs(command: str) -> None:
    assert re.search(rf"`(manage\.py )?{command}\b|manage\.py {command}\b", DOCS)


def test_every_tool_is_in_the_readme() -> None:
    from meah_site.own_tools import listed

    readme = (ROOT / "README.md").read_text()
    assert [tool["name"] for tool in listed("agent") if f"`{tool['name']}`" not in readme] == []
    assert [tool["name"] for tool in listed("approver") if f"`{tool['name']}`" not in DOCS] == []


def test_every_error_code_is_explained() -> None:
    from core.errors import CODES

    assert [code for code in CODES if f"`{code}`" not in DOCS] == []


def test_no_file_names_a_package_index() -> None:
    listed = [*(ROOT / "requirements").glob("*.txt"), ROOT / "pyproject.toml"]
    assert [relative(path) for path in listed if re.search(r"index-url|https?://", path.read_text())] == []
