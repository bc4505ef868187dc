"""Small formats for templates: times, durations, sizes."""

from __future__ import annotations

from datetime import datetime, timedelta

from django import template

from sessions.models import Step, Turn
from sessions.shown import readable as _readable

register = template.Library()


@register.filter
def readable(text: object) -> str:
    """Text with what can't be seen made visible; None is nothing."""
    return "" if text is None else _readable(str(text))


@register.filter
def clock(moment: datetime | None) -> str:
    """A moment in UTC, to the second: 2026-03-01 09:00:00."""
    return "" if moment is None else moment.strftime("%Y-%m-%d %H:%M:%S")


@register.filter
def day_time(moment: datetime | None) -> str:
    """A moment's time of day in UTC: 09:00:00."""
    return "" if moment is None else moment.strftime("%H:%M:%S")


@register.filter
def iso(moment: datetime | None) -> str:
    """A moment as ISO 8601 with its offset, for attributes and addresses."""
    return "" if moment is None else moment.isoformat()


@register.filter
def span(duration: timedelta | None) -> str:
    """A duration in the two units that matter: 850 ms, 12.4 s, 3 min 05 s, 2 h 10 min, 5 d 3 h."""
    if duration is None:
        return ""
    seconds = duration.total_seconds()
    sign = "−" if seconds < 0 else ""
    seconds = abs(seconds)
    if seconds < 0.9995:
        return f"{sign}{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{sign}{seconds:.1f} s"
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{sign}{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{sign}{hours} h {minutes:02d} min"
    days, hours = divmod(hours, 24)
    return f"{sign}{days} d {hours} h"


@register.filter
def took(row: Step | Turn) -> str:
    """How long a step or a turn took; nothing while it is open."""
    if row.started_at is None or row.ended_at is None:
        return ""
    return span(row.ended_at - row.started_at)


@register.filter
def offset(duration: timedelta | None) -> str:
    """Time since the session's start, with its sign: +12.4 s."""
    if duration is None:
        return ""
    text = span(duration)
    return text if text.startswith("−") else f"+{text}"


@register.filter
def number(count: int | None) -> str:
    """A count, its thousands apart: 98,508."""
    return "" if count is None else f"{count:,}"


@register.filter
def size(characters: int) -> str:
    """How much text: 812 characters, 4.2 K, 3.1 M."""
    if characters < 1000:
        return f"{characters} character{'' if characters == 1 else 's'}"
    if characters < 1_000_000:
        return f"{characters / 1000:.1f} K characters"
    return f"{characters / 1_000_000:.1f} M characters"


@register.filter
def since(moment: datetime, now: datetime) -> str:
    """How long ago, in one unit: 5 s ago, 3 min ago, 2 h ago, 4 d ago."""
    seconds = max((now - moment).total_seconds(), 0)
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit} ago"
    return f"{int(seconds)} s ago"


@register.filter
def add_int(value: int, other: int) -> int:
    """A sum; of numbers only."""
    return value + other
