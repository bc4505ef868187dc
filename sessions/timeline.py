"""The reading layer: rows → frozen views, with a bounded number of queries and rows.

JSON and HTML call the same functions, so they can't disagree. Nothing here parses more than
`HEAD_CHARACTERS` of a stored text: what is longer is shown cut, with its size.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.db.models import F, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce, Left, Length

from .core.events import Disposition
from .core.times import parse_time
from .entries import HEAD_CHARACTERS, Entry, entries_of, starts_of
from .models import Epoch, Event, Refusal, Session, Step, Turn, Update, Workspace

STEPS_A_PAGE = 20
ENTRIES_A_PAGE = 100
RAIL_STEPS = 100


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
    if text:  # not `startswith`: SQLite's LIKE takes A for a
        rows = rows.annotate(beginning=Left("key", len(text))).filter(beginning=text)
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


@dataclass(frozen=True, slots=True)
class StepEntries:
    """Entries in ordinal order; `next_ordinal` to go on after (None: the end), and
    `previous_ordinal` to go back before (None: the beginning)."""

    entries: list[Entry]
    next_ordinal: int | None
    previous_ordinal: int | None = None


def step_entries(
    step: Step,
    *,
    after_ordinal: int = 0,
    before_ordinal: int | None = None,
    upto: int | None = None,
    limit: int = ENTRIES_A_PAGE,
    lost_only: bool = False,
) -> StepEntries:
    """The step's updates and events merged in ordinal order, at most `limit`: those after
    `after_ordinal`, up to and with the ordinal `upto`, or the last ones before `before_ordinal`.
    Two queries (one with `lost_only`: only lost events then)."""
    where = Q(step=step)
    newest = step.session.next_ordinal - 1
    if before_ordinal is not None:
        past = min(before_ordinal - 1, newest)
        rows = _rows(where, 0, past, limit + 1, lost_only, backwards=True)
        earlier, more = len(rows) > limit, False
        rows = rows[-limit:]
    else:
        past = newest if upto is None else min(upto, newest)
        rows = _rows(where, after_ordinal, past, limit + 1, lost_only)
        earlier, more = after_ordinal >= step.first_ordinal, len(rows) > limit
        rows = rows[:limit]
    entries = entries_of(rows, starts_of(step.session), {step.pk: step})
    if not lost_only:
        entries = _with_gaps(entries, after_ordinal if earlier and not before_ordinal else 0)
    return StepEntries(
        entries,
        next_ordinal=rows[-1].ordinal if more else None,
        previous_ordinal=rows[0].ordinal if earlier and rows else None,
    )


def _with_gaps(entries: list[Entry], above: int = 0) -> list[Entry]:
    """The entries of one step, each with the number of other steps' entries that lie between it
    and the one before it: ordinals have no gaps. `above` is the ordinal shown before them."""
    found = []
    for entry in entries:
        found.append(replace(entry, between=entry.ordinal - above - 1) if above else entry)
        above = entry.ordinal
    return found


def entry_at(session: Session, ordinal: int) -> Update | Event | None:
    """The update or event with this ordinal, whole. At most two queries."""
    for model in (Event, Update):
        row = model.objects.select_related("step__turn").filter(session=session, ordinal=ordinal)
        for found in row:
            return found
    return None


def entry_view(row: Update | Event, session: Session) -> Entry:
    """One row as an entry; its text is read whole, up to a limit."""
    row.head = _text_of(row)[:HEAD_CHARACTERS]  # type: ignore[union-attr]
    row.size = len(_text_of(row))  # type: ignore[union-attr]
    return entries_of([row], starts_of(session), {row.step_id: row.step})[0]


def _text_of(row: Update | Event) -> str:
    return row.operations if isinstance(row, Update) else row.data


def _rows(
    where: Q,
    after: int,
    upto: int,
    limit: int,
    lost_only: bool,
    *,
    backwards: bool = False,
) -> list[Update | Event]:
    """Updates and events in ordinal order, up to and with the ordinal `upto`, at most `limit`:
    the first ones of the span, or the last ones. Of long texts only the beginning is read.

    The two are read by two statements, and a row may be committed between them. So `upto` must
    be known before: all of its rows and those before it are committed then.
    """
    order = "-ordinal" if backwards else "ordinal"
    span = Q(ordinal__gt=after, ordinal__lte=upto)
    events = (
        Event.objects.filter(where & span)
        .defer("data", "answer")
        .annotate(
            head=Left("data", HEAD_CHARACTERS),
            size=Length("data"),
            update_version=F("update__version"),
            update_ordinal=F("update__ordinal"),
        )
        .order_by(order)
    )
    if lost_only:
        lost = list(events.lost()[:limit])
        return [*reversed(lost)] if backwards else [*lost]
    updates = (
        Update.objects.filter(where & span)
        .defer("operations", "answer")
        .annotate(head=Left("operations", HEAD_CHARACTERS), size=Length("operations"))
        .order_by(order)
    )
    rows: list[Update | Event] = [*updates[:limit], *events[:limit]]
    rows.sort(key=lambda row: row.ordinal)
    return rows[-limit:] if backwards else rows[:limit]


# -- steps ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Group:
    """Entries of one step that follow one another, in order. `joins` when they go on with the
    step shown just above them, else they need a heading; `is_new` when that is the step's own,
    `opens_turn` when its turn's belongs there too."""

    step: Step
    joins: bool
    is_new: bool
    opens_turn: bool
    entries: list[Entry]

    @property
    def turn(self) -> Turn:
        return self.step.turn

    @property
    def duration(self) -> timedelta | None:
        return duration(self.step.started_at, self.step.ended_at)

    @property
    def turn_duration(self) -> timedelta | None:
        return duration(self.turn.started_at, self.turn.ended_at)


