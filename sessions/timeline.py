"""The reading layer: rows → frozen views, with a bounded number of queries and rows.

JSON and HTML call the same functions, so they can't disagree. Nothing here parses more than
`HEAD_CHARACTERS` of a stored text: what is longer is shown cut, with its size.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, Q
from django.db.models.functions import Left, Length

from .core import strict_json
from .core.events import Disposition, Reason, is_integer
from .core.reducer import OperationRefused, parse_operation
from .core.times import parse_time
from .models import Epoch, Event, Refusal, Session, Step, Turn, Update, Workspace
from .shown import Shown, shown, shown_cut

HEAD_CHARACTERS = 24_000
"""What is read of a stored text for a page; longer ones are shown cut."""
STEPS_A_PAGE = 20
ENTRIES_A_PAGE = 100


class BadCursor(ValueError):
    """A cursor that no page gave."""


# -- sessions ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionPage:
    """Sessions with the newest activity first; `next_cursor` leads on, None at the end."""

    sessions: list[Session]
    next_cursor: str | None


def get_session(workspace: Workspace, key: str) -> Session:
    """The session with this key. Raises Session.DoesNotExist. One query."""
    rows = Session.objects.select_related("open_turn", "open_step", "parent")
    return rows.get(workspace=workspace, key=key)


def list_sessions(
    workspace: Workspace,
    *,
    agent: str | None = None,
    status: str | None = None,
    lost: bool | None = None,
    text: str | None = None,
    after: str | None = None,
    limit: int = 50,
) -> SessionPage:
    """A page of sessions, at most `limit`; `text` is the beginning of a key. One query.

    Raises BadCursor.
    """
    rows = Session.objects.filter(workspace=workspace).select_related(
        "open_turn", "open_step", "parent"
    )
    if agent is not None:
        rows = rows.filter(agent_name=agent)
    if status is not None:
        rows = rows.filter(status=status)
    if lost is not None:
        has_lost = Q(dropped__gt=0) | Q(refused__gt=0) | Q(invalid__gt=0)
        rows = rows.filter(has_lost if lost else ~has_lost)
    if text:
        rows = rows.filter(key__startswith=text)
    if after:
        moment, pk = _read_cursor(after)
        rows = rows.filter(last_activity_at__lte=moment).filter(
            Q(last_activity_at__lt=moment) | Q(pk__lt=pk)
        )
    found = list(rows.by_activity()[: limit + 1])
    cursor = _cursor(found[limit - 1]) if len(found) > limit else None
    return SessionPage(found[:limit], cursor)


def changed_sessions(workspace: Workspace, since: datetime, limit: int = 100) -> int:
    """How many sessions were active after `since`, counted to `limit`. One query."""
    rows = Session.objects.filter(workspace=workspace, last_activity_at__gt=since)
    return len(rows.values_list("pk", flat=True)[:limit])


def _cursor(session: Session) -> str:
    text = f"{session.last_activity_at.isoformat()}|{session.pk}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read_cursor(cursor: str) -> tuple[datetime, int]:
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True).decode()
        moment, _, pk = text.partition("|")
        if not (pk.isascii() and pk.isdecimal() and len(pk) < 19):
            raise BadCursor(cursor)
        found = datetime.fromisoformat(moment)
    except (binascii.Error, UnicodeError, ValueError):
        raise BadCursor(cursor) from None
    if found.tzinfo is None or not 1970 <= found.year <= 9000:
        raise BadCursor(cursor)
    return found, int(pk)


# -- rows ----------------------------------------------------------------------------------


def events_after(session: Session, ordinal: int, limit: int) -> list[Event]:
    """Events of every disposition in ordinal order. One query."""
    rows = Event.objects.filter(session=session, ordinal__gt=ordinal).select_related("update")
    return list(rows.order_by("ordinal")[:limit])


def updates_after(session: Session, version: int, limit: int) -> list[Update]:
    """Updates in version order. One query."""
    rows = Update.objects.filter(session=session, version__gt=version)
    return list(rows.order_by("version")[:limit])


# -- entries -------------------------------------------------------------------------------

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
class OperationView:
    """One operation of an update. `fate` is what became of a `log_event`."""

    name: str
    key: str
    value: Shown | None
    fate: str = ""


@dataclass(frozen=True, slots=True)
class CallView:
    """A tool call of an assistant message."""

    id: str
    name: str
    arguments: Shown
    answered: bool = False


@dataclass(frozen=True, slots=True)
class PartView:
    """A part of a message's content: readable text, or JSON."""

    text: str
    is_json: bool = False
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of the timeline, ready to be shown. `kind`: `update`, `message`, `tool_result`,
    `tool_call`, `mark` (a turn or step opens or closes) or `raw`."""

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
    operation_index: int | None = None

    @property
    def is_lost(self) -> bool:
        return self.disposition not in ("", Disposition.LOGGED)


@dataclass(frozen=True, slots=True)
class StepEntries:
    """Entries in ordinal order; `next_ordinal` to go on after, None at the end."""

    entries: list[Entry]
    next_ordinal: int | None


def step_entries(
    step: Step,
    *,
    after_ordinal: int = 0,
    upto: int | None = None,
    limit: int = ENTRIES_A_PAGE,
    lost_only: bool = False,
) -> StepEntries:
    """The step's updates and events merged in ordinal order, at most `limit`, up to and with
    the ordinal `upto`. Two queries (one with `lost_only`: only lost events then)."""
    rows = _rows(Q(step=step), after_ordinal, upto, limit + 1, lost_only)
    more = rows[limit - 1].ordinal if len(rows) > limit else None
    return StepEntries(_entries(rows[:limit], step.session.started_at, {step.pk: step}), more)


def entry_at(session: Session, ordinal: int) -> Update | Event | None:
    """The update or event with this ordinal, whole. At most two queries."""
    for model in (Event, Update):
        row = model.objects.select_related("step__turn").filter(session=session, ordinal=ordinal)
        for found in row:
            return found  # type: ignore[return-value]
    return None


def entry_view(row: Update | Event, session: Session) -> Entry:
    """One row as an entry; its text is read whole, up to a limit."""
    row.head = _text_of(row)[:HEAD_CHARACTERS]  # type: ignore[union-attr]
    row.size = len(_text_of(row))  # type: ignore[union-attr]
    return _entries([row], session.started_at, {row.step_id: row.step})[0]


def _text_of(row: Update | Event) -> str:
    return row.operations if isinstance(row, Update) else row.data


def _rows(
    where: Q, after: int, upto: int | None, limit: int, lost_only: bool
) -> list[Update | Event]:
    span = Q(ordinal__gt=after)
    if upto is not None:
        span &= Q(ordinal__lte=upto)
    events = (
        Event.objects.filter(where & span)
        .defer("data", "answer")
        .annotate(
            head=Left("data", HEAD_CHARACTERS),
            size=Length("data"),
            update_version=F("update__version"),
        )
        .order_by("ordinal")
    )
    if lost_only:
        return list(events.lost()[:limit])
    updates = (
        Update.objects.filter(where & span)
        .defer("operations", "answer")
        .annotate(head=Left("operations", HEAD_CHARACTERS), size=Length("operations"))
        .order_by("ordinal")
    )
    rows: list[Update | Event] = [*updates[:limit], *events[:limit]]
    rows.sort(key=lambda row: row.ordinal)
    return rows[:limit]


def _entries(
    rows: Sequence[Update | Event], started_at: datetime, steps: dict[int, Step]
) -> list[Entry]:
    answered = {
        str(data["tool_call_id"])
        for row in rows
        if isinstance(row, Event) and row.type == "tool_result"
        for data in [_parsed(row)]
        if isinstance(data, dict) and data.get("tool_call_id") is not None
    }
    found = []
    for row in rows:
        step = steps[row.step_id]
        abandoned = step.abandoned_from is not None and row.ordinal >= step.abandoned_from
        if isinstance(row, Update):
            found.append(_update_entry(row, started_at, abandoned))
        else:
            found.append(_event_entry(row, started_at, abandoned, answered))
    return found


def _parsed(row: Any) -> Any:
    """The row's JSON, or None when it is too long to be parsed for a page."""
    if row.size > len(row.head):
        return None
    try:
        return strict_json.loads(row.head)
    except strict_json.StrictJSONError:
        return None


