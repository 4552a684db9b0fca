"""Settings: where things are, what an empty variable means, and clear words for what can not be used."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from core.errors import MeahError
from meah_site import settings
from tests.conftest import ROOT, compiled_environ

READ = """
import json, sys
sys.path.insert(0, sys.argv[1])
from core.errors import MeahError
try:
    from meah_site import settings as s
except MeahError as error:
    print(json.dumps({"error": error.as_dict()}))
else:
    print(json.dumps({
        "home": str(s.MEAH_HOME), "hosts": s.ALLOWED_HOSTS, "key": s.SECRET_KEY, "log": s.LOGGING,
        "engine": s.DATABASES["default"]["ENGINE"], "name": str(s.DATABASES["default"]["NAME"]),
    }))
"""


def read(home: Path, **variables: str) -> dict[str, Any]:
    kept = {name: value for name, value in compiled_environ().items() if name == "PATH" or name.startswith("PYTHON")}
    environ = kept | {"MEAH_HOME": str(home), "MEAH_ENV_FILE": ""} | variables
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", READ, str(ROOT)],
        env=environ,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_everything_stands_in_the_home_which_is_nobody_elses(tmp_path: Path) -> None:
    home = tmp_path / "deep" / "home"
    found = read(home)
    assert found["home"] == str(home) and found["name"] == str(home / "db.sqlite3")
    assert found["engine"] == "meah_site.sqlite"
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "secret_key").stat().st_mode) == 0o600
    assert len(found["key"]) >= 50
    assert read(home)["key"] == found["key"]


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    plain = read(tmp_path)
    assert read(tmp_path, DATABASE_URL="", MEAH_SECRET_KEY="", MEAH_LOG_LEVEL="", MEAH_ALLOWED_HOSTS=" ") == plain


def test_variables_are_heard(tmp_path: Path) -> None:
    found = read(tmp_path, MEAH_SECRET_KEY="own", MEAH_LOG_LEVEL="warn", MEAH_ALLOWED_HOSTS="a.example, b.example")
    assert (found["key"], found["log"]) == ("own", "warn")
    assert found["hosts"][-2:] == ["a.example", "b.example"]
    assert not (tmp_path / "secret_key").exists()


def test_an_env_file_is_read_and_what_is_set_already_wins(tmp_path: Path) -> None:
    (tmp_path / "env").write_text("MEAH_SECRET_KEY=from-the-file\nMEAH_LOG_LEVEL=debug\n")
    found = read(tmp_path, MEAH_ENV_FILE=str(tmp_path / "env"), MEAH_LOG_LEVEL="error")
    assert (found["key"], found["log"]) == ("from-the-file", "error")


@pytest.mark.parametrize(
    ("url", "engine", "name"),
    [
        ("sqlite:///other.sqlite3", "meah_site.sqlite", "{home}/other.sqlite3"),
        ("sqlite:////tmp/elsewhere.sqlite3", "meah_site.sqlite", "/tmp/elsewhere.sqlite3"),
        ("postgresql://meah:p%40ss@db.example:5433/meah", "django.db.backends.postgresql", "meah"),
        ("postgres://db.example/meah", "django.db.backends.postgresql", "meah"),
    ],
)
def test_a_database_by_its_address(monkeypatch: pytest.MonkeyPatch, url: str, engine: str, name: str) -> None:
    monkeypatch.setenv("DATABASE_URL", url)
    found = settings._database()
    assert (found["ENGINE"], str(found["NAME"])) == (engine, name.format(home=settings.MEAH_HOME))


@pytest.mark.parametrize(
    "url",
    [
        "nonsense",
        "mysql://root:hunter2@localhost/meah",
        "hunter2://x",
        "postgresql://u:hunter2@host:99999/meah",
        "postgresql://u:hunter2@[::1/meah",
        "postgresql://u:hunter2@host/",
        "sqlite://",
        "sqlite:///",
    ],
)
def test_a_database_that_is_none_is_refused_without_its_password(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("DATABASE_URL", url)
    with pytest.raises(MeahError) as caught:
        settings._database()
    error = caught.value
    assert error.code == "E_CONFIG" and "DATABASE_URL" in error.message and "postgresql://" in error.hint
    assert "hunter2" not in repr(error.as_dict())


@pytest.mark.parametrize("home", ["{tmp}/file", "{tmp}/file/below", "/proc/meah"])
def test_a_home_that_can_not_be_is_refused(tmp_path: Path, home: str) -> None:
    (tmp_path / "file").write_text("")
    error = read(Path(home.format(tmp=tmp_path)))["error"]
    assert error["code"] == "E_CONFIG" and "MEAH_HOME" in error["message"] and error["hint"]


def test_a_level_that_is_none_is_refused(tmp_path: Path) -> None:
    error = read(tmp_path, MEAH_LOG_LEVEL="loud")["error"]
    assert error["code"] == "E_CONFIG" and "loud" in error["message"] and "warn" in error["hint"]


def test_the_mcp_server_has_what_it_needs_and_nothing_of_the_web() -> None:
    from meah_site import settings_mcp

    assert not {"daphne", "django.contrib.staticfiles", "meah_site.admin_config.MeahAdminConfig"} & set(
        settings_mcp.INSTALLED_APPS
    )
    assert settings_mcp.MIDDLEWARE == [] and settings_mcp.DATABASES["default"]["CONN_MAX_AGE"] is None
