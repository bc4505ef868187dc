"""Where a row belongs: turn and step, derived from the log's own turn and step events.

Turns and steps pair by stack, as upstream's recovery pairs them; the numbers in the data are
the runner's word only. The stack is a linked list of Turn and Step rows (`outer`), so that
opening, closing and going back cost the same however deep it is. A step left open by an older
turn still waits for its `step_end`, but takes no rows of a later turn.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Max

from ..core.events import is_integer
from ..core.strict_json import dumps, visible
from ..core.times import parse_time
from ..models import COUNTER_FIELDS, Session, Step, Turn
from ..statements import update_row

_TURN_FIELDS = (
    *COUNTER_FIELDS, "last_ordinal", "steps", "started_ordinal", "ended_ordinal", "started_at",
    "ended_at", "reason", "runner_number",
)  # fmt: skip
_STEP_FIELDS = (
    *COUNTER_FIELDS, "last_ordinal", "started_at", "ended_at", "outcome", "runner_number",
)  # fmt: skip
_LONGEST_WORD = 200


@dataclass(slots=True)
class _Kept:
    """Turn and step rows as they were when a session's next ordinal was `next_ordinal`."""

    next_ordinal: int = 0
    epoch: int = 0
    turns: dict[int, Turn] = field(default_factory=dict)
    steps: dict[int, Step] = field(default_factory=dict)
    zero: dict[int, Step] = field(default_factory=dict)


class _KeptRows:
    """The rows of the sessions written to last. They change only with the session's next
    ordinal, or its epoch, so these two tell whether another process has been at work."""

    MOST = 1000

    def __init__(self) -> None:
        self._rows: OrderedDict[int, _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, session: Session) -> _Kept:
        """The rows kept, if they still hold; taken out, for whoever has them changes them."""
        with self._lock:
            kept = self._rows.pop(session.pk, None)
        if kept is None or (kept.next_ordinal, kept.epoch) != (
            session.next_ordinal,
            session.epoch,
        ):
            return _Kept()
        return kept

    def give(self, session: Session, kept: _Kept) -> None:
        with self._lock:
            self._rows[session.pk] = kept
            while len(self._rows) > self.MOST:
                self._rows.popitem(last=False)

    def drop(self) -> None:
        """Forget everything."""
        with self._lock:
            self._rows.clear()


_kept = _KeptRows()


def forget_kept_rows() -> None:
    """Forget the rows kept for the next transaction (tests)."""
    _kept.drop()


