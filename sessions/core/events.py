"""Event types, and the judgement of an event that is about to enter a log.

Source: `Nous.Session.Event`; vectors `log.json` and `apply.json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

SURFACE_TYPES = frozenset({"system_message", "user_message", "assistant_message", "tool_result"})
"""Types that the model sees: they make the transcript."""

BOOKKEEPING_TYPES = frozenset(
    {"tool_call", "turn_start", "turn_end", "step_start", "step_end", "request_header"}
)
"""Types that the model never sees."""

KNOWN_TYPES = SURFACE_TYPES | BOOKKEEPING_TYPES

PLACE_TYPES = frozenset({"turn_start", "turn_end", "step_start", "step_end"})
"""Types that open or close a turn or a step."""


class Disposition(StrEnum):
    """What became of an event. All but `LOGGED` are *lost*."""

    LOGGED = "logged"
    DROPPED = "dropped"
    REFUSED = "refused"
    INVALID = "invalid"


LOST = (Disposition.DROPPED, Disposition.REFUSED, Disposition.INVALID)


class Reason(StrEnum):
    """Why an event is lost."""

    NO_LOG = "no_log"
    SURFACE_TYPE = "surface_type"
    UNKNOWN_EVENT_TYPE = "unknown_event_type"
    SURFACE_OP_ON_NON_SURFACE = "surface_op_on_non_surface_event"
    INVALID_SURFACE_OP = "invalid_surface_op"


def is_integer(value: object) -> bool:
    """True for a real integer: a boolean and a float are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def replace_range(surface_op: object) -> tuple[int, int] | None:
    """`(start, stop)` of `["replace", start, stop]`, or None when it is not a possible one.

    Possible: two real integers, 0 ≤ start ≤ stop; they may point past the end of the log.
    """
    if not isinstance(surface_op, list) or len(surface_op) != 3 or surface_op[0] != "replace":
        return None
    start, stop = surface_op[1], surface_op[2]
    if not is_integer(start) or not is_integer(stop) or not 0 <= start <= stop:
        return None
    return start, stop


def fault_of(event_type: str, data: Mapping[str, Any]) -> Reason | None:
    """Why a log would reject this event, or None when it would take it.

    Tested in upstream's order: unknown type; a `surface_op` (any but null) on an event the
    model never sees; a `surface_op` that is neither `append` nor a possible replace.
    """
    if event_type not in KNOWN_TYPES:
        return Reason.UNKNOWN_EVENT_TYPE
    surface_op = data.get("surface_op")
    if event_type in BOOKKEEPING_TYPES:
        return None if surface_op is None else Reason.SURFACE_OP_ON_NON_SURFACE
    if surface_op is None or surface_op == "append" or replace_range(surface_op) is not None:
        return None
    return Reason.INVALID_SURFACE_OP