def _update_entry(row: Any, started_at: datetime, abandoned: bool) -> Entry:
    fates = strict_json.loads(row.log_events)
    operations, left = _operation_views(row, fates)
    return Entry(
        **_common(row, row.occurred_at, started_at, abandoned),
        kind="update",
        type="update",
        disposition="",
        version=row.version,
        path=row.path,
        operations=operations,
        operations_left=left,
        data=None if operations else shown_cut(row.head, row.size),
        differs=[strict_json.visible(key) for key in strict_json.loads(row.differs)],
        context_refusal=row.context_refusal,
        call_id=row.tool_call_id or "",
        name=row.tool_name or "",
        lost=sum(fate["disposition"] != "logged" for fate in fates),
    )


_MOST_OPERATIONS = 50


def _operation_views(row: Any, fates: list[dict[str, Any]]) -> tuple[list[OperationView], int]:
    raw = _parsed(row)
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
        fate = ""
        if operation.name == "log_event":
            fate = _fate(next(waiting, None))
        value = None if operation.name == "delete" else shown(operation.value)
        views.append(OperationView(operation.name, strict_json.visible(operation.key), value, fate))
    return views, len(raw) - len(views)


def _fate(said: dict[str, Any] | None) -> str:
    if said is None:
        return ""
    if said["disposition"] != "logged":
        return str(said["disposition"])
    again = ", came by broadcast first" if said.get("duplicate") else ""
    return f"logged as seq {said['seq']}{again}"