def _steps_by_id(rows: Sequence[Update | Event], known: Sequence[Step] = ()) -> dict[int, Step]:
    """The step of each row; one query for those that are not `known`."""
    steps = {step.pk: step for step in known}
    missing = {row.step_id for row in rows} - steps.keys()
    if missing:
        found = Step.objects.filter(pk__in=missing).select_related("turn")
        steps |= {step.pk: step for step in found}
    return steps


def _grouped(
    session: Session,
    rows: Sequence[Update | Event],
    steps: dict[int, Step],
    *,
    last: int | None = None,
    turn: int | None = None,
    shown: int | None = None,
) -> list[Group]:
    """The rows, in ordinal order, grouped by step. `last` and `turn` are the ids of the step
    and the turn shown above them; steps that began after the ordinal `shown` are new."""
    groups: list[Group] = []
    seen: set[int] = set()
    for row, entry in zip(rows, entries_of(rows, starts_of(session), steps), strict=True):
        step = steps[row.step_id]
        if not groups or groups[-1].step.pk != step.pk:
            joins = not groups and step.pk == last
            is_new = shown is not None and step.first_ordinal > shown and step.pk not in seen
            groups.append(Group(step, joins, is_new, is_new and step.turn_id != turn, []))
            seen.add(step.pk)
            turn = step.turn_id
        groups[-1].entries.append(entry)
    return groups


@dataclass(frozen=True, slots=True)
class Slice:
    """The entries from the first one of a step until the next step begins: the step's own, and
    what came meanwhile to others that had begun before, above all to the turn outside any step.
    So the slices of a session, one after another, are its entries in their total order.

    `next_ordinal` and `previous_ordinal` lead on and back within the slice, None at its ends;
    `after` and `upto` are the ordinals around it.
    """

    groups: list[Group]
    after: int
    upto: int
    next_ordinal: int | None
    previous_ordinal: int | None = None

    @property
    def last_step(self) -> Step | None:
        """The step whose entries stand last."""
        return self.groups[-1].step if self.groups else None

    @property
    def left_after(self) -> int:
        """How many entries follow in the slice: ordinals have no gaps."""
        return self.upto - self.next_ordinal if self.next_ordinal is not None else 0

    @property
    def left_before(self) -> int:
        """How many entries of the slice stand before these."""
        return self.previous_ordinal - 1 - self.after if self.previous_ordinal is not None else 0


def read_slice(
    session: Session,
    step: Step,
    *,
    after: int,
    upto: int,
    before: int | None = None,
    last: int | None = None,
    lost_only: bool = False,
    limit: int = ENTRIES_A_PAGE,
) -> Slice:
    """A page of the slice of `step`: the entries after the ordinal `after` up to and with
    `upto`, or the last ones of them before `before`. Four queries."""
    upto = min(upto, session.next_ordinal - 1)
    where = Q(session=session)
    if before is not None:
        rows = _rows(where, after, min(upto, before - 1), limit + 1, lost_only, backwards=True)
        earlier, more = len(rows) > limit, False
        rows = rows[-limit:]
    else:
        rows = _rows(where, after, upto, limit + 1, lost_only)
        earlier, more = False, len(rows) > limit
        rows = rows[:limit]
    return Slice(
        _grouped(session, rows, _steps_by_id(rows, [step]), last=last),
        after=after,
        upto=upto,
        next_ordinal=rows[-1].ordinal if more else None,
        previous_ordinal=rows[0].ordinal if earlier else None,
    )


