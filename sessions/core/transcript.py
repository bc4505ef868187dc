"""The log and what the model sees of it: visible surface, messages, orphans, requests.

A log is a sequence of `LogEvent` in ascending seq; gaps are allowed (a compacted version 3
blob has them). Nothing here changes an event: a replace hides, it never deletes.

Source: `Nous.Session.Log` and its projection; vectors `log.json` and `invariant.json`.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from operator import itemgetter
from typing import Any, NamedTuple

from .events import SURFACE_TYPES, Reason, fault_of, replace_range
from .strict_json import canonical

ROLES = {
    "system_message": "system",
    "user_message": "user",
    "assistant_message": "assistant",
    "tool_result": "tool",
}
"""The role in which the model sees an event of a surface type."""

PREVIEW_LENGTH = 80
"""Characters of a message's content that a comparison quotes."""

Message = dict[str, Any]
"""A projected message; its keys are those of `message_of`."""


class LogEvent(NamedTuple):
    """One event of a log. `time` is the text received (ISO 8601), None when there was none."""

    seq: int
    type: str
    data: Mapping[str, Any]
    time: str | None = None


# -- building ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rejection:
    """An event that a log would not take. `index` is its place among those offered."""

    index: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class BuiltLog:
    """A log and what was left out of it; `next_seq` is the seq of the event to come."""

    events: list[LogEvent]
    rejected: list[Rejection]
    next_seq: int


def build_log(raw: Iterable[Mapping[str, Any]], first_seq: int = 0) -> BuiltLog:
    """A log of the events offered as `{type, data, time}`, numbered from `first_seq`.

    A rejected event takes no seq, and the ones around it are kept. Linear; the data are shared
    with `raw`. Source: vectors `log.json`.
    """
    events: list[LogEvent] = []
    rejected: list[Rejection] = []
    seq = first_seq
    for index, item in enumerate(raw):
        reason = fault_of(item["type"], item["data"])
        if reason is not None:
            rejected.append(Rejection(index, reason))
            continue
        events.append(LogEvent(seq, item["type"], item["data"], item.get("time")))
        seq += 1
    return BuiltLog(events, rejected, seq)


# -- the visible surface -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Transcript:
    """What the model sees of a log, and what it no longer sees.

    `surface`: the visible events, by position. `hidden_by`: for each hidden event the seq of
    the replace that hid it first. `hid`: for each replace of the log the seqs it was the first
    to hide, ascending; empty when it only moved a message or came too late.
    """

    surface: list[LogEvent]
    hidden_by: dict[int, int]
    hid: dict[int, list[int]]

    @property
    def surface_seqs(self) -> list[int]:
        """Seqs of the visible events, in display order."""
        return [event.seq for event in self.surface]

    @property
    def messages(self) -> list[Message]:
        """The projected messages, in display order. Made anew at each call."""
        return [message_of(event) for event in self.surface]


@dataclass(slots=True)
class _Placed:
    """The surface events of a log in ascending seq, the position of each, and the range of
    those that are replaces, by index."""

    events: list[LogEvent] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    ranges: dict[int, tuple[int, int]] = field(default_factory=dict)


def position_of(event: LogEvent) -> int:
    """Where a surface event stands: at its own seq, or at the start of what it replaces."""
    span = replace_range(event.data.get("surface_op"))
    return event.seq if span is None else span[0]


def transcript_of(events: Iterable[LogEvent]) -> Transcript:
    """The transcript of a log in ascending seq; types we don't know project to nothing.

    A replace hides every surface event of a smaller seq whose *position* lies in its range,
    both ends included; earlier replaces stand at their start. What a hidden replace hid stays
    hidden. Costs O(n log n) for n events, however many of them are replaces.
    Raises ValueError when the seqs don't ascend. Source: vectors `log.json`.
    """
    placed = _place(events)
    if not placed.ranges:
        return Transcript(placed.events, {}, {})
    hid: dict[int, list[int]] = {placed.events[index].seq: [] for index in placed.ranges}
    hidden_by: dict[int, int] = {}
    visible: list[tuple[int, LogEvent]] = []
    for event, position, by in zip(
        placed.events, placed.positions, _first_hiders(placed), strict=True
    ):
        if by is None:
            visible.append((position, event))
        else:
            hidden_by[event.seq] = by
            hid[by].append(event.seq)
    visible.sort(key=itemgetter(0))  # stable: equal positions keep seq order
    return Transcript([event for _, event in visible], hidden_by, hid)


def _place(events: Iterable[LogEvent]) -> _Placed:
    placed = _Placed()
    last: int | None = None
    for event in events:
        seq = event.seq
        if last is not None and seq <= last:
            raise ValueError(f"The seqs of a log must ascend, but {seq} follows {last}.")
        last = seq
        if event.type not in SURFACE_TYPES:
            continue
        surface_op = event.data.get("surface_op")
        span = None if surface_op is None else replace_range(surface_op)
        if span is not None:
            placed.ranges[len(placed.events)] = span
        placed.events.append(event)
        placed.positions.append(seq if span is None else span[0])
    return placed


