"""Strict JSON: what a careless parser would change or lose is refused, with its place.

Refused: bytes that are no UTF-8, a byte order mark, duplicate keys, NaN and Infinity, numbers
that overflow to infinity, nesting deeper than 64, raw control characters, trailing data.
Kept: integers of any size, escapes of NUL and of lone surrogates, and, through `Node`, the
text of each part exactly as it came.

Parsing runs in the standard library's C scanner (linear; nesting is checked first, from the
brackets alone). Only a document that is refused is walked again, slowly, to say where.
"""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

MAX_DEPTH = 64
"""Deepest nesting of arrays and objects that is taken."""

_BIG_DIGITS = 4000  # below the interpreter's own limit for turning text into an int


class StrictJSONError(ValueError):
    """A document that is refused. `rule` is a short name; `line` and `column` count from 1,
    `offset` from 0 in characters; `path` leads to the value, as `/operations/0/2`."""

    def __init__(self, rule: str, message: str, text: str, offset: int, path: str = "") -> None:
        self.rule, self.offset, self.path = rule, offset, path
        self.line = text.count("\n", 0, offset) + 1
        self.column = offset - (text.rfind("\n", 0, offset) + 1) + 1
        self.reason = message
        at = f" at {path}" if path else ""
        super().__init__(f"{message} (line {self.line} column {self.column}{at})")


class HugeInteger:
    """An integer with more digits than Python turns into an `int` in reasonable time.

    It is carried as its digits: equal to one with the same digits, a scalar to the reducer.
    """

    __slots__ = ("digits",)

    def __init__(self, digits: str) -> None:
        self.digits = digits

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HugeInteger) and other.digits == self.digits

    def __hash__(self) -> int:
        return hash(self.digits)

    def __repr__(self) -> str:
        return f"HugeInteger({self.digits[:12]}…, {len(self.digits)} digits)"


@dataclass(frozen=True, slots=True)
class Shape:
    """Which parts of a document to keep apart: `item` for the elements of an array,
    `members` for the named members of an object; what is not named is kept whole."""

    item: Shape | None = None
    members: Mapping[str, Shape] | None = None


class Node(NamedTuple):
    """A value with its place in the text. `parts` holds the nodes of a container that the
    shape keeps apart: a list for an array, a dict for an object, else None."""

    value: Any
    start: int
    end: int
    parts: Any = None


class _Fault(ValueError):
    """Raised from inside the C scanner, which can't say where it is."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _Fault
    return made


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise _Fault
    return value


def _integer(text: str) -> int | HugeInteger:
    return int(text) if len(text) < _BIG_DIGITS else HugeInteger(text)


def _constant(_: str) -> Any:
    raise _Fault


_decoder = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_float, parse_int=_integer, parse_constant=_constant
)
_scan = _decoder.scan_once  # type: ignore[attr-defined]
_string = json.decoder.scanstring  # type: ignore[attr-defined]
_space = re.compile(r"[ \t\n\r]*").match
_quoted = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_not_brackets = {code: None for code in range(128) if chr(code) not in "[]{}"}


def decode(body: bytes) -> str:
    """The text of a body. Raises StrictJSONError for anything but UTF-8 without a mark."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        before = body[: error.start].decode("utf-8")
        raise StrictJSONError(
            "utf8", f"The body is no UTF-8: byte {error.start} can't be read", before, len(before)
        ) from None
    if text.startswith("\ufeff"):
        raise StrictJSONError("byte_order_mark", "The body starts with a byte order mark", text, 0)
    return text


def loads(text: str) -> Any:
    """The value of a whole document. Raises StrictJSONError."""
    return read(text).value


def read(text: str, shape: Shape | None = None) -> Node:
    """The document as a Node, its parts kept apart as `shape` says.

    Raises StrictJSONError, naming line, column and path. Linear in the text.
    """
    try:
        _check_depth(text)
        start = _skip(text, 0)
        node = _read(text, start, shape)
        if _skip(text, node.end) != len(text):
            raise _Fault
    except (ValueError, StopIteration, RecursionError, IndexError):
        raise _explain(text) from None
    return node


