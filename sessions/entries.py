"""Entries: an update or an event as a frozen view, ready to be shown.

Nothing here parses more than `HEAD_CHARACTERS` of a stored text: what is longer is shown cut, with
its size. Odd data never fails a page: what has no known shape is shown raw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from .core import strict_json
from .core.events import Disposition, Reason, is_integer
from .core.reducer import PROTECTED_KEYS, OperationRefused, parse_operation
from .core.times import parse_time
from .models import Event, Session, Step, Update
from .shown import CUT_CHARACTERS, Shown, is_tall, readable, shown, shown_cut

HEAD_CHARACTERS = 24_000
"""What is read of a stored text for a page; longer ones are shown cut."""

WHY_LOST = {
    Reason.NO_LOG: (
        "The tool ran on the RunContext path, which has no session log.",
        "Run the tool through Nous.AgentRunner: there the same update reaches the log.",
    ),
    Reason.SURFACE_TYPE: (
        "An update may not log an event that the model sees: it could smuggle content into the "
        "transcript.",
        "Log it as a bookkeeping event (tool_call, request_header, …), or let the runner add the "
        "message itself.",
    ),
    Reason.UNKNOWN_EVENT_TYPE: (
        "The session log does not know this event type.",
        "Use one of the known bookkeeping types: tool_call, turn_start, turn_end, step_start, "
        "step_end, request_header.",
    ),
    Reason.SURFACE_OP_ON_NON_SURFACE: (
        "An event that the model never sees carries a surface_op.",
        "Leave surface_op out: only messages can replace what the model saw.",
    ),
    Reason.INVALID_SURFACE_OP: (
        "Its surface_op is no possible one.",
        'Send "append" or ["replace", start, stop] with 0 ≤ start ≤ stop.',
    ),
}
"""Reason → (why it was lost, what would have kept it)."""


@dataclass(frozen=True, slots=True)
class Starts:
    """When the session started: by the runner's clock, and by ours. Times are told from the
    one that they were taken by."""

    runner: datetime
    server: datetime


def starts_of(session: Session) -> Starts:
    """The session's starts. The runner's is the time of its first event; one query, once for
    each session object."""
    known: Starts | None = session.__dict__.get("_starts")
    if known is None:
        first = Event.objects.filter(session=session).order_by("ordinal").values_list("time")[:1]
        moment = parse_time(first[0][0]) if first else None
        if moment is None or not 1900 < moment.year < 9000:
            moment = session.started_at
        known = session.__dict__["_starts"] = Starts(moment, session.started_at)
    return known


@dataclass(frozen=True, slots=True)
class OperationView:
    """One operation of an update. `fate` is what became of a `log_event`; `protected` says that
    some runners would drop it for its key."""

    name: str
    key: str
    value: Shown | None
    fate: str = ""
    protected: bool = False


@dataclass(frozen=True, slots=True)
class CallView:
    """A tool call of an assistant message; `answered_at` is the ordinal of its result, where
    that is among the entries shown with it."""

    id: str
    name: str
    arguments: Shown
    answered_at: int | None = None


@dataclass(frozen=True, slots=True)
class PartView:
    """A part of a message's content: readable text, or JSON."""

    text: str
    is_json: bool = False
    cut: bool = False

    @property
    def is_tall(self) -> bool:
        return is_tall(self.text)


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of the timeline, ready to be shown. `kind`: `update`, `message`, `tool_result`,
    `tool_call`, `mark` (a turn or step opens or closes) or `raw`. `called_at` is the ordinal of
    the assistant message whose call this belongs to, where that is among the entries shown;
    `between` how many entries of other steps lie between it and the one shown before it."""

    ordinal: int
    kind: str
    type: str
    disposition: str
    abandoned: bool
    time: datetime | None
    time_text: str
    offset: timedelta | None
    received_at: datetime
    seq: int | None = None
    epoch: int = 0
    why: str = ""
    remedy: str = ""
    note: str = ""
    parts: list[PartView] = field(default_factory=list)
    reasoning: PartView | None = None
    calls: list[CallView] = field(default_factory=list)
    call_id: str = ""
    called_at: int | None = None
    name: str = ""
    source: str = ""
    is_error: bool = False
    data: Shown | None = None
    # an update's
    version: int | None = None
    path: str = ""
    operations: list[OperationView] = field(default_factory=list)
    operations_left: int = 0
    differs: list[str] = field(default_factory=list)
    context_refusal: str = ""
    lost: int = 0
    # a lost event's
    update_version: int | None = None
    update_ordinal: int | None = None
    operation_index: int | None = None
    between: int = 0

    @property
    def is_lost(self) -> bool:
        return self.disposition not in ("", Disposition.LOGGED)

    @property
    def between_from(self) -> int:
        """The ordinal of the first entry that lies between."""
        return self.ordinal - self.between

    @property
    def role(self) -> str:
        """Who speaks in a message; empty for anything else."""
        return self.type.removesuffix("_message") if self.kind == "message" else ""


@dataclass(frozen=True, slots=True)
class _Row:
    """A row, its JSON (None when too long to be parsed, or not JSON), and what is known of its
    step: the ordinals of calls and of results by call id."""

    row: Any
    data: Any
    calls: dict[str, int]
    results: dict[str, int]


def entries_of(
    rows: Sequence[Update | Event], starts: Starts | None, steps: dict[int, Step]
) -> list[Entry]:
    """The rows as entries, in their order. `steps` holds the step of each by its id. Calls and
    results are joined within a step, among these rows only. Without `starts` no entry tells its
    time since the session's start."""
    calls: dict[int, dict[str, int]] = {}
    results: dict[int, dict[str, int]] = {}
    known = []
    for row in rows:
        own = _Row(
            row, _parsed(row), calls.setdefault(row.step_id, {}),
            results.setdefault(row.step_id, {}),
        )  # fmt: skip
        known.append(own)
        _note_calls(own)
    found = []
    for own in known:
        step = steps[own.row.step_id]
        abandoned = step.abandoned_from is not None and own.row.ordinal >= step.abandoned_from
        read = _update_entry if isinstance(own.row, Update) else _event_entry
        found.append(read(own, starts, abandoned))
    return found


