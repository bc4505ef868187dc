"""Settings: everything comes from the environment and has a default that works.

A value that makes no sense stops the start with a message that names the variable.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from urllib.parse import urlsplit

import dj_database_url
from csp.constants import NONE, SELF
from django.core.exceptions import ImproperlyConfigured

BASE_DIR = Path(__file__).resolve().parent.parent


def env_flag(name: str, default: bool) -> bool:
    """`1`, `true`, `yes`, `on` or their opposites; anything else is an error."""
    value = os.environ.get(name, "").strip().lower()
    if not value:
        return default
    if value in ("1", "true", "yes", "on"):
        return True
    if value in ("0", "false", "no", "off"):
        return False
    raise ImproperlyConfigured(f"{name} must be 1 or 0, not {value!r}.")


def env_integer(name: str, default: int, least: int, most: int) -> int:
    """A whole number between `least` and `most`."""
    value = os.environ.get(name, "").strip()
    if not value:
        return default
    if not value.isdecimal() or not least <= int(value) <= most:
        raise ImproperlyConfigured(f"{name} must be a number from {least} to {most}.")
    return int(value)


def env_list(name: str) -> list[str]:
    """A list separated by commas."""
    return [part.strip() for part in os.environ.get(name, "").split(",") if part.strip()]


def _secret_key(folder: Path) -> str:
    """The key from the environment, else the one kept in the data folder (made once)."""
    if given := os.environ.get("NOUSWEB_SECRET_KEY"):
        return given
    path = folder / "secret-key"
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        pass
    folder.mkdir(parents=True, exist_ok=True)
    made = secrets.token_urlsafe(64)
    draft = folder / f".secret-key.{secrets.token_hex(8)}"
    draft.touch(mode=0o600)
    draft.write_text(made, encoding="ascii")
    try:  # appears whole or not at all: another process may be first
        os.link(draft, path)
    except FileExistsError:
        made = path.read_text(encoding="ascii").strip()
    finally:
        draft.unlink()
    return made


# -- where things are ----------------------------------------------------------------------

DATA_DIR = Path(os.environ.get("NOUSWEB_DATA") or BASE_DIR / "data").resolve()
HOST = os.environ.get("NOUSWEB_HOST") or "127.0.0.1"
PORT = env_integer("NOUSWEB_PORT", 8000, 1, 65535)
LOAD_EXAMPLE = env_flag("NOUSWEB_EXAMPLE", True)
SECRET_KEY = _secret_key(DATA_DIR)

# -- security ------------------------------------------------------------------------------

DEBUG = env_flag("NOUSWEB_DEBUG", False)
HTTPS = env_flag("NOUSWEB_HTTPS", False)
"""Set when the dashboard is reached over https, behind a proxy that ends TLS."""

ALLOWED_HOSTS = ["127.0.0.1", "localhost", "[::1]", HOST, *env_list("NOUSWEB_ALLOWED_HOSTS")]
CSRF_TRUSTED_ORIGINS = [f"https://{host}" for host in env_list("NOUSWEB_ALLOWED_HOSTS") if HTTPS]
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = HTTPS
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS else None
SECURE_HSTS_SECONDS = 31_536_000 if HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = HTTPS
SECURE_REDIRECT_EXEMPT = [r"^healthz$"]
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_NAME = "nousweb_sessionid"
CSRF_COOKIE_NAME = "nousweb_csrftoken"
CSRF_COOKIE_HTTPONLY = True

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF],
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
        "base-uri": [NONE],
    }
}

PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.Argon2PasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "sessions"
LOGOUT_REDIRECT_URL = "login"

# -- the application -----------------------------------------------------------------------

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django_htmx",
    "csp",
    "ninja",  # serves the API documentation's files itself
    "sessions.apps.SessionsConfig",
]

MIDDLEWARE = [
    "sessions.api.middleware.ProblemMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

ROOT_URLCONF = "nousweb.urls"
WSGI_APPLICATION = "nousweb.wsgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
APPEND_SLASH = True

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
            ],
        },
    },
]

# -- the database --------------------------------------------------------------------------

SQLITE_OPTIONS = {
    # Take the write lock at the start: a deferred transaction that reads and then writes
    # fails under load (81 % errors with 8 clients).
    "transaction_mode": "IMMEDIATE",
    "timeout": 5,
    # FULL: with NORMAL a WAL can lose acknowledged rows when the power goes.
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; "
    "PRAGMA recursive_triggers=ON; PRAGMA cache_size=-65536;",
}
POSTGRES_OPTIONS = {
    "pool": {"min_size": 1, "max_size": env_integer("NOUSWEB_POOL", 8, 1, 100), "timeout": 5},
    # A wait that has no end would hold a runner for ever: 503 and Retry-After instead.
    "options": "-c lock_timeout=5000",
}


def _database(url: str | None) -> dict[str, object]:
    if not url:
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": DATA_DIR / "nousweb.sqlite3",
            "CONN_MAX_AGE": None,  # opening one, with its pragmas, costs as much as a post
            "OPTIONS": SQLITE_OPTIONS,
        }
    scheme = urlsplit(url).scheme
    if scheme == "sqlite":
        return {**dj_database_url.parse(url, conn_max_age=None), "OPTIONS": SQLITE_OPTIONS}
    if scheme not in ("postgresql", "postgres"):
        raise ImproperlyConfigured(f"DATABASE_URL must be postgresql://… or unset, not {scheme}:")
    parsed = dj_database_url.parse(url)
    return {**parsed, "OPTIONS": {**parsed.get("OPTIONS", {}), **POSTGRES_OPTIONS}}


DATABASES = {"default": _database(os.environ.get("DATABASE_URL"))}

# -- limits that a runner can meet; README and the API's documentation name them -------------

LIMITS = {
    "body_bytes": 16 * 1024 * 1024,
    "batch_items": 5_000,
    "operations": 10_000,
    "event_bytes": 1024 * 1024,
    "key_characters": 512,
    "name_characters": 200,
    "page_items": 1_000,
}
DATA_UPLOAD_MAX_MEMORY_SIZE = LIMITS["body_bytes"] + 1024 * 1024  # ours answers first
HEAD_CACHE_BYTES = env_integer("NOUSWEB_HEAD_CACHE_MB", 256, 1, 1_000_000) * 1024 * 1024

# -- words, time, files --------------------------------------------------------------------

LANGUAGE_CODE = "en-us"
USE_I18N = False
USE_TZ = True
TIME_ZONE = "UTC"

STATIC_URL = "static/"
STATIC_ROOT = DATA_DIR / "static"
STATIC_ROOT.mkdir(parents=True, exist_ok=True)  # WhiteNoise warns without it
STATICFILES_DIRS = [BASE_DIR / "static"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}
WHITENOISE_SKIP_COMPRESS_EXTENSIONS = ("png", "gif", "jpg", "woff", "woff2", "ico", "map", "gz")

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": "INFO"},
    "loggers": {
        "django.request": {"level": "ERROR"},
        "django.security.DisallowedHost": {"level": "CRITICAL"},  # answered with 400
    },
}