@dataclass(frozen=True, slots=True)
class StepView:
    """A step of the timeline. `slice` is None where its entries are to be loaded when the step
    comes into view; it ends with the ordinal `upto`. `opens_turn` when its turn's heading
    belongs above it; `rewinds` are those that happened just before it."""

    step: Step
    opens_turn: bool = False
    rewinds: Sequence[Epoch] = ()
    upto: int = 0
    slice: Slice | None = None

    @property
    def turn(self) -> Turn:
        return self.step.turn

    @property
    def after(self) -> int:
        """The ordinal before the step's first one."""
        return self.step.first_ordinal - 1

    @property
    def abandoned(self) -> bool:
        """Whether a rewind abandoned all of it."""
        step = self.step
        return step.abandoned_from is not None and step.abandoned_from <= step.first_ordinal

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

    @property
    def last_step(self) -> Step | None:
        """The step whose entries stand last, as far as the page knows."""
        if not self.steps:
            return None
        groups = self.steps[-1].slice.groups if self.steps[-1].slice else []
        return groups[-1].step if groups else self.steps[-1].step


def duration(started: datetime | None, ended: datetime | None) -> timedelta | None:
    """The time between the two, None when either is missing; clocks may make it negative."""
    return ended - started if started is not None and ended is not None else None


def steps_page(
    session: Session,
    *,
    after: int | None = None,
    before: int | None = None,
    at: int | None = None,
    end: bool = False,
    lost_only: bool = False,
    limit: int = STEPS_A_PAGE,
    inline: int = ENTRIES_A_PAGE,
    goes_on: bool = False,
) -> StepsPage:
    """A page of steps: those after the first ordinal `after`, or the last ones before
    `before`, or the last ones (`end`), or from the one on in whose slice the ordinal `at` lies;
    else the first ones. With `goes_on` the page stands below the step before it, whose turn
    needs no second heading.

    Entries come with the first steps, or with `end` the last ones, up to `inline` of them. At
    most 7 queries, whatever the session holds.
    """
    cursor = session.next_ordinal - 1
    rows = _steps_of(session, lost_only).filter(first_ordinal__lte=cursor)
    if end:
        before = cursor + 1
    if before is not None:
        found = list(rows.filter(first_ordinal__lt=before).order_by("-first_ordinal")[: limit + 1])
        has_previous, has_next = len(found) > limit, before <= cursor
        above, past = (found[limit].first_ordinal if has_previous else 0), before
        steps = found[:limit][::-1]
    else:
        following = rows.filter(first_ordinal__gt=after or 0)
        if at is not None:
            holder = rows.filter(first_ordinal__lte=at).order_by("-first_ordinal")
            start = Subquery(holder.values("first_ordinal")[:1])
            following = rows.filter(first_ordinal__gte=Coalesce(start, 0))
        found = list(following.order_by("first_ordinal")[: limit + 1])
        if at is not None and found:
            after = found[0].first_ordinal - 1
        has_previous, has_next = bool(after), len(found) > limit
        above, past = after or 0, found[limit].first_ordinal if has_next else cursor + 1
        steps = found[:limit]
    for step in steps:
        step.session = session
    last = steps[-1].first_ordinal if steps else above
    rewinds = _rewinds(session, above, last if has_next else cursor + 1)
    turn_above = None
    if goes_on and above:
        turn_above = rows.filter(first_ordinal__lte=above).order_by("-first_ordinal").first()
    views = _step_views(steps, past - 1, rewinds, turn_above.turn_id if turn_above else None)
    if views and end:
        views = _fill_from_end(session, views, lost_only, inline)
    elif views:
        views = _fill(session, views, lost_only, inline, min(at or 0, cursor))
    return StepsPage(
        steps=views,
        next_after=last if has_next and steps else None,
        previous_before=steps[0].first_ordinal if has_previous and steps else None,
        cursor=cursor,
        epoch=session.epoch,
        tail_rewinds=[] if has_next else [e for e in rewinds if e.first_ordinal > last],
    )


def _steps_of(session: Session, lost_only: bool) -> QuerySet[Step]:
    rows = Step.objects.filter(session=session).select_related("turn")
    if lost_only:
        rows = rows.filter(Q(dropped__gt=0) | Q(refused__gt=0) | Q(invalid__gt=0))
    return rows