def _event_entry(row: Any, started_at: datetime, abandoned: bool, answered: set[str]) -> Entry:
    data = _parsed(row)
    why, remedy = WHY_LOST.get(Reason(row.reason), ("", "")) if row.reason else ("", "")
    common = {
        **_common(row, row.time, started_at, abandoned),
        "type": strict_json.visible(row.type),
        "disposition": row.disposition,
        "seq": row.seq,
        "why": why,
        "remedy": remedy,
        "update_version": row.update_version if hasattr(row, "update_version") else None,
        "operation_index": row.operation_index,
    }
    if not isinstance(data, dict):
        return Entry(**common, kind="raw", data=shown_cut(row.head, row.size))
    reader = _READERS.get(row.type, _raw)
    return Entry(**common, **reader(row, data, answered))


def _common(row: Any, time: str | None, started_at: datetime, abandoned: bool) -> dict[str, Any]:
    moment = parse_time(time)
    at = moment or row.received_at
    return {
        "ordinal": row.ordinal,
        "epoch": row.epoch,
        "abandoned": abandoned,
        "time": moment,
        "time_text": time or "",
        "offset": at - started_at if 1900 < at.year < 9000 else None,
        "received_at": row.received_at,
    }


# -- what an event says --------------------------------------------------------------------


def _message(row: Any, data: dict[str, Any], answered: set[str]) -> dict[str, Any]:
    reasoning = data.get("reasoning_content")
    return {
        "kind": "message",
        "parts": _parts(data.get("content")),
        "reasoning": _part(reasoning) if reasoning else None,
        "calls": _calls(data.get("tool_calls"), answered),
        "name": _text(data.get("name")),
        "source": _text(data.get("source")),
        "note": _replace_note(data),
        "data": shown(data),
    }