def _first_hiders(placed: _Placed) -> list[int | None]:
    """For each event the smallest seq of a later replace whose range holds its position.

    Walks the log backwards, so that a replace met later is the earlier one and wins. The
    ranges live in a segment tree over the stretches between their ends: marking a range and
    asking at a position both cost the logarithm of the number of replaces.
    """
    ends = sorted({end for span in placed.ranges.values() for end in _half_open(span)})
    width = len(ends) + 1  # stretch i holds the positions from ends[i-1] up to ends[i]
    marks: list[int | None] = [None] * (2 * width)
    found: list[int | None] = []
    for index in range(len(placed.events) - 1, -1, -1):
        stretch = bisect_right(ends, placed.positions[index])
        found.append(_earliest_mark(marks, width + stretch))
        span = placed.ranges.get(index)
        if span is not None:
            start, after = _half_open(span)
            low, high = bisect_left(ends, start) + 1, bisect_left(ends, after) + 1
            _mark(marks, width + low, width + high, placed.events[index].seq)
    found.reverse()
    return found


def _half_open(span: tuple[int, int]) -> tuple[int, int]:
    return span[0], span[1] + 1


def _earliest_mark(marks: Sequence[int | None], node: int) -> int | None:
    earliest: int | None = None
    while node:
        mark = marks[node]
        if mark is not None and (earliest is None or mark < earliest):
            earliest = mark
        node >>= 1
    return earliest


def _mark(marks: list[int | None], low: int, high: int, seq: int) -> None:
    """Mark the stretches from `low` up to `high`; the walk makes each new seq the smallest."""
    while low < high:
        if low & 1:
            marks[low] = seq
            low += 1
        if high & 1:
            high -= 1
            marks[high] = seq
        low >>= 1
        high >>= 1


# -- messages ------------------------------------------------------------------------------


def message_of(event: LogEvent) -> Message:
    """The message that a surface event projects to.

    Every field comes from the event as it is; only a missing, null or false `tool_calls` or
    `metadata` gives way to an empty one. `created_at` is the event's time in UTC, or its text
    when that is no time. Source: vectors `log.json`.
    """
    data = event.data
    return {
        "role": ROLES[event.type],
        "content": data.get("content"),
        "name": data.get("name"),
        "metadata": _given(data.get("metadata"), {}),
        "tool_calls": _given(data.get("tool_calls"), []),
        "tool_call_id": data.get("tool_call_id"),
        "reasoning_content": data.get("reasoning_content"),
        "created_at": None if event.time is None else utc_text(event.time) or event.time,
    }


def _given(value: Any, default: Any) -> Any:
    return default if value is None or value is False else value


def call_entries(tool_calls: object) -> list[dict[str, Any]]:
    """The calls named by a message's `tool_calls`: a list's maps, or a single map."""
    if isinstance(tool_calls, dict):
        return [tool_calls]
    if not isinstance(tool_calls, list):
        return []
    return [entry for entry in tool_calls if isinstance(entry, dict)]


_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d+))?"
    r"(?:Z|([+-])(\d\d)(?::?(\d\d))?)",
    re.ASCII,
)
_CYCLE = 2000  # the calendar repeats every 400 years; Python's has no year 0


