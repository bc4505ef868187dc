"""JSON values as text for people: indented, other scripts as themselves, cut when long, and
characters that can't be seen, or that turn text around, made visible."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from .core.strict_json import HugeInteger, visible

CUT_CHARACTERS = 4000
LINE_CHARACTERS = 90

# Controls but for tab and line ends, invisible and bidirectional marks, and code points that
# are no characters. The joiners (200c, 200d) stay: scripts and emoji need them.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufdd0-\ufdef\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f]"
    "|[" + "".join(f"\\U{plane:04x}fffe\\U{plane:04x}ffff" for plane in range(1, 17)) + "]"
)


def readable(text: str) -> str:
    """Text as a page may show it: what can't be seen is written as its escape, `\\u202e`."""
    return _UNSEEN.sub(_escape, visible(text))


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def is_tall(text: str) -> bool:
    """Whether the text may need a scroll bar, which a keyboard must be able to reach."""
    return len(text) > 1200 or text.count("\n") > 12


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

    @property
    def is_tall(self) -> bool:
        return is_tall(self.text)


def shown(value: Any, limit: int = CUT_CHARACTERS) -> Shown:
    """The value as indented JSON, cut at `limit` characters. Costs what the value weighs."""
    compact = readable(_json(value, None))
    if len(compact) <= LINE_CHARACTERS:
        return Shown(compact, compact, len(compact), False, True)
    line = f"{compact[:LINE_CHARACTERS]}…"
    text = readable(_json(value, 2)) if isinstance(value, dict | list) else compact
    return Shown(text[:limit], line, len(compact), len(text) > limit, False)


def _json(value: Any, indent: int | None) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False, default=_digits)


def shown_cut(text: str, size: int, limit: int = CUT_CHARACTERS) -> Shown:
    """Stored JSON text that is too long to be parsed for a page: its beginning as it came."""
    line = f"{readable(text[:LINE_CHARACTERS])}…"
    return Shown(readable(text[:limit]), line, size, size > limit, False)


def _digits(value: Any) -> str:
    if isinstance(value, HugeInteger):
        return f"integer of {len(value.digits)} digits: {value.digits[:60]}…"
    raise TypeError(type(value).__name__)