def _tool_result(row: Any, data: dict[str, Any], answered: set[str]) -> dict[str, Any]:
    metadata = data.get("metadata")
    failed = isinstance(metadata, dict) and bool(
        metadata.get("error") or metadata.get("is_error") or metadata.get("status") == "error"
    )
    return {
        "kind": "tool_result",
        "parts": _parts(data.get("content")),
        "call_id": _text(data.get("tool_call_id")),
        "name": _text(data.get("name")),
        "is_error": failed,
        "note": _replace_note(data),
        "data": shown(data),
    }


def _tool_call(row: Any, data: dict[str, Any], answered: set[str]) -> dict[str, Any]:
    arguments = data.get("arguments")
    return {
        "kind": "tool_call",
        "call_id": _text(data.get("id")),
        "name": _text(data.get("name")),
        "source": _text(data.get("source")),
        "parts": [] if arguments is None else [_json_part(arguments)],
        "note": _text(data.get("mode")),
        "data": shown(data),
    }


def _mark(row: Any, data: dict[str, Any], answered: set[str]) -> dict[str, Any]:
    said = [
        f"the runner calls it {name} {_text(data[name])}"
        for name, counted in (("turn", row.turn_number), ("step", row.step_number))
        if name in data
        and not (is_integer(data[name]) and data[name] == counted)
        and not (name == "step" and row.type.startswith("turn"))
    ]
    return {
        "kind": "mark",
        "name": _text(data.get("outcome") if row.type == "step_end" else data.get("reason")),
        "is_error": data.get("outcome") == "error",
        "note": "; ".join(said),
        "data": shown(data),
    }


def _raw(row: Any, data: dict[str, Any], answered: set[str]) -> dict[str, Any]:
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


