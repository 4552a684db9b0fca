"""One version: `pyproject.toml` has it, the CHANGELOG begins with it; `serverInfo` is checked over stdio."""

from __future__ import annotations

import re

from meah_site.version import version
from tests.conftest import ROOT


def test_the_changelog_begins_with_the_version_of_the_project() -> None:
    first = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first is not None
    assert first.group(1) == version()