def _skip(text: str, index: int) -> int:
    match = _space(text, index)
    return match.end() if match else index


def _check_depth(text: str) -> None:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for bracket in _quoted.sub("", text).translate(_not_brackets):
        if bracket in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise _Fault
        elif bracket in "]}":
            depth -= 1


def _read(text: str, start: int, shape: Shape | None) -> Node:
    first = text[start]
    if shape is not None and first == "[":
        return _read_array(text, start, shape.item)
    if shape is not None and first == "{":
        return _read_object(text, start, shape.members or {})
    value, end = _scan(text, start)
    return Node(value, start, end)


def _read_array(text: str, start: int, shape: Shape | None) -> Node:
    parts: list[Node] = []
    index = _skip(text, start + 1)
    if text[index] == "]":
        return Node([], start, index + 1, parts)
    while True:
        node = _read(text, index, shape)
        parts.append(node)
        index = _skip(text, node.end)
        if text[index] == "]":
            return Node([part.value for part in parts], start, index + 1, parts)
        if text[index] != ",":
            raise _Fault
        index = _skip(text, index + 1)


def _read_object(text: str, start: int, shapes: Mapping[str, Shape]) -> Node:
    parts: dict[str, Node] = {}
    index = _skip(text, start + 1)
    if text[index] == "}":
        return Node({}, start, index + 1, parts)
    while True:
        if text[index] != '"':
            raise _Fault
        key, index = _string(text, index + 1, True)
        index = _skip(text, index)
        if text[index] != ":" or key in parts:
            raise _Fault
        node = parts[key] = _read(text, _skip(text, index + 1), shapes.get(key))
        index = _skip(text, node.end)
        if text[index] == "}":
            value = {name: part.value for name, part in parts.items()}
            return Node(value, start, index + 1, parts)
        if text[index] != ",":
            raise _Fault
        index = _skip(text, index + 1)


# -- saying where --------------------------------------------------------------------------

_number = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?").match
_word = re.compile(r"-?[A-Za-z]+").match


_MOST_STEPS = 100_000  # of a walk: a huge refused document must not hold the process