class Places:
    """The turns and steps of a locked session, while rows are being placed in them.

    Rows made here are in the database at once (others refer to them); counters and ends are
    written by `save`.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        kept = _kept.take(session)
        self._turns: dict[int, Turn] = kept.turns
        self._steps: dict[int, Step] = kept.steps
        self._zero: dict[int, Step] = kept.zero
        self._changed: dict[tuple[type, int], Turn | Step] = {}
        for name in ("open_turn", "lead_turn"):
            pk = getattr(session, f"{name}_id")
            if pk is not None:
                setattr(session, name, self._turn(pk))
        if session.open_step_id is not None:
            session.open_step = self._step(session.open_step_id)

    def keep(self) -> None:
        """After the commit: the current turn and step may serve the next transaction."""
        session = self.session
        turns = {turn.pk: turn for turn in (session.open_turn, session.lead_turn) if turn}
        step = session.open_step
        if step is not None:
            turns[step.turn_id] = self._turn(step.turn_id)
        zero = {pk: self._zero[pk] for pk in turns if pk in self._zero}
        steps = {step.pk: step} if step is not None else {}
        steps.update({row.pk: row for row in zero.values()})
        _kept.give(session, _Kept(session.next_ordinal, session.epoch, turns, steps, zero))

    # -- placing ---------------------------------------------------------------------------

    def here(self, ordinal: int) -> Step:
        """The step that a row with this ordinal belongs to, when it opens or closes nothing:
        the innermost open step of the current turn, else the turn's step 0."""
        turn = self._current_turn(ordinal)
        step = self._open_step(turn, ordinal)
        return step if step is not None else self._step_zero(turn, ordinal)

    def enter(self, event_type: str, data: dict[str, Any], ordinal: int, time: str | None) -> Step:
        """The step that a logged event belongs to, after opening or closing what it opens or
        closes."""
        match event_type:
            case "turn_start":
                return self._start_turn(data, ordinal, time)
            case "turn_end":
                return self._end_turn(data, ordinal, time)
            case "step_start":
                return self._start_step(data, ordinal, time)
            case "step_end":
                return self._end_step(data, ordinal, time)
            case _:
                return self.here(ordinal)

    def touch(self, step: Step, ordinal: int, counts: dict[str, int]) -> None:
        """Count a row on its step, its turn and the session."""
        turn = self._turn(step.turn_id)
        rows: tuple[Session | Turn | Step, ...] = (step, turn, self.session)
        for row in rows:
            for name, count in counts.items():
                setattr(row, name, getattr(row, name) + count)
        step.last_ordinal = turn.last_ordinal = ordinal
        self._note(step)
        self._note(turn)

    def turn_of(self, step: Step) -> Turn:
        """The turn of a step, as this transaction sees it."""
        return self._turn(step.turn_id)

    def save(self) -> None:
        """Write what changed: one statement for each turn and step touched."""
        for row in self._changed.values():
            update_row(row, _TURN_FIELDS if isinstance(row, Turn) else _STEP_FIELDS)
        self._changed.clear()

    def go_back(self, turns: int, open_turn: int | None, open_step: int | None) -> None:
        """Take the stack back to what it was. Call `save` before."""
        self._turns.clear()
        self._steps.clear()
        self._zero.clear()
        session = self.session
        session.turns = turns
        session.open_turn = self._turn(open_turn) if open_turn is not None else None
        session.open_step = self._step(open_step) if open_step is not None else None
        session.lead_turn = None

    # -- turns -----------------------------------------------------------------------------

    def _start_turn(self, data: dict[str, Any], ordinal: int, time: str | None) -> Step:
        session = self.session
        turn = session.lead_turn if session.open_turn is None else None
        if turn is None:
            turn = self._new_turn(session.turns + 1, ordinal, outer=session.open_turn)
        session.turns += 1
        session.open_turn, session.lead_turn = turn, None
        turn.started_ordinal = ordinal
        turn.started_at = parse_time(time)
        turn.runner_number = _other_number(data.get("turn"), turn.number)
        self._note(turn)
        return self._step_zero(turn, ordinal)

    def _end_turn(self, data: dict[str, Any], ordinal: int, time: str | None) -> Step:
        session = self.session
        step = self.here(ordinal)
        if session.open_turn is None:
            return step
        turn = session.open_turn
        turn.ended_ordinal = ordinal
        turn.ended_at = parse_time(time)
        turn.reason = session.last_turn_reason = _word(data.get("reason"))
        self._note(turn)
        session.open_turn = self._turn(turn.outer_id) if turn.outer_id is not None else None
        return step

    def _current_turn(self, ordinal: int) -> Turn:
        session = self.session
        if session.open_turn is not None:
            if session.open_turn.epoch != session.epoch:
                session.open_turn = self._continue_turn(session.open_turn, ordinal)
            return session.open_turn
        if session.lead_turn is None:
            session.lead_turn = self._new_turn(session.turns + 1, ordinal, outer=None)
        return session.lead_turn

    def _new_turn(self, number: int, ordinal: int, *, outer: Turn | None) -> Turn:
        turn = Turn.objects.create(
            session=self.session, epoch=self.session.epoch, number=number, outer=outer,
            first_ordinal=ordinal, last_ordinal=ordinal,
        )  # fmt: skip
        self._turns[turn.pk] = turn
        return turn

    def _continue_turn(self, old: Turn, ordinal: int) -> Turn:
        """The turn of an older epoch, going on in this one."""
        turn = Turn.objects.create(
            session=self.session, epoch=self.session.epoch, number=old.number,
            outer_id=old.outer_id, continues=old, steps=_steps_kept(old),
            first_ordinal=ordinal, last_ordinal=ordinal, started_ordinal=old.started_ordinal,
            started_at=old.started_at, runner_number=old.runner_number,
        )  # fmt: skip
        self._turns[turn.pk] = turn
        return turn

    # -- steps -----------------------------------------------------------------------------

    def _start_step(self, data: dict[str, Any], ordinal: int, time: str | None) -> Step:
        turn = self._current_turn(ordinal)
        turn.steps += 1
        self.session.steps += 1
        step = self._new_step(
            turn, turn.steps, ordinal, outer_id=self.session.open_step_id,
            started_at=parse_time(time),
            runner_number=_other_number(data.get("step"), turn.steps),
        )  # fmt: skip
        self.session.open_step = step
        self._note(turn)
        return step

    def _end_step(self, data: dict[str, Any], ordinal: int, time: str | None) -> Step:
        step = self.here(ordinal)
        session = self.session
        if session.open_step is None:
            return step
        ended = session.open_step
        ended.ended_at = parse_time(time)
        ended.outcome = _word(data.get("outcome"))
        self._note(ended)
        session.open_step = self._step(ended.outer_id) if ended.outer_id is not None else None
        return step

    def _open_step(self, turn: Turn, ordinal: int) -> Step | None:
        """The innermost open step if it belongs to `turn`, the turn's own epoch or before."""
        step = self.session.open_step
        if step is None:
            return None
        if step.turn_id == turn.pk:
            return step
        if self._turn(step.turn_id).number != turn.number or turn.continues_id is None:
            return None
        copy = self._new_step(
            turn, step.number, ordinal, outer_id=step.outer_id, started_at=step.started_at,
            runner_number=step.runner_number,
        )  # fmt: skip
        self.session.open_step = copy
        return copy

    def _new_step(self, turn: Turn, number: int, ordinal: int, **fields: Any) -> Step:
        step = Step.objects.create(
            session=self.session, turn=turn, number=number,
            first_ordinal=ordinal, last_ordinal=ordinal, **fields,
        )  # fmt: skip
        self._steps[step.pk] = step
        return step

    def _step_zero(self, turn: Turn, ordinal: int) -> Step:
        step = self._zero.get(turn.pk)
        if step is None:
            step = _step_zero_of(turn)
            if step is None:
                step = self._new_step(turn, 0, ordinal)
            self._zero[turn.pk] = self._steps[step.pk] = step
        return step

    # -- rows in memory --------------------------------------------------------------------

    def _turn(self, pk: int) -> Turn:
        if pk not in self._turns:
            self._turns[pk] = Turn.objects.get(pk=pk)
        return self._turns[pk]

    def _step(self, pk: int) -> Step:
        if pk not in self._steps:
            self._steps[pk] = Step.objects.get(pk=pk)
        return self._steps[pk]

    def _note(self, row: Turn | Step) -> None:
        self._changed[type(row), row.pk] = row


def _step_zero_of(turn: Turn) -> Step | None:
    for step in Step.objects.filter(turn=turn, number=0):
        return step
    return None


def _steps_kept(turn: Turn) -> int:
    """The number of the last step of a turn that a rewind left in place."""
    steps = Step.objects.filter(turn=turn)
    if turn.abandoned_from is not None:
        steps = steps.filter(first_ordinal__lt=turn.abandoned_from)
    found = steps.aggregate(most=Max("number"))["most"] or 0
    if found == 0 and turn.continues is not None:
        return _steps_kept(turn.continues)
    return int(found)


def _other_number(said: object, counted: int) -> str | None:
    """What the runner calls it, as JSON, where that is another number than ours."""
    if said is None or (is_integer(said) and said == counted):
        return None
    return visible(dumps(said))[:_LONGEST_WORD]


def _word(value: object) -> str:
    """An outcome or a reason, cut to a word's length; JSON where it is no text."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else dumps(value)
    return visible(text)[:_LONGEST_WORD]
