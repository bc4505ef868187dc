"""Where a log may be cut so that a new session can go on from its prefix.

Source: `Nous.Session.Fork`; vectors `fork.json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from .events import is_integer
from .transcript import LogEvent, transcript_of

LAST = "last"
"""The boundary that keeps the whole log."""


class ForkFault(StrEnum):
    """Why a boundary is refused."""

    INVALID_BOUNDARY = "invalid_boundary"
    BOUNDARY_OUT_OF_RANGE = "boundary_out_of_range"
    OPEN_TURN = "open_turn"


class ForkRefused(ValueError):
    """A log can't be cut there. `details` belong to the fault: the boundary offered; the
    boundary and the log's next seq; the seq of the innermost open `turn_start`."""

    def __init__(self, fault: ForkFault, details: tuple[Any, ...], message: str) -> None:
        super().__init__(message)
        self.fault, self.details, self.message = fault, details, message


@dataclass(frozen=True, slots=True)
class Fork:
    """A cut: events with `seq < seed_length` are inherited, with their seqs.

    `surface_seqs`: what the model sees of them, in display order.
    """

    seed_length: int
    events: Sequence[LogEvent]
    surface_seqs: list[int]


def fork_at(events: Sequence[LogEvent], boundary: object) -> Fork:
    """The fork of a log (in ascending seq) at `boundary`: the seq of the last event to keep,
    or `"last"`. Costs what the transcript of the prefix costs.

    Where a log has gaps, a boundary in one keeps what stands before it. Raises ForkRefused:
    no non-negative integer and not `"last"`; at or past the log's end; inside an open turn.
    An empty log can be forked at `"last"`. Source: vectors `fork.json`.
    """
    seed_length = _seed_length(events, boundary)
    kept = [event for event in events if event.seq < seed_length]
    _refuse_open_turn(kept)
    return Fork(seed_length, kept, transcript_of(kept).surface_seqs)


def _seed_length(events: Sequence[LogEvent], boundary: object) -> int:
    next_seq = events[-1].seq + 1 if events else 0
    if boundary == LAST:
        return next_seq
    if not isinstance(boundary, int) or not is_integer(boundary) or boundary < 0:
        raise ForkRefused(
            ForkFault.INVALID_BOUNDARY,
            (boundary,),
            f'A boundary is the seq of the last event to keep, or "{LAST}".',
        )
    if boundary >= next_seq:
        raise ForkRefused(
            ForkFault.BOUNDARY_OUT_OF_RANGE,
            (boundary, next_seq),
            _out_of_range(next_seq),
        )
    return boundary + 1


def _out_of_range(next_seq: int) -> str:
    if next_seq == 0:
        return f'The boundary lies past the end: the log is empty, and only "{LAST}" forks it.'
    return f"The boundary lies past the end of the log, whose last event has seq {next_seq - 1}."


def _refuse_open_turn(kept: Iterable[LogEvent]) -> None:
    open_turns: list[int] = []
    for event in kept:
        if event.type == "turn_start":
            open_turns.append(event.seq)
        elif event.type == "turn_end" and open_turns:
            open_turns.pop()
    if open_turns:
        seq = open_turns[-1]
        raise ForkRefused(
            ForkFault.OPEN_TURN,
            (seq,),
            f"The boundary lies inside the turn that starts at seq {seq}: fork before it, or "
            "after its end.",
        )
