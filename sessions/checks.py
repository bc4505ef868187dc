"""System checks at start-up."""

from __future__ import annotations

import sqlite3
from typing import Any

from django.conf import settings
from django.core import checks

from nousweb.sqlite_driver import has_wal_reset_fault


@checks.register(checks.Tags.compatibility)  # a `database` check would not run at start-up
def sqlite_is_sound(**_: Any) -> list[checks.CheckMessage]:
    """Warn when the linked SQLite is one that can lose committed writes."""
    if settings.DATABASES["default"]["ENGINE"] != "django.db.backends.sqlite3":
        return []
    if not has_wal_reset_fault(sqlite3.sqlite_version_info[:3]):
        return []
    return [
        checks.Warning(
            f"The linked SQLite {sqlite3.sqlite_version} can lose committed writes when it "
            "resets the write-ahead log.",
            hint="Install the package pysqlite3 (it is in requirements.txt), use a Python with "
            "SQLite 3.51.3 or newer (or 3.50.7, 3.44.6), or set DATABASE_URL to PostgreSQL.",
            id="agent_sessions.W001",
        )
    ]