def utc_text(text: str) -> str | None:
    """A time as upstream writes it: UTC with `Z`, its precision kept, cut to six digits.

    Needs date, seconds and offset. None for text that is no such time, and for a moment
    outside the years 0000 to 9999. Source: vectors `log.json` and `context_blob.json`.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    fraction = f".{match[7][:6]}" if match[7] else ""
    year, month, day, hour, minute, second = map(int, match.groups()[:6])
    lift = _CYCLE if year < _CYCLE else 0
    try:
        moment = datetime(year + lift, month, day, hour, minute, second, tzinfo=UTC)
        if match[9]:
            moment -= _offset(match[8], match[9], match[10])
    except (ValueError, OverflowError):
        return None
    if moment.year < lift:
        return None
    return f"{moment.year - lift:04d}{moment.isoformat()[4:19]}{fraction}Z"


def _offset(sign: str, hours: str, minutes: str | None) -> timedelta:
    if int(hours) > 23 or int(minutes or 0) > 59:
        raise ValueError
    ahead = timedelta(hours=int(hours), minutes=int(minutes or 0))
    return -ahead if sign == "-" else ahead


# -- can it be sent, and was it what was sent ----------------------------------------------


@dataclass(frozen=True, slots=True)
class Orphan:
    """A tool message that no earlier assistant message called; `index` among the messages."""

    index: int
    tool_call_id: Any


def orphans_of(messages: Iterable[Mapping[str, Any]]) -> list[Orphan]:
    """All orphaned tool results, in order: model providers reject a request that holds one.

    Ids are compared as JSON values (5 and "5" differ; a call without id pairs with a result
    without id). Linear. Source: vectors `invariant.json`, which name the first one only.
    """
    called: set[object] = set()
    orphans: list[Orphan] = []
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            called.update(_id_key(call.get("id")) for call in call_entries(message["tool_calls"]))
        elif message["role"] == "tool" and _id_key(message["tool_call_id"]) not in called:
            orphans.append(Orphan(index, message["tool_call_id"]))
    return orphans


def _id_key(value: object) -> object:
    """Something hashable that is equal for equal JSON values only."""
    return value if isinstance(value, str) else (canonical(value),)


class MismatchKind(StrEnum):
    """How a request differs from its log."""

    EXTRA_MESSAGE = "extra_message"
    MISSING_MESSAGE = "missing_message"
    CHANGED_MESSAGE = "changed_message"
    CHANGED_ORDER = "changed_order"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Where and how a request parts from its log.

    `index`: the first message that differs. `extra`: messages sent that the log doesn't hold,
    `missing`: messages of the log that were not sent; each as `{role, name, preview,
    tool_call_id, tool_calls}` (their number), a system message as its role alone. An allowed
    leading system message counts neither in `index` nor in `request_length`.
    """

    kind: MismatchKind
    index: int
    log_length: int
    request_length: int
    extra: list[Message] = field(default_factory=list)
    missing: list[Message] = field(default_factory=list)


def compare_request(
    request: Sequence[Mapping[str, Any]], messages: Sequence[Mapping[str, Any]]
) -> Mismatch | None:
    """How the messages sent differ from those the log projects to, or None.

    Compared are role, content, tool_calls, tool_call_id and name as JSON values; of a system
    message the role alone. One leading system message that has no event is allowed: runners
    put the prompt there. Linear in the weight of both. Source: vectors `invariant.json`; the
    two kinds they don't show (`changed_*`) are ours.
    """
    sent = _without_prompt(request, messages)
    sent_prints = [_fingerprint(message) for message in sent]
    log_prints = [_fingerprint(message) for message in messages]
    if sent_prints == log_prints:
        return None
    extra = _left_over(sent, sent_prints, log_prints)
    missing = _left_over(messages, log_prints, sent_prints)
    return Mismatch(
        kind=_mismatch_kind(bool(extra), bool(missing)),
        index=_first_difference(sent_prints, log_prints),
        log_length=len(messages),
        request_length=len(sent),
        extra=extra,
        missing=missing,
    )


def _without_prompt(
    request: Sequence[Mapping[str, Any]], messages: Sequence[Mapping[str, Any]]
) -> Sequence[Mapping[str, Any]]:
    if not request or request[0].get("role") != "system":
        return request
    if messages and messages[0].get("role") == "system":
        return request
    return request[1:]


def _fingerprint(message: Mapping[str, Any]) -> str:
    if message.get("role") == "system":
        return "system"
    return canonical(
        [
            message.get("role"),
            message.get("content"),
            _given(message.get("tool_calls"), []),
            message.get("tool_call_id"),
            message.get("name"),
        ]
    )


def _first_difference(left: Sequence[str], right: Sequence[str]) -> int:
    shorter = min(len(left), len(right))
    return next((i for i in range(shorter) if left[i] != right[i]), shorter)


def _left_over(
    messages: Sequence[Mapping[str, Any]], prints: Sequence[str], others: Sequence[str]
) -> list[Message]:
    """Those messages that have no counterpart among the others, each counterpart used once."""
    unmatched = Counter(others)
    left: list[Message] = []
    for message, print_ in zip(messages, prints, strict=True):
        if unmatched[print_]:
            unmatched[print_] -= 1
        else:
            left.append(_described(message))
    return left


def _mismatch_kind(extra: bool, missing: bool) -> MismatchKind:
    if extra and missing:
        return MismatchKind.CHANGED_MESSAGE
    if extra:
        return MismatchKind.EXTRA_MESSAGE
    return MismatchKind.MISSING_MESSAGE if missing else MismatchKind.CHANGED_ORDER


def _described(message: Mapping[str, Any]) -> Message:
    if message.get("role") == "system":
        return {"role": "system"}
    return {
        "role": message.get("role"),
        "name": message.get("name"),
        "preview": _preview(message.get("content")),
        "tool_call_id": message.get("tool_call_id"),
        "tool_calls": len(call_entries(message.get("tool_calls"))),
    }


def _preview(content: object) -> str | None:
    if content is None:
        return None
    text = content if isinstance(content, str) else canonical(content)
    return text if len(text) <= PREVIEW_LENGTH else text[: PREVIEW_LENGTH - 1] + "…"