def _rewinds(session: Session, after: int, upto: int) -> list[Epoch]:
    """Rewinds between two ordinals, the last 200 of them. The first ordinal of the newest one
    may not be there yet."""
    rows = Epoch.objects.filter(
        session=session, number__lte=session.epoch, first_ordinal__gt=after, first_ordinal__lte=upto
    )
    return list(rows.order_by("-number")[:200])[::-1]


def _step_views(
    steps: list[Step], upto: int, rewinds: list[Epoch], turn_above: int | None
) -> list[StepView]:
    """The steps without their entries; the slice of the last one ends with the ordinal `upto`."""
    ends = [*(step.first_ordinal - 1 for step in steps[1:]), upto][: len(steps)]
    views = []
    reached = 0
    for step, end in zip(steps, ends, strict=True):
        own = [epoch for epoch in rewinds if reached < epoch.first_ordinal <= step.first_ordinal]
        reached = step.first_ordinal
        opens, turn_above = step.turn_id != turn_above, step.turn_id
        views.append(StepView(step, opens, own, end))
    return views


_CONTEXT = 20
"""Entries shown above one that was asked for, when its slice is too long to be shown whole."""


def _fill(
    session: Session, views: list[StepView], lost_only: bool, inline: int, at: int
) -> list[StepView]:
    """The views with entries in the first ones, up to `inline`; where the entry `at` is further
    down in the first slice, they begin shortly before it."""
    start = views[0].after
    if at - start > inline - _CONTEXT:
        start = max(at - _CONTEXT - 1, start)
    rows = _rows(Q(session=session), start, views[-1].upto, inline + 1, lost_only)
    more = len(rows) > inline
    rows = rows[:inline]
    reached = rows[-1].ordinal if more else views[-1].upto
    steps = _steps_by_id(rows, [view.step for view in views])
    filled = []
    for view in views:
        if view.after >= reached:
            filled.append(view)
            continue
        own = [row for row in rows if view.after < row.ordinal <= view.upto]
        part = Slice(
            _grouped(session, own, steps, last=view.step.pk),
            after=view.after,
            upto=view.upto,
            next_ordinal=reached if reached < view.upto else None,
            previous_ordinal=start + 1 if view.after < start else None,
        )
        filled.append(replace(view, slice=part))
    return filled


def _fill_from_end(
    session: Session, views: list[StepView], lost_only: bool, inline: int
) -> list[StepView]:
    """The views with entries in the last ones, up to `inline`."""
    start = views[0].after
    rows = _rows(Q(session=session), start, views[-1].upto, inline + 1, lost_only, backwards=True)
    more = len(rows) > inline
    rows = rows[-inline:]
    reached = rows[0].ordinal if more else start + 1
    steps = _steps_by_id(rows, [view.step for view in views])
    filled = []
    for view in views:
        if view.upto < reached:
            filled.append(view)
            continue
        own = [row for row in rows if view.after < row.ordinal <= view.upto]
        part = Slice(
            _grouped(session, own, steps, last=view.step.pk),
            after=view.after,
            upto=view.upto,
            next_ordinal=None,
            previous_ordinal=reached if view.after < reached - 1 else None,
        )
        filled.append(replace(view, slice=part))
    return filled


@dataclass(frozen=True, slots=True)
class Rail:
    """Steps by name only, for getting around, in the order of their first ordinal; `next_after`
    leads on, None at the end of the session."""

    steps: list[Step]
    after: int
    next_after: int | None


def rail(
    session: Session, *, after: int = 0, lost_only: bool = False, limit: int = RAIL_STEPS
) -> Rail:
    """The steps whose first ordinal is greater than `after`. One query."""
    rows = _steps_of(session, lost_only).filter(first_ordinal__gt=after)
    found = list(rows.order_by("first_ordinal")[: limit + 1])
    more = found[limit - 1].first_ordinal if len(found) > limit else None
    return Rail(found[:limit], after, more)


def get_step(session: Session, pk: int) -> Step:
    """A step of this session. Raises Step.DoesNotExist."""
    step = Step.objects.select_related("turn").get(pk=pk, session=session)
    step.session = session
    return step


# -- following a session -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Changes:
    """What came after an ordinal: groups in ordinal order and the rewinds since `epoch`.
    `cursor` and `epoch` are where to go on, `last` the step shown last and `turn` its turn;
    with `more` there is more right away."""

    groups: list[Group]
    rewinds: list[Epoch]
    cursor: int
    epoch: int
    last: int | None
    turn: int | None
    more: bool

    def __bool__(self) -> bool:
        return bool(self.groups or self.rewinds)