class _Walker:
    """Walks a document that was refused, one token at a time, until the first fault.

    Values that the C scanner takes are stepped over whole, so only the containers around the
    fault are walked (all of them when the fault is the depth, which the scanner does not know).
    """

    def __init__(self, text: str, *, deep: bool) -> None:
        self.text, self.index = text, 0
        self.deep, self.steps = deep, 0
        self.path: list[str | int] = []
        self.seen: list[set[str] | None] = []  # the keys of an open object, None for an array

    def fault(self, rule: str, message: str, offset: int | None = None) -> StrictJSONError:
        path = "".join("/" + str(p).replace("~", "~0").replace("/", "~1") for p in self.path)
        path = path.encode("ascii", "backslashreplace").decode("ascii")[:300]
        at = self.index if offset is None else offset
        return StrictJSONError(rule, message, self.text, min(at, len(self.text)), path)

    def peek(self) -> str:
        self.index = _skip(self.text, self.index)
        return self.text[self.index : self.index + 1]

    def walk(self) -> StrictJSONError:
        try:
            self.value()
            while self.seen:
                self.next_part()
            if self.peek():
                return self.fault("trailing_data", "Data after the end of the document")
        except StrictJSONError as error:
            return error
        return self.fault("syntax", "This is no JSON")

    def value(self) -> None:
        first = self.peek()
        if not first:
            raise self.fault("truncated", "The document ends where a value is expected")
        if first in "[{":
            if not self.stepped_over():
                self.open(first)
        elif first == '"':
            self.string()
        else:
            self.scalar()

    def stepped_over(self) -> bool:
        """Whether the value here was taken whole by the C scanner."""
        if self.deep:
            return False
        try:
            _, self.index = _scan(self.text, self.index)
        except (ValueError, StopIteration, RecursionError):
            return False
        return True

    def open(self, bracket: str) -> None:
        if len(self.seen) == MAX_DEPTH:
            raise self.fault("depth", f"Nested deeper than {MAX_DEPTH}")
        self.index += 1
        closing = "]" if bracket == "[" else "}"
        if self.peek() == closing:
            self.index += 1
            return
        if bracket == "[":
            self.seen.append(None)
            self.path.append(0)
            self.value()
        else:
            self.seen.append(set())
            self.path.append("")
            self.member()

    def next_part(self) -> None:
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise self.fault("syntax", "Refused somewhere after this place")
        keys = self.seen[-1]
        found = self.peek()
        if found == ("]" if keys is None else "}"):
            self.index += 1
            self.seen.pop()
            self.path.pop()
            return
        if found != ",":
            what = f"{found!r} where" if found else "The document ends where"
            closing = "]" if keys is None else "}"
            raise self.fault(
                "syntax" if found else "truncated", f"{what} ',' or '{closing}' is expected"
            )
        self.index += 1
        if keys is None:
            self.path[-1] = int(self.path[-1]) + 1
            self.value()
        else:
            self.member()

    def member(self) -> None:
        if self.peek() != '"':
            raise self.fault("syntax", "A key in double quotes is expected")
        start = self.index
        key = self.string()
        keys = self.seen[-1]
        self.path[-1] = key
        if keys is not None:
            if key in keys:
                raise self.fault("duplicate_key", "Duplicate key", start)
            keys.add(key)
        if self.peek() != ":":
            raise self.fault("syntax", "':' is expected after a key")
        self.index += 1
        self.value()

    def string(self) -> str:
        try:
            value, self.index = _string(self.text, self.index + 1, True)
        except json.JSONDecodeError as error:
            raise self.fault("string", error.msg.rstrip(": at"), error.pos) from None
        return str(value)

    def scalar(self) -> None:
        word = _word(self.text, self.index)
        if word:
            if word[0] not in ("true", "false", "null"):
                rule = "number" if word[0].lstrip("-") in ("NaN", "Infinity") else "syntax"
                raise self.fault(rule, f"{word[0][:40]} is no JSON value")
            self.index = word.end()
            return
        number = _number(self.text, self.index)
        if not number:
            raise self.fault("syntax", f"{self.text[self.index]!r} starts no JSON value")
        digits = number[0]
        if any(c in ".eE" for c in digits) and math.isinf(float(digits)):
            raise self.fault("number", "A number overflows to infinity")
        self.index = number.end()


def _explain(text: str) -> StrictJSONError:
    try:
        _check_depth(text)
    except _Fault:
        return _Walker(text, deep=True).walk()
    return _Walker(text, deep=False).walk()


# -- writing -------------------------------------------------------------------------------


def dumps(value: Any, *, sort_keys: bool = False) -> str:
    """Compact JSON in ASCII (NUL and lone surrogates as escapes), huge integers as digits."""
    return _dumps(value, sort_keys=sort_keys)


def _dumps(value: Any, *, sort_keys: bool = False, ascii_only: bool = True) -> str:
    huge: dict[str, str] = {}

    def stand_in(item: object) -> str:
        if not isinstance(item, HugeInteger):
            raise TypeError(f"{type(item).__name__} is no JSON value")
        name = f"huge:{secrets.token_hex(16)}"
        huge[f'"{name}"'] = item.digits
        return name

    text = json.dumps(
        value,
        separators=(",", ":"),
        allow_nan=False,
        sort_keys=sort_keys,
        ensure_ascii=ascii_only,
        default=stand_in,
    )
    for name, digits in huge.items():
        text = text.replace(name, digits)
    return text


def dumps_compact(value: Any) -> str:
    """As `dumps`, with other scripts as themselves where UTF-8 can hold the text: a checkpoint
    then weighs what the operations weighed."""
    text = _dumps(value, ascii_only=False)
    return text if storable(text) else _dumps(value)


def canonical(value: Any) -> str:
    """One text for one JSON value: keys sorted, nearest doubles, no space."""
    return dumps(value, sort_keys=True)


def visible(text: str) -> str:
    """Text that both databases take: NUL and lone surrogates written as their escapes."""
    if "\x00" in text:
        text = text.replace("\x00", "\\u0000")
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def storable(text: str) -> bool:
    """Whether both databases take the text as it is: no NUL, no lone surrogate."""
    if "\x00" in text:
        return False
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