def _calls(calls: Any, answered: set[str]) -> list[CallView]:
    if isinstance(calls, dict):
        calls = [calls]
    if not isinstance(calls, list):
        return []
    return [
        CallView(
            _text(call.get("id")),
            _text(call.get("name")),
            shown(call.get("arguments")),
            str(call.get("id")) in answered,
        )
        for call in calls[:100]
        if isinstance(call, dict)
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
    text = strict_json.visible(value)
    limit = 6000
    return PartView(text[:limit], cut=len(text) > limit)


def _json_part(value: Any) -> PartView:
    view = shown(value)
    return PartView(view.text, is_json=True, cut=view.cut)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return strict_json.visible(value)[:300]
    return shown(value).text[:300]


def _replace_note(data: dict[str, Any]) -> str:
    operation = data.get("surface_op")
    if isinstance(operation, list) and len(operation) == 3 and operation[0] == "replace":
        return f"replaces positions {_text(operation[1])} to {_text(operation[2])}"
    return ""


# -- steps ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StepView:
    """A step of the timeline. `entries` is None where they are to be loaded when the step
    comes into view; `opens_turn` when its turn's heading belongs above it; `rewinds` are those
    that happened just before it."""

    step: Step
    turn: Turn
    opens_turn: bool
    rewinds: list[Epoch]
    entries: StepEntries | None
    abandoned: bool

    @property
    def duration(self) -> timedelta | None:
        return duration(self.step.started_at, self.step.ended_at)

    @property
    def turn_duration(self) -> timedelta | None:
        return duration(self.turn.started_at, self.turn.ended_at)


@dataclass(frozen=True, slots=True)
class StepsPage:
    """Steps in the order of their first ordinal. `next_after` leads on (None: this is the
    end of the session), `previous_before` back (None: this is its beginning). `cursor` and
    `epoch` are the newest that the page knows of, `tail_rewinds` those after its last step."""

    steps: list[StepView]
    next_after: int | None
    previous_before: int | None
    cursor: int
    epoch: int
    tail_rewinds: list[Epoch]


def duration(started: datetime | None, ended: datetime | None) -> timedelta | None:
    """The time between the two, None when either is missing; clocks may make it negative."""
    return ended - started if started is not None and ended is not None else None


def steps_page(
    session: Session,
    *,
    after: int | None = None,
    before: int | None = None,
    at: int | None = None,
    lost_only: bool = False,
    limit: int = STEPS_A_PAGE,
    inline: int = ENTRIES_A_PAGE,
) -> StepsPage:
    """A page of steps: those after the first ordinal `after`, or the last ones before
    `before`, or from the step on that holds the ordinal `at`; else the first ones.

    Entries come with the first steps, up to `inline` of them. At most 2 queries for every
    step with entries, at most `inline` rows of entries, and 5 more.
    """
    rows = Step.objects.filter(session=session).select_related("turn")
    if lost_only:
        rows = rows.filter(Q(dropped__gt=0) | Q(refused__gt=0) | Q(invalid__gt=0))
    around = 0
    if at is not None:
        found = entry_at(session, at)
        after = found.step.first_ordinal - 1 if found is not None else None
        around = at
    if before is not None:
        steps = list(rows.filter(first_ordinal__lt=before).order_by("-first_ordinal")[: limit + 1])
        has_previous, has_next = len(steps) > limit, before <= session.next_ordinal - 1
        steps = steps[:limit][::-1]
    else:
        steps = list(
            rows.filter(first_ordinal__gt=after or 0).order_by("first_ordinal")[: limit + 1]
        )
        has_previous, has_next = bool(after), len(steps) > limit
        steps = steps[:limit]
    first = steps[0].first_ordinal if steps else (after or 0) + 1
    last = steps[-1].first_ordinal if steps else 0
    rewinds = _rewinds(session, after or 0, last if has_next else None)
    return StepsPage(
        steps=_step_views(session, steps, rewinds, lost_only, inline, around),
        next_after=last if has_next and steps else None,
        previous_before=first if has_previous and steps else None,
        cursor=session.next_ordinal - 1,
        epoch=session.epoch,
        tail_rewinds=[] if has_next else [e for e in rewinds if e.first_ordinal > last],
    )


def _rewinds(session: Session, after: int, upto: int | None) -> list[Epoch]:
    rows = Epoch.objects.filter(session=session, first_ordinal__gt=after)
    if upto is not None:
        rows = rows.filter(first_ordinal__lte=upto)
    return list(rows.order_by("number")[:200])


def _step_views(
    session: Session,
    steps: list[Step],
    rewinds: list[Epoch],
    lost_only: bool,
    inline: int,
    around: int,
) -> list[StepView]:
    views = []
    left, turn_before, reached = inline, None, 0
    for index, step in enumerate(steps):
        step.session = session
        entries = None
        size = step.lost if lost_only else step.entries
        wanted = around if index == 0 and around else 0
        if left > 0 and (size <= left or index == 0):
            start = max(around - 20, 0) if wanted and size > inline else 0
            entries = step_entries(
                step,
                after_ordinal=start,
                upto=session.next_ordinal - 1,
                limit=inline,
                lost_only=lost_only,
            )
        left -= size
        own = [e for e in rewinds if reached < e.first_ordinal <= step.first_ordinal]
        reached = max(reached, step.first_ordinal)
        opens = step.turn_id != turn_before
        turn_before = step.turn_id
        whole = step.abandoned_from is not None and step.abandoned_from <= step.first_ordinal
        views.append(StepView(step, step.turn, opens, own, entries, whole))
    return views


def get_step(session: Session, pk: int) -> Step:
    """A step of this session. Raises Step.DoesNotExist."""
    step = Step.objects.select_related("turn").get(pk=pk, session=session)
    step.session = session
    return step


# -- following a session -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Group:
    """New entries of one step, in order; `is_new` when the step itself is."""

    step: Step
    is_new: bool
    entries: list[Entry]


@dataclass(frozen=True, slots=True)
class Changes:
    """What came after an ordinal: groups in ordinal order and the rewinds since `epoch`.
    `cursor` and `epoch` are where to go on; with `more` there is more right away."""

    groups: list[Group]
    rewinds: list[Epoch]
    cursor: int
    epoch: int
    more: bool

    def __bool__(self) -> bool:
        return bool(self.groups or self.rewinds)


def changes_since(
    session: Session,
    ordinal: int,
    epoch: int,
    *,
    lost_only: bool = False,
    limit: int = ENTRIES_A_PAGE,
) -> Changes:
    """The entries with a greater ordinal, at most `limit`, grouped by step. Ordinals are
    assigned under the session's lock, so a row can't appear behind the cursor later."""
    rows = _rows(Q(session=session), ordinal, None, limit + 1, lost_only)
    more = len(rows) > limit
    rows = rows[:limit]
    found = Step.objects.filter(pk__in={row.step_id for row in rows}).select_related("turn")
    steps = {step.pk: step for step in found}
    groups: list[Group] = []
    for row, entry in zip(rows, _entries(rows, session.started_at, steps), strict=True):
        step = steps[row.step_id]
        if not groups or groups[-1].step.pk != step.pk:
            groups.append(Group(step, step.first_ordinal > ordinal, []))
        groups[-1].entries.append(entry)
    rewinds = list(Epoch.objects.filter(session=session, number__gt=epoch).order_by("number")[:50])
    cursor = rows[-1].ordinal if more else max(session.next_ordinal - 1, ordinal)
    if rows:
        cursor = max(cursor, rows[-1].ordinal) if not more else rows[-1].ordinal
    return Changes(groups, rewinds, cursor, max([epoch, *(e.number for e in rewinds)]), more)


# -- the raw log, lost events, refusals ----------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogPage:
    """Entries in ordinal order; `next_ordinal` to go on after, None at the end."""

    entries: list[Entry]
    next_ordinal: int | None


def log_page(session: Session, after: int, limit: int = ENTRIES_A_PAGE) -> LogPage:
    """Every update and event of the session in ordinal order. Three queries."""
    rows = _rows(Q(session=session), after, None, limit + 1, False)
    more = rows[limit - 1].ordinal if len(rows) > limit else None
    rows = rows[:limit]
    steps = {step.pk: step for step in Step.objects.filter(pk__in={row.step_id for row in rows})}
    return LogPage(_entries(rows, session.started_at, steps), more)


@dataclass(frozen=True, slots=True)
class LostEvent:
    """A lost event with the session it belongs to."""

    id: int
    session: Session
    entry: Entry


@dataclass(frozen=True, slots=True)
class LostPage:
    """Lost events, the newest first; `next_before` leads on, None at the end."""

    events: list[LostEvent]
    next_before: int | None


def lost_events(
    workspace: Workspace,
    *,
    disposition: str | None = None,
    before: int | None = None,
    limit: int = ENTRIES_A_PAGE,
) -> LostPage:
    """Lost events across sessions, the newest first. One query."""
    rows = (
        Event.objects.lost()
        if disposition is None
        else Event.objects.filter(disposition=disposition).exclude(disposition=Disposition.LOGGED)
    )
    rows = rows.filter(session__workspace=workspace)
    if before is not None:
        rows = rows.filter(pk__lt=before)
    found = list(
        rows.defer("data", "answer")
        .select_related("session", "step")
        .annotate(
            head=Left("data", HEAD_CHARACTERS),
            size=Length("data"),
            update_version=F("update__version"),
        )
        .order_by("-pk")[: limit + 1]
    )
    more = found[limit - 1].pk if len(found) > limit else None
    views = [
        LostEvent(
            row.pk, row.session, _entries([row], row.session.started_at, {row.step_id: row.step})[0]
        )
        for row in found[:limit]
    ]
    return LostPage(views, more)


def refusals(session: Session, before: int | None, limit: int = 50) -> list[Refusal]:
    """Updates of the session that the reducer refused, the newest first. One query."""
    rows = Refusal.objects.filter(workspace_id=session.workspace_id, session_key=session.key)
    if before is not None:
        rows = rows.filter(pk__lt=before)
    return list(rows.defer("body").annotate(head=Left("body", 4000)).order_by("-pk")[:limit])
