"""JSON values as text for people: indented, other scripts as themselves, cut when long."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from .core.strict_json import HugeInteger, visible

CUT_CHARACTERS = 4000
LINE_CHARACTERS = 90


@dataclass(frozen=True, slots=True)
class Shown:
    """A value as text: `text` indented, `line` its beginning in one line. `size` is how many
    characters its JSON has in all, `cut` whether the text ends early, `fits_line` whether the
    line is all of it."""

    text: str
    line: str
    size: int
    cut: bool
    fits_line: bool


def shown(value: Any, limit: int = CUT_CHARACTERS) -> Shown:
    """The value as indented JSON, cut at `limit` characters. Costs what the value weighs."""
    compact = visible(_json(value, None))
    if len(compact) <= LINE_CHARACTERS:
        return Shown(compact, compact, len(compact), False, True)
    text = visible(_json(value, 2)) if isinstance(value, dict | list) else compact
    line = f"{compact[:LINE_CHARACTERS]}…"
    return Shown(text[:limit], line, len(compact), len(text) > limit, False)


def _json(value: Any, indent: int | None) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False, default=_digits)


def shown_cut(text: str, size: int, limit: int = CUT_CHARACTERS) -> Shown:
    """Stored JSON text that is too long to be parsed for a page: its beginning as it came."""
    line = f"{visible(text[:LINE_CHARACTERS])}…"
    return Shown(visible(text[:limit]), line, size, size > limit, False)


def _digits(value: Any) -> str:
    if isinstance(value, HugeInteger):
        return f"integer of {len(value.digits)} digits: {value.digits[:60]}…"
    raise TypeError(type(value).__name__)
