"""JSON values as text for people: indented, other scripts as themselves, cut when long."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from .core.strict_json import HugeInteger, visible

CUT_CHARACTERS = 4000


@dataclass(frozen=True, slots=True)
class Shown:
    """A value as text. `size` is how many characters its JSON has in all, `cut` whether the
    text ends early, `is_scalar` whether it fits a line."""

    text: str
    size: int
    cut: bool
    is_scalar: bool


def shown(value: Any, limit: int = CUT_CHARACTERS) -> Shown:
    """The value as indented JSON, cut at `limit` characters. Costs what the value weighs."""
    text = visible(
        json.dumps(value, indent=2, ensure_ascii=False, default=_digits)
        if isinstance(value, dict | list)
        else json.dumps(value, ensure_ascii=False, default=_digits)
    )
    scalar = not isinstance(value, dict | list) or not value
    return Shown(text[:limit], len(text), len(text) > limit, scalar)


def shown_cut(text: str, size: int, limit: int = CUT_CHARACTERS) -> Shown:
    """Stored JSON text that is too long to be parsed for a page: its beginning as it came."""
    return Shown(visible(text[:limit]), size, size > limit, is_scalar=False)


def _digits(value: Any) -> str:
    if isinstance(value, HugeInteger):
        return f"integer of {len(value.digits)} digits: {value.digits[:60]}…"
    raise TypeError(type(value).__name__)
