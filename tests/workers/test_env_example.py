"""`.env.example` names every variable that the code reads, with its default: kept true from the code."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.env import read_env_file
from workers import config_env
from workers.config_fields import LIMIT_FIELDS, TERMINAL_FIELDS
from workers.presets import PRESETS
from workers.roles import ROLES

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / ".env.example"
LINE = re.compile(r"# ([A-Z][A-Z0-9_]*)=(.*)")
FLOORS = ("core", "audit", "approvals", "workers", "gateway", "meah_site")


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables as the file has them once their lines are uncommented."""
    lines = EXAMPLE.read_text().splitlines()
    copy = tmp_path_factory.mktemp("env") / ".env"
    copy.write_text("\n".join(line.removeprefix("# ") for line in lines if LINE.fullmatch(line)))
    return read_env_file(copy)


def names_in_code() -> Iterator[str]:
    """String constants of the product that are names of variables."""
    for path in (path for floor in FLOORS for path in (ROOT / floor).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and re.fullmatch(r"MEAH_[A-Z0-9_]*[A-Z0-9]|DATABASE_URL", text):
                yield text


def test_nothing_is_set_by_the_file_as_it_stands() -> None:
    assert read_env_file(EXAMPLE) == {}


def test_it_names_the_variables_of_the_code_and_no_others(named: dict[str, str]) -> None:
    supported = {variable.name for variable in config_env.variables()} | set(names_in_code())
    assert {config_env.family(name) for name in named} == supported


def test_it_is_valid_when_every_line_is_used(named: dict[str, str]) -> None:
    values = config_env.read(named)
    assert values.providers["glm"]["base_url"] == PRESETS["glm"].base_url
    assert values.providers["aicredits"]["api_key_env"] == PRESETS["aicredits"].api_key_env


def test_the_presets_stand_in_it(named: dict[str, str]) -> None:
    for name, preset in PRESETS.items():
        prefix = f"MEAH_PROVIDER_{name.upper()}_"
        assert named[f"{prefix}BASE_URL"] == preset.base_url
        assert named[f"{prefix}API_KEY_ENV"] == preset.api_key_env
        assert named[preset.api_key_env] == ""
        assert named[f"{prefix}MODEL"] == preset.model or not preset.model


def test_each_limit_stands_there_with_its_default(named: dict[str, str]) -> None:
    fields = {f"MEAH_{field.env}": field for field in LIMIT_FIELDS}
    fields |= {f"MEAH_TERMINAL_{field.env}": field for field in TERMINAL_FIELDS}
    defaults = {variable.name: variable.default for variable in config_env.variables()}
    assert {name: field.parse(named[name]) for name, field in fields.items()} == {
        name: defaults[name] for name in fields
    }


def test_each_variable_is_explained_in_the_line_above() -> None:
    lines = EXAMPLE.read_text().splitlines()
    explained = set()
    for above, line in itertools.pairwise(lines):
        match = LINE.fullmatch(line)
        if match and above.startswith("# ") and not LINE.fullmatch(above):
            explained.add(config_env.family(match[1]))
    missing = {config_env.family(match[1]) for line in lines if (match := LINE.fullmatch(line))} - explained
    assert missing == set()


def test_every_role_is_named() -> None:
    assert [role for role in ROLES if role.upper() not in EXAMPLE.read_text()] == []