def _note_calls(own: _Row) -> None:
    row, data = own.row, own.data
    if not isinstance(row, Event) or not isinstance(data, dict) or row.seq is None:
        return
    if row.type == "tool_result" and isinstance(data.get("tool_call_id"), str):
        own.results.setdefault(data["tool_call_id"], row.ordinal)
    if row.type == "assistant_message":
        for call in _call_list(data.get("tool_calls")):
            if isinstance(call.get("id"), str):
                own.calls[call["id"]] = row.ordinal


def _called_at(own: _Row, call_id: Any) -> int | None:
    """Where the call was made; one dispatched by code (`<call>:code:<n>`) belongs to its call."""
    if not isinstance(call_id, str):
        return None
    return own.calls.get(call_id) or own.calls.get(call_id.partition(":")[0])


def _parsed(row: Any) -> Any:
    """The row's JSON, or None when it is too long to be parsed for a page."""
    if row.size > len(row.head):
        return None
    try:
        return strict_json.loads(row.head)
    except strict_json.StrictJSONError:
        return None


def _update_entry(own: _Row, starts: Starts | None, abandoned: bool) -> Entry:
    row = own.row
    fates = strict_json.loads(row.log_events)
    operations, left = _operation_views(own.data, fates)
    return Entry(
        **_common(row, row.occurred_at, starts, abandoned),
        kind="update",
        type="update",
        disposition="",
        version=row.version,
        path=row.path,
        operations=operations,
        operations_left=left,
        data=None if operations else shown_cut(row.head, row.size),
        differs=[readable(key) for key in strict_json.loads(row.differs)],
        context_refusal=row.context_refusal,
        call_id=readable(row.tool_call_id or ""),
        called_at=_called_at(own, row.tool_call_id),
        name=readable(row.tool_name or ""),
        lost=sum(fate["disposition"] != "logged" for fate in fates),
    )


def protected_keys(update: Update) -> list[str]:
    """The keys of an update that some versions of Nous protect from tools, in its order."""
    return [key for key in strict_json.loads(update.keys) if key in PROTECTED_KEYS]


_MOST_OPERATIONS = 50


def _operation_views(raw: Any, fates: list[dict[str, Any]]) -> tuple[list[OperationView], int]:
    if not isinstance(raw, list):
        return [], 0
    views = []
    waiting = iter(fates)
    for index, item in enumerate(raw[:_MOST_OPERATIONS]):
        try:
            operation = parse_operation(item, index)
        except OperationRefused:  # it was taken once: never hide it
            views.append(OperationView("?", "", shown(item)))
            continue
        is_event = operation.name == "log_event"
        fate = _fate(next(waiting, None)) if is_event else ""
        value = None if operation.name == "delete" else shown(operation.value)
        protected = not is_event and operation.key in PROTECTED_KEYS
        views.append(OperationView(operation.name, readable(operation.key), value, fate, protected))
    return views, len(raw) - len(views)


def _fate(said: dict[str, Any] | None) -> str:
    if said is None:
        return ""
    if said["disposition"] != "logged":
        return str(said["disposition"])
    again = ", came by broadcast first" if said.get("duplicate") else ""
    return f"logged as seq {said['seq']}{again}"


def _event_entry(own: _Row, starts: Starts | None, abandoned: bool) -> Entry:
    row, data = own.row, own.data
    why, remedy = WHY_LOST.get(Reason(row.reason), ("", "")) if row.reason else ("", "")
    common = {
        **_common(row, row.time, starts, abandoned),
        "type": readable(row.type),
        "disposition": row.disposition,
        "seq": row.seq,
        "why": why,
        "remedy": remedy,
        "update_version": getattr(row, "update_version", None),
        "update_ordinal": getattr(row, "update_ordinal", None),
        "operation_index": row.operation_index,
    }
    if not isinstance(data, dict):
        return Entry(**common, kind="raw", data=shown_cut(row.head, row.size))
    reader = _READERS.get(row.type, _raw)
    return Entry(**common, **reader(own, data))


