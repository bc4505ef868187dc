"""The plan that closes the turns a crash left open. A plan is shown, never applied silently.

Source: `Nous.Session.Recovery`; vectors `recovery.json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from .events import is_integer
from .strict_json import HugeInteger
from .transcript import LogEvent, call_entries


class Risk(StrEnum):
    """What may have happened to a call that has no result."""

    OUTCOME_UNKNOWN = "tool_outcome_unknown"
    NOT_STARTED = "tool_not_started"


class PlannedEvent(NamedTuple):
    """An event to append; its seq and time are those of the moment it is appended."""

    type: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class OwedCall:
    """A call without a result.

    `seq`: the event that showed it first. `name` comes from there, and may be null.
    `code_calls`: how many calls its code had dispatched (code mode). Such a call did start,
    though upstream's rules class it as not started; `content` says so.
    """

    tool_call_id: str
    name: Any
    seq: int
    risk: Risk
    code_calls: int = 0

    @property
    def content(self) -> str:
        """What the synthetic result tells the model, and the person who reads it."""
        return f"[Synthetic result, written by recovery] {_fate(self)}"

    @property
    def result(self) -> PlannedEvent:
        """The synthetic result that pays the debt."""
        data = {
            "content": self.content,
            "tool_call_id": self.tool_call_id,
            "name": self.name,
            "metadata": {"synthetic": True, "risk": self.risk.value},
        }
        return PlannedEvent("tool_result", data)


def _fate(call: OwedCall) -> str:
    tool = f"The call of {call.name}" if isinstance(call.name, str) and call.name else "The call"
    if call.code_calls:
        others = "another call" if call.code_calls == 1 else f"{call.code_calls} other calls"
        return (
            f"{tool} was interrupted after its code had dispatched {others}. It did not finish, "
            "and what it had done by then stands. Check the results of those calls before "
            "repeating it."
        )
    if call.risk is Risk.NOT_STARTED:
        return (
            f"{tool} was interrupted, and nothing in the log shows that it started: most likely "
            "it had no effect. Repeat it if its result is still needed."
        )
    return (
        f"{tool} was interrupted before a result was logged. It may have run in part, in full "
        "or not at all. Check what it changed before repeating it."
    )


@dataclass(frozen=True, slots=True)
class OpenTurn:
    """A turn without its end. `seq`: its `turn_start`. `turn`: its number, None when the event
    gave no integer. `steps`: steps started while it was innermost. `owed`: in order of first
    sighting."""

    seq: int
    turn: int | HugeInteger | None
    steps: int
    owed: tuple[OwedCall, ...]

    @property
    def end(self) -> PlannedEvent:
        """The `turn_end` that closes it."""
        number = {} if self.turn is None else {"turn": self.turn}
        return PlannedEvent("turn_end", {**number, "steps": self.steps, "reason": "interrupted"})


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a log needs to be whole again. `open_turns`: innermost first. `stray_turn_ends`:
    seqs of turn ends that closed nothing; a warning, nothing to repair."""

    open_turns: tuple[OpenTurn, ...]
    stray_turn_ends: tuple[int, ...]

    @property
    def interrupted(self) -> bool:
        """Whether there is anything to repair."""
        return bool(self.open_turns)

    @property
    def plan(self) -> list[PlannedEvent]:
        """The events to append, in order; after them there is nothing left to repair."""
        planned: list[PlannedEvent] = []
        for turn in self.open_turns:
            planned.extend(call.result for call in turn.owed)
            planned.append(turn.end)
        return planned


def recovery_of(events: Iterable[LogEvent]) -> Recovery:
    """The recovery of a log in ascending seq. One pass, linear; the log stays as it is.

    Turns and steps pair as stacks over the whole log, not by number; a turn's end leaves the
    stack of steps alone. A call belongs to the turn and step of its first sighting, in an
    assistant message or a `tool_call`; a result counts wherever it stands, hidden ones too.
    Calls outside any turn are left alone. Source: vectors `recovery.json`.
    """
    scan = _Scan()
    for event in events:
        scan.take(event)
    return Recovery(
        tuple(_open_turn(turn, scan) for turn in reversed(scan.turns)), tuple(scan.stray)
    )