def changes_since(
    session: Session,
    ordinal: int,
    epoch: int,
    *,
    last: int | None = None,
    turn: int | None = None,
    lost_only: bool = False,
    limit: int = ENTRIES_A_PAGE,
) -> Changes:
    """The entries with a greater ordinal, at most `limit`, grouped by step. `last` and `turn`
    are the ids of the step and the turn that the page shows last. Four queries.

    Misses nothing: the session was read first, its ordinals are assigned under its lock, and
    nothing above its newest one is read; so a row can't appear behind the cursor later.
    """
    head = session.next_ordinal - 1
    rows = _rows(Q(session=session), ordinal, head, limit + 1, lost_only)
    more = len(rows) > limit
    rows = rows[:limit]
    cursor = rows[-1].ordinal if more else max(head, ordinal)
    groups = _grouped(session, rows, _steps_by_id(rows), last=last, turn=turn, shown=ordinal)
    if groups:
        last, turn = groups[-1].step.pk, groups[-1].turn.pk
    rewinds = list(
        Epoch.objects.filter(session=session, number__gt=epoch, number__lte=session.epoch).order_by(
            "number"
        )[:50]
    )
    reached = rewinds[-1].number if rewinds else epoch
    return Changes(groups, rewinds, cursor, reached, last, turn, more or len(rewinds) == 50)


@dataclass(frozen=True, slots=True)
class Span:
    """When a session started and how long it lasted, by the runner's clock where its first and
    last events gave a time, else by ours. `lasted` is None when nothing happened yet."""

    started: datetime
    lasted: timedelta | None


def span_of(session: Session) -> Span:
    """Two queries, each of one row."""
    starts = starts_of(session)
    last = Event.objects.filter(session=session).order_by("-ordinal").values_list("time")[:1]
    ended = parse_time(last[0][0]) if last else None
    if ended is None or not 1900 < ended.year < 9000 or starts.runner == starts.server:
        return Span(starts.runner, session.last_activity_at - session.started_at)
    return Span(starts.runner, ended - starts.runner)


def summary_state(session: Session) -> str:
    """A short text that changes whenever a number or word of the session's summary does."""
    shown = (
        session.next_ordinal, session.epoch, session.status, session.agent_name, session.turns,
        session.steps, session.total_tokens, session.refusals, session.ended_at, session.version,
    )  # fmt: skip
    return f"{zlib.crc32(repr(shown).encode('utf-8', 'backslashreplace')):08x}"


# -- the raw log, lost events, refusals ----------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogPage:
    """Entries in ordinal order; `next_ordinal` to go on after (None: the end), and
    `previous_ordinal` to go back before (None: the beginning)."""

    entries: list[Entry]
    next_ordinal: int | None
    previous_ordinal: int | None


def log_page(
    session: Session, after: int = 0, *, before: int | None = None, limit: int = ENTRIES_A_PAGE
) -> LogPage:
    """Updates and events of the session in ordinal order: those after an ordinal, or the last
    ones before one. Four queries."""
    head = session.next_ordinal - 1
    if before is None:
        rows = _rows(Q(session=session), after, head, limit, False)
    else:
        rows = _rows(Q(session=session), 0, min(head, before - 1), limit, False, backwards=True)
    steps = {step.pk: step for step in Step.objects.filter(pk__in={row.step_id for row in rows})}
    first, last = (rows[0].ordinal, rows[-1].ordinal) if rows else (1, head)
    return LogPage(
        entries_of(rows, starts_of(session), steps),
        next_ordinal=last if last < head else None,
        previous_ordinal=first if first > 1 else None,
    )


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
            update_ordinal=F("update__ordinal"),
        )
        .order_by("-pk")[: limit + 1]
    )
    more = found[limit - 1].pk if len(found) > limit else None
    views = [
        LostEvent(
            row.pk,
            row.session,
            entries_of([row], None, {row.step_id: row.step})[0],
        )
        for row in found[:limit]
    ]
    return LostPage(views, more)


@dataclass(frozen=True, slots=True)
class RefusalView:
    """A refused update: when, the problem document (JSON), and the beginning of what came."""

    pk: int
    at: datetime
    problem: str
    body_head: str


def refusals(session: Session, before: int | None, limit: int = 50) -> list[RefusalView]:
    """Updates of the session that the reducer refused, the newest first. One query."""
    rows = Refusal.objects.filter(workspace_id=session.workspace_id, session_key=session.key)
    if before is not None:
        rows = rows.filter(pk__lt=before)
    found = rows.annotate(head=Left("body", 4000)).order_by("-pk")[:limit]
    return [RefusalView(*row) for row in found.values_list("pk", "at", "problem", "head")]
