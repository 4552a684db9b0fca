"""Servers that we did not write, pinned, installed once into a cache directory of the checkout."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT

CACHE = ROOT / "tests" / ".cache"
NPM = {
    "@modelcontextprotocol/server-everything": "2026.8.31",
    "@modelcontextprotocol/server-filesystem": "2026.8.31",
    "@modelcontextprotocol/server-memory": "2026.8.31",
}
PYPI = {"mcp-server-time": "2026.10.10", "mcp-server-git": "2026.10.10"}
INSTALL_S = 300


@dataclass(frozen=True)
class Real:
    """How a real server is started."""

    command: str
    args: tuple[str, ...]


def npm(name: str, *args: str) -> Real:
    """Skips the test where there is no Node.js, or where it can not be installed."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        pytest.skip("Node.js is not installed: npm's servers can not be run")
    home = _installed("npm", NPM, _install_npm)
    return Real(node, (str(home / "node_modules" / "@modelcontextprotocol" / name / "dist" / "index.js"), *args))


def npm_package(packages: dict[str, str]) -> Path:
    """A directory with these packages in its `node_modules`; skips the test where it can not be installed."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    return _installed("npm-" + min(packages).rpartition("/")[2], packages, _install_npm)


def pypi(name: str, *args: str) -> Real:
    home = _installed("pypi", PYPI, _install_pypi)
    return Real(str(home / "bin" / name), args)


def _installed(kind: str, packages: dict[str, str], install: Callable[[Path, list[str]], None]) -> Path:
    """The directory with these very versions in it; a change of one makes a new directory."""
    home = CACHE / f"{kind}-{'-'.join(sorted(set(packages.values())))}"
    with _locked(kind):
        if not (home / "installed").exists():
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir(parents=True)
            try:
                install(
                    home,
                    [f"{name}{'@' if kind.startswith('npm') else '=='}{version}" for name, version in packages.items()],
                )
            except (subprocess.SubprocessError, OSError) as error:
                pytest.skip(f"the {kind} servers can not be installed here: {error}")
            (home / "installed").touch()
    return home


def _install_npm(home: Path, packages: list[str]) -> None:
    options = ["--prefix", str(home), "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
    subprocess.run(["npm", "install", *options, *packages], check=True, timeout=INSTALL_S, cwd=home)


def _install_pypi(home: Path, packages: list[str]) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, timeout=INSTALL_S)
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *packages], check=True, timeout=INSTALL_S)


@contextmanager
def _locked(kind: str) -> Iterator[None]:
    CACHE.mkdir(exist_ok=True)
    with (CACHE / f"{kind}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