def _common(row: Any, time: str | None, starts: Starts | None, abandoned: bool) -> dict[str, Any]:
    moment = parse_time(time)
    offset = None
    if starts is not None:
        at, start = (moment, starts.runner) if moment else (row.received_at, starts.server)
        offset = at - start if 1900 < at.year < 9000 else None
    return {
        "ordinal": row.ordinal,
        "epoch": row.epoch,
        "abandoned": abandoned,
        "time": moment,
        "time_text": time or "",
        "offset": offset,
        "received_at": row.received_at,
    }


# -- what an event says --------------------------------------------------------------------


def _message(own: _Row, data: dict[str, Any]) -> dict[str, Any]:
    reasoning = data.get("reasoning_content")
    return {
        "kind": "message",
        "parts": _parts(data.get("content")),
        "reasoning": _part(reasoning) if reasoning else None,
        "calls": _calls(own, data.get("tool_calls")),
        "name": _text(data.get("name")),
        "source": _text(data.get("source")),
        "note": _replace_note(data),
        "data": shown(data),
    }


def _tool_result(own: _Row, data: dict[str, Any]) -> dict[str, Any]:
    metadata = data.get("metadata")
    failed = isinstance(metadata, dict) and bool(
        metadata.get("error") or metadata.get("is_error") or metadata.get("status") == "error"
    )
    return {
        "kind": "tool_result",
        "parts": _parts(data.get("content")),
        "call_id": _text(data.get("tool_call_id")),
        "called_at": _called_at(own, data.get("tool_call_id")),
        "name": _text(data.get("name")),
        "is_error": failed,
        "note": _replace_note(data),
        "data": shown(data),
    }


def _tool_call(own: _Row, data: dict[str, Any]) -> dict[str, Any]:
    arguments = data.get("arguments")
    return {
        "kind": "tool_call",
        "call_id": _text(data.get("id")),
        "called_at": _called_at(own, data.get("id")),
        "name": _text(data.get("name")),
        "source": _text(data.get("source")),
        "parts": [] if arguments is None else [_json_part(arguments)],
        "note": _text(data.get("mode")),
        "data": shown(data),
    }


def _mark(own: _Row, data: dict[str, Any]) -> dict[str, Any]:
    said = [
        f"the runner calls it {name} {_text(data[name])}"
        for name, counted in (("turn", own.row.turn_number), ("step", own.row.step_number))
        if name in data
        and not (is_integer(data[name]) and data[name] == counted)
        and not (name == "step" and own.row.type.startswith("turn"))
    ]
    return {
        "kind": "mark",
        "name": _text(data.get("outcome") if own.row.type == "step_end" else data.get("reason")),
        "is_error": data.get("outcome") == "error",
        "note": "; ".join(said),
        "data": shown(data),
    }


def _raw(own: _Row, data: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "raw", "data": shown(data)}


_READERS = {
    "system_message": _message,
    "user_message": _message,
    "assistant_message": _message,
    "tool_result": _tool_result,
    "tool_call": _tool_call,
    "turn_start": _mark,
    "turn_end": _mark,
    "step_start": _mark,
    "step_end": _mark,
}


def _call_list(calls: Any) -> list[dict[str, Any]]:
    """The calls of a message, whatever it holds: one alone counts as a list."""
    if isinstance(calls, dict):
        return [calls]
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _calls(own: _Row, calls: Any) -> list[CallView]:
    return [
        CallView(
            _text(call.get("id")),
            _text(call.get("name")),
            shown(call.get("arguments")),
            own.results.get(call["id"]) if isinstance(call.get("id"), str) else None,
        )
        for call in _call_list(calls)[:100]
    ]


def _parts(content: Any) -> list[PartView]:
    if content is None or content == "":
        return []
    if not isinstance(content, list):
        return [_part(content)]
    found = []
    for part in content[:100]:
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            found.append(_part(part["text"]))
        else:
            found.append(_part(part))
    return found


def _part(value: Any) -> PartView:
    if not isinstance(value, str):
        return _json_part(value)
    text = readable(value)
    return PartView(text[:CUT_CHARACTERS], cut=len(text) > CUT_CHARACTERS)


def _json_part(value: Any) -> PartView:
    view = shown(value)
    return PartView(view.text, is_json=True, cut=view.cut)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return readable(value)[:300]
    return shown(value).text[:300]


def _replace_note(data: dict[str, Any]) -> str:
    operation = data.get("surface_op")
    if isinstance(operation, list) and len(operation) == 3 and operation[0] == "replace":
        return f"replaces positions {_text(operation[1])} to {_text(operation[2])}"
    return ""
