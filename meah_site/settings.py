"""Settings of the whole site. `settings_mcp` trims them for `runmcp`, whose start-up is a feature."""

from __future__ import annotations

import os
import re
import secrets
import warnings
from pathlib import Path
from typing import Any

from core.env import load_env_file
from core.errors import MeahError
from core.logs import LEVELS

BASE_DIR = Path(__file__).resolve().parent.parent


def _from_checkout(text: str) -> Path:
    return BASE_DIR / Path(text).expanduser()


# Variables that are already set win over the file; an empty MEAH_ENV_FILE means none.
if _env_file := os.environ.get("MEAH_ENV_FILE", ".env"):
    # A file that was named has to be there: a typo would look like unset keys.
    load_env_file(_from_checkout(_env_file), required="MEAH_ENV_FILE" in os.environ)


def _variable(name: str, default: str = "") -> str:
    """An empty one counts as not set."""
    return os.environ.get(name, "").strip() or default


MEAH_HOME = _from_checkout(_variable("MEAH_HOME", "var"))


def _make_home() -> None:
    """Raises MeahError E_CONFIG when this user can not keep files there."""
    try:
        MEAH_HOME.mkdir(mode=0o700, parents=True, exist_ok=True)
        problem = "" if os.access(MEAH_HOME, os.R_OK | os.W_OK | os.X_OK) else "it can not be written"
    except OSError as error:
        problem = str(error.strerror)
    if problem:
        raise MeahError(
            "E_CONFIG",
            f"MEAH_HOME ({MEAH_HOME}) can not be used: {problem}.",
            hint="Set MEAH_HOME to a directory that this user may write, or leave it out for `var/` in the checkout.",
        )


_make_home()


def _secret_key() -> str:
    """The generated key of this installation: written once, whole, by whichever process is first."""
    path = MEAH_HOME / "secret_key"
    if not path.exists():
        draft = path.with_name(f".secret_key.{os.getpid()}.{secrets.token_hex(4)}")
        draft.touch(mode=0o600)
        draft.write_text(secrets.token_urlsafe(48))
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return path.read_text().strip()


SECRET_KEY = _variable("MEAH_SECRET_KEY") or _secret_key()
DEBUG = False


def _listed(name: str) -> list[str]:
    return [part.strip() for part in _variable(name).split(",") if part.strip()]


# With a port or without; the outermost layer compares both, Django the names alone.
MEAH_HOSTS = ["127.0.0.1", "localhost", "[::1]", *_listed("MEAH_ALLOWED_HOSTS")]
ALLOWED_HOSTS = [re.sub(r":\d+$", "", host) for host in MEAH_HOSTS]
# Pages of these may send requests here; what they may do there is for credentials to say.
MEAH_ALLOWED_ORIGINS = _listed("MEAH_ALLOWED_ORIGINS")
# Where people reach the admin: links in webhooks start with it.
MEAH_BASE_URL = _variable("MEAH_BASE_URL").rstrip("/") or "http://127.0.0.1:7817"
# Access tokens of this OAuth issuer are taken at /mcp, besides MEAH's own; without it only those.
MEAH_OAUTH_ISSUER = _variable("MEAH_OAUTH_ISSUER")
MEAH_OAUTH_AUDIENCE = _variable("MEAH_OAUTH_AUDIENCE")
MEAH_OAUTH_JWKS_URL = _variable("MEAH_OAUTH_JWKS_URL")
MEAH_OAUTH_USER_CLAIM = _variable("MEAH_OAUTH_USER_CLAIM", "sub")
MEAH_OAUTH_SCOPE_PREFIX = _variable("MEAH_OAUTH_SCOPE_PREFIX")

INSTALLED_APPS = [
    "daphne",
    "meah_site.admin_config.MeahAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "audit",
    "approvals",
    "gateway",
    "workers",
    "meah_site",
]

MIDDLEWARE = [
    "meah_site.middleware.SecurityHeaders",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "meah_site.urls"
ASGI_APPLICATION = "meah_site.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]


def _sqlite(database: dict[str, Any]) -> dict[str, Any]:
    name = Path(str(database["NAME"])).expanduser()
    return database | {
        "ENGINE": "meah_site.sqlite",
        "NAME": MEAH_HOME / name,
        "OPTIONS": {
            "timeout": 20,
            # A transaction that reads first and writes later fails at once under DEFERRED, whatever the timeout.
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON;",
        },
    }


def _database() -> dict[str, Any]:
    """Raises MeahError E_CONFIG, without the URL in it: that may hold a password."""
    if not (url := _variable("DATABASE_URL")):
        return _sqlite({"NAME": "db.sqlite3"})
    # Imported late: without a URL the MCP server starts that much sooner.
    from environ import Env

    try:
        with warnings.catch_warnings():
            # Its warning would print the URL in parts.
            warnings.simplefilter("ignore")
            database: dict[str, Any] = Env.db_url_config(url)
    except Exception:
        database = {}
    match database.get("ENGINE"), database.get("NAME"):
        case "django.db.backends.sqlite3", str(name) if name and name != ":memory:":
            return _sqlite(database)
        case "django.db.backends.postgresql", str(name) if name:
            return database | {"CONN_HEALTH_CHECKS": True}
    raise MeahError(
        "E_CONFIG",
        "DATABASE_URL is not an address of a database that MEAH can use.",
        hint="Write sqlite:///db.sqlite3 (a file in MEAH_HOME) or postgresql://user:password@host:5432/name; "
        "special characters of a password as %XX.",
    )


DATABASES = {"default": _database()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
LOGIN_URL = "admin:login"
LOGIN_REDIRECT_URL = "admin:index"

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_I18N = False
USE_TZ = True
FORMAT_MODULE_PATH = "meah_site.formats"

STATIC_URL = "static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
WHITENOISE_USE_FINDERS = True  # `make run` serves without a collectstatic step

SESSION_COOKIE_NAME = "meah_session"
SESSION_COOKIE_SAMESITE = "Strict"
SESSION_COOKIE_AGE = 8 * 3600
CSRF_COOKIE_NAME = "meah_csrf"
CSRF_COOKIE_SAMESITE = "Strict"
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
# 1 MiB of task and context pasted into a form, and some.
DATA_UPLOAD_MAX_MEMORY_SIZE = 4 * 2**20

CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}

# JSON lines on stderr, redacted.
LOGGING_CONFIG = "core.logs.configure"
LOGGING = _variable("MEAH_LOG_LEVEL", "info")
if LOGGING not in LEVELS:
    raise MeahError(
        "E_CONFIG",
        f"MEAH_LOG_LEVEL is {LOGGING[:40]!r}, which is no level.",
        hint=f"Use one of {', '.join(LEVELS)}.",
    )
