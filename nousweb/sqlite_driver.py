"""Which SQLite library we run on, and whether it is one that can lose committed writes."""

from __future__ import annotations

import sys

# The WAL-reset fault: 3.7.0 to 3.51.2, mended in two older branches as well.
FAULTY_FROM, FAULTY_TO = (3, 7, 0), (3, 51, 2)
MENDED = ((3, 44, 6), (3, 50, 7))


def has_wal_reset_fault(version: tuple[int, int, int]) -> bool:
    """Whether this SQLite version can lose committed writes when it resets the WAL.

    A backport counts for its own branch: 3.44.6 and later 3.44.x, 3.50.7 and later 3.50.x.
    """
    for mended in MENDED:
        if version[:2] == mended[:2] and version >= mended:
            return False
    return FAULTY_FROM <= version <= FAULTY_TO


def use_newer_sqlite() -> None:
    """Let the package `pysqlite3` stand in for `sqlite3` where it carries a newer library.

    Without that package nothing changes; the start-up check then warns if there is a reason.
    """
    if "sqlite3" in sys.modules and sys.modules["sqlite3"].__name__ == "pysqlite3":
        return
    try:
        import pysqlite3
    except ImportError:
        return
    import sqlite3

    if pysqlite3.sqlite_version_info <= sqlite3.sqlite_version_info:
        return
    for name in [name for name in sys.modules if name.split(".")[0] == "sqlite3"]:
        del sys.modules[name]
    sys.modules["sqlite3"] = pysqlite3
    sys.modules["sqlite3.dbapi2"] = pysqlite3.dbapi2
