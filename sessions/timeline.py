"""The reading layer: rows → frozen views, with a bounded number of queries and rows.

JSON and HTML call the same functions, so they can't disagree. Nothing here parses more than
`HEAD_CHARACTERS` of a stored text: what is longer is shown cut, with its size.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import F, Q
from django.db.models.functions import Left, Length

from .core.events import Disposition
from .entries import HEAD_CHARACTERS, Entry, entries_of, server_start, starts_of
from .models import Epoch, Event, Refusal, Session, Step, Turn, Update, Workspace

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


@dataclass(frozen=True, slots=True)
class StepEntries:
    """Entries in ordinal order; `next_ordinal` to go on after, None at the end; `has_earlier`
    when the step has entries before these."""

    entries: list[Entry]
    next_ordinal: int | None
    has_earlier: bool = False


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
    newest = step.session.next_ordinal - 1
    upto = newest if upto is None else min(upto, newest)
    rows = _rows(Q(step=step), after_ordinal, upto, limit + 1, lost_only)
    more = rows[limit - 1].ordinal if len(rows) > limit else None
    entries = entries_of(rows[:limit], starts_of(step.session), {step.pk: step})
    return StepEntries(entries, more, has_earlier=after_ordinal > step.first_ordinal)


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
    last_first: bool = False,
) -> list[Update | Event]:
    """Updates and events in ordinal order, up to and with the ordinal `upto`.

    The two are read by two statements, and a row may be committed between them. So `upto` must
    be known before: all of its rows and those before it are committed then.
    """
    order = "-ordinal" if last_first else "ordinal"
    span = Q(ordinal__gt=after, ordinal__lte=upto)
    events = (
        Event.objects.filter(where & span)
        .defer("data", "answer")
        .annotate(
            head=Left("data", HEAD_CHARACTERS),
            size=Length("data"),
            update_version=F("update__version"),
        )
        .order_by(order)
    )
    if lost_only:
        return list(events.lost()[:limit])
    updates = (
        Update.objects.filter(where & span)
        .defer("operations", "answer")
        .annotate(head=Left("operations", HEAD_CHARACTERS), size=Length("operations"))
        .order_by(order)
    )
    rows: list[Update | Event] = [*updates[:limit], *events[:limit]]
    rows.sort(key=lambda row: row.ordinal, reverse=last_first)
    return rows[:limit]


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
    goes_on: bool = False,
) -> StepsPage:
    """A page of steps: those after the first ordinal `after`, or the last ones before
    `before`, or from the step on that holds the ordinal `at`; else the first ones. With
    `goes_on` the page stands below the step before it, whose turn needs no second heading.

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
    above = None
    if goes_on and after:
        above = rows.filter(first_ordinal__lte=after).order_by("-first_ordinal").first()
    return StepsPage(
        steps=_step_views(
            session, steps, rewinds, lost_only, inline, around, above, before is not None
        ),
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
    above: Step | None,
    from_end: bool,
) -> list[StepView]:
    for step in steps:
        step.session = session
    inlined = _inline_entries(session, steps, lost_only, inline, around, from_end)
    views = []
    turn_before, reached = above.turn_id if above else None, 0
    for step in steps:
        own = [epoch for epoch in rewinds if reached < epoch.first_ordinal <= step.first_ordinal]
        reached = max(reached, step.first_ordinal)
        opens, turn_before = step.turn_id != turn_before, step.turn_id
        whole = step.abandoned_from is not None and step.abandoned_from <= step.first_ordinal
        views.append(StepView(step, step.turn, opens, own, inlined.get(step.pk), whole))
    return views


def _inline_entries(
    session: Session, steps: list[Step], lost_only: bool, inline: int, around: int, from_end: bool
) -> dict[int, StepEntries]:
    """The entries of the first steps (of the last ones with `from_end`), as many whole steps
    as fit into `inline` rows; of a single step that does not fit, a page of it: one that begins
    shortly before the ordinal `around`, or its last one."""
    upto = session.next_ordinal - 1
    chosen: dict[int, Step] = {}
    left = inline
    for step in reversed(steps) if from_end else steps:
        left -= step.lost if lost_only else step.entries
        if left < 0:
            break
        chosen[step.pk] = step
    if not chosen and steps:
        step = steps[-1] if from_end else steps[0]
        if from_end:
            found = _last_entries(step, upto, inline, lost_only)
        else:
            found = step_entries(
                step, after_ordinal=max(around - 20, 0), upto=upto, limit=inline,
                lost_only=lost_only,
            )  # fmt: skip
        return {step.pk: found}
    rows = _rows(Q(step__in=list(chosen)), 0, upto, inline + 1, lost_only) if chosen else []
    entries = entries_of(rows, starts_of(session), chosen)
    grouped: dict[int, list[Entry]] = {pk: [] for pk in chosen}
    for row, entry in zip(rows, entries, strict=True):
        grouped[row.step_id].append(entry)
    return {pk: StepEntries(some, None) for pk, some in grouped.items()}


def _last_entries(step: Step, upto: int, limit: int, lost_only: bool) -> StepEntries:
    rows = _rows(Q(step=step), 0, upto, limit, lost_only, last_first=True)[::-1]
    entries = entries_of(rows, starts_of(step.session), {step.pk: step})
    return StepEntries(entries, None, has_earlier=True)


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
    newest = session.next_ordinal - 1
    rows = _rows(Q(session=session), ordinal, newest, limit + 1, lost_only)
    more = len(rows) > limit
    rows = rows[:limit]
    found = Step.objects.filter(pk__in={row.step_id for row in rows}).select_related("turn")
    steps = {step.pk: step for step in found}
    groups: list[Group] = []
    for row, entry in zip(rows, entries_of(rows, starts_of(session), steps), strict=True):
        step = steps[row.step_id]
        if not groups or groups[-1].step.pk != step.pk:
            groups.append(Group(step, step.first_ordinal > ordinal, []))
        groups[-1].entries.append(entry)
    rewinds = list(Epoch.objects.filter(session=session, number__gt=epoch).order_by("number")[:50])
    cursor = rows[-1].ordinal if more else max(newest, ordinal)
    return Changes(groups, rewinds, cursor, max([epoch, *(e.number for e in rewinds)]), more)


# -- the raw log, lost events, refusals ----------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogPage:
    """Entries in ordinal order; `next_ordinal` to go on after, None at the end."""

    entries: list[Entry]
    next_ordinal: int | None


def log_page(session: Session, after: int, limit: int = ENTRIES_A_PAGE) -> LogPage:
    """Every update and event of the session in ordinal order. Three queries."""
    rows = _rows(Q(session=session), after, session.next_ordinal - 1, limit + 1, False)
    more = rows[limit - 1].ordinal if len(rows) > limit else None
    rows = rows[:limit]
    steps = {step.pk: step for step in Step.objects.filter(pk__in={row.step_id for row in rows})}
    return LogPage(entries_of(rows, starts_of(session), steps), more)


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
            row.pk,
            row.session,
            entries_of([row], server_start(row.session), {row.step_id: row.step})[0],
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
