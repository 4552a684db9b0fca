"""Settings of the tests: a MEAH_HOME of their own, nothing from the developer's environment."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

for _name in [name for name in os.environ if name.startswith("MEAH_") and not name.startswith("MEAH_TEST_")]:
    del os.environ[_name]
_home = tempfile.mkdtemp(prefix="meah-test-")
atexit.register(shutil.rmtree, _home, ignore_errors=True)
os.environ["MEAH_HOME"] = _home
os.environ["MEAH_ENV_FILE"] = ""
os.environ["MEAH_LOG_LEVEL"] = "error"
os.environ["DATABASE_URL"] = os.environ.get("MEAH_TEST_DATABASE_URL", "sqlite:///db.sqlite3")

from meah_site.settings import *  # noqa: E402, F403
from meah_site.settings import DATABASES, MEAH_HOME  # noqa: E402

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
if DATABASES["default"]["ENGINE"] == "meah_site.sqlite":
    # A file, since threads and child processes of a test must see the same database.
    DATABASES["default"]["TEST"] = {"NAME": MEAH_HOME / "test.sqlite3"}
else:
    # Several runs may share a server.
    DATABASES["default"]["TEST"] = {"NAME": f"test_meah_{os.getpid()}"}
