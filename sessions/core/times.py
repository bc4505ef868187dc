"""A runner's times: kept as the text received, read only for showing and measuring."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_TIME = re.compile(
    r"(\d{4})(-\d{2}-\d{2})[Tt ](\d{2}:\d{2}:\d{2})(?:[.,](\d{1,30}))?([Zz]|[+-]\d{2}(?::?\d{2})?)",
    re.ASCII,
)
TIME_LENGTH = 64


def is_time(text: str) -> bool:
    """Whether the text is a date and a time with seconds and an offset, years 0000 to 9999.

    Source: RFC 3339, and the forms that upstream's reader takes (`context_blob.json`).
    """
    match = _TIME.fullmatch(text)
    if match is None or len(text) > TIME_LENGTH:
        return False
    # 2000 stands in for year 0: Python's calendar starts at 1, and both are leap years
    year = "2000" if match[1] == "0000" else match[1]
    try:
        datetime.fromisoformat(f"{year}{match[2]}T{match[3]}{_offset(match[5])}")
    except ValueError:
        return False
    return True


def parse_time(text: str | None) -> datetime | None:
    """The moment in UTC, to the microsecond, or None when it lies outside years 1 to 9999 or
    the text is no time."""
    match = _TIME.fullmatch(text) if text else None
    if match is None:
        return None
    fraction = ((match[4] or "") + "000000")[:6]
    try:
        moment = datetime.fromisoformat(
            f"{match[1]}{match[2]}T{match[3]}.{fraction}{_offset(match[5])}"
        )
        return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _offset(text: str) -> str:
    if text in "Zz":
        return "+00:00"
    digits = text[1:].replace(":", "")
    return f"{text[0]}{digits[:2]}:{digits[2:] or '00'}"