def call_id(data: Mapping[str, Any]) -> str | None:
    """The id of a call or result: `tool_call_id`, else `id`, as text; None when there is none.

    Text is taken as it is, the empty text too; integers and booleans become text.
    """
    value = data.get("tool_call_id")
    if value is None:
        value = data.get("id")
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, HugeInteger):
        return value.digits
    return str(value) if isinstance(value, int) else None


# -- the pass ------------------------------------------------------------------------------


@dataclass(slots=True)
class _Step:
    closed: bool = False


@dataclass(slots=True)
class _Call:
    id: str
    name: Any
    seq: int
    step: _Step | None


@dataclass(slots=True)
class _Turn:
    seq: int
    number: Any
    steps: int = 0
    dispatched: bool = False
    calls: list[_Call] = field(default_factory=list)


@dataclass(slots=True)
class _Scan:
    """What one pass over a log remembers."""

    turns: list[_Turn] = field(default_factory=list)
    steps: list[_Step] = field(default_factory=list)
    known: set[str] = field(default_factory=set)
    results: set[str] = field(default_factory=set)
    dispatched: set[str] = field(default_factory=set)
    code_calls: dict[str, int] = field(default_factory=dict)
    stray: list[int] = field(default_factory=list)

    def take(self, event: LogEvent) -> None:
        match event.type:
            case "turn_start":
                self.turns.append(_Turn(event.seq, event.data.get("turn")))
            case "turn_end":
                self._end_turn(event)
            case "step_start":
                self._start_step()
            case "step_end":
                if self.steps:
                    self.steps.pop().closed = True
            case "assistant_message":
                for entry in call_entries(event.data.get("tool_calls")):
                    self._see_call(call_id(entry), entry.get("name"), event.seq)
            case "tool_call":
                self._dispatch(event)
            case "tool_result":
                answered = call_id(event.data)
                if answered is not None:
                    self.results.add(answered)

    def _end_turn(self, event: LogEvent) -> None:
        if self.turns:
            self.turns.pop()
        else:
            self.stray.append(event.seq)

    def _start_step(self) -> None:
        self.steps.append(_Step())
        if self.turns:
            self.turns[-1].steps += 1

    def _see_call(self, seen: str | None, name: Any, seq: int) -> None:
        if seen is None or seen in self.known:
            return
        self.known.add(seen)
        if self.turns:
            step = self.steps[-1] if self.steps else None
            self.turns[-1].calls.append(_Call(seen, name, seq, step))

    def _dispatch(self, event: LogEvent) -> None:
        dispatched = call_id(event.data)
        if dispatched is None:
            return
        self._see_call(dispatched, event.data.get("name"), event.seq)
        self.dispatched.add(dispatched)
        if self.turns:
            self.turns[-1].dispatched = True
        outer, code, _ = dispatched.rpartition(":code:")
        if code:
            self.code_calls[outer] = self.code_calls.get(outer, 0) + 1


def _open_turn(turn: _Turn, scan: _Scan) -> OpenTurn:
    number = turn.number
    if not is_integer(number) and not isinstance(number, HugeInteger):
        number = None
    owed = tuple(
        OwedCall(
            call.id, call.name, call.seq, _risk(call, turn, scan), scan.code_calls.get(call.id, 0)
        )
        for call in turn.calls
        if call.id not in scan.results
    )
    return OpenTurn(turn.seq, number, turn.steps, owed)


def _risk(call: _Call, turn: _Turn, scan: _Scan) -> Risk:
    """First match wins, in upstream's order."""
    if call.id in scan.dispatched:
        return Risk.OUTCOME_UNKNOWN
    if turn.dispatched:
        return Risk.NOT_STARTED
    if call.step is not None and call.step.closed:
        return Risk.NOT_STARTED
    return Risk.OUTCOME_UNKNOWN
