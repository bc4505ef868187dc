"""Builders for tests about logs, and the vectors they are held against."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from sessions.core.transcript import LogEvent, build_log

VECTORS = Path(__file__).parent.parent / "conformance"


def vectors(name: str) -> list[Any]:
    rows = json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))
    return [pytest.param(row, id=row["name"]) for row in rows]


def log_of(raw: Sequence[dict[str, Any]]) -> list[LogEvent]:
    """The log of a vector that holds no event a log would reject."""
    built = build_log(raw)
    assert not built.rejected
    return built.events


def make_log(*events: tuple[str, dict[str, Any]]) -> list[LogEvent]:
    """A log from (type, data), numbered from 0, a second apart."""
    return [
        LogEvent(seq, event_type, data, f"2026-03-01T09:{seq // 60:02d}:{seq % 60:02d}Z")
        for seq, (event_type, data) in enumerate(events)
    ]


def says(text: str) -> tuple[str, dict[str, Any]]:
    return "user_message", {"content": text}


def calls(*ids: Any) -> tuple[str, dict[str, Any]]:
    entries = [{"id": call_id, "name": "echo", "arguments": {}} for call_id in ids]
    return "assistant_message", {"content": "", "tool_calls": entries}


def result(call_id: Any) -> tuple[str, dict[str, Any]]:
    return "tool_result", {"content": "r", "tool_call_id": call_id, "name": "echo"}


def replaces(start: int, stop: int) -> tuple[str, dict[str, Any]]:
    return "system_message", {"content": "[summary]", "surface_op": ["replace", start, stop]}


_ids = st.sampled_from(["a", "b", "c", "a:code:0", "b:code:1", 5, True])
_surface_events = st.one_of(
    st.builds(says, st.text(max_size=3)),
    st.builds(lambda ids: calls(*ids), st.lists(_ids, max_size=3)),
    st.builds(result, _ids),
)
_replaces = st.builds(
    lambda start, length: replaces(start, start + length),
    st.integers(0, 40),
    st.integers(0, 15),
)
_bookkeeping = st.one_of(
    st.sampled_from(
        [
            ("turn_start", {"turn": 1}),
            ("turn_start", {}),
            ("turn_end", {"turn": 1, "steps": 0, "reason": "complete"}),
            ("step_start", {"turn": 1, "step": 1}),
            ("step_end", {"turn": 1, "step": 1, "outcome": "ok"}),
            ("request_header", {}),
        ]
    ),
    st.builds(lambda call_id: ("tool_call", {"id": call_id, "name": "echo"}), _ids),
)


@st.composite
def logs(draw: st.DrawFn, *, gaps: bool = False) -> list[LogEvent]:
    """Any log: replaces of replaces, into the future and the past, turns left open."""
    events = draw(st.lists(st.one_of(_surface_events, _replaces, _bookkeeping), max_size=30))
    log, seq = [], 0
    for event in make_log(*events):
        seq += draw(st.integers(0, 4)) if gaps else 0
        log.append(event._replace(seq=seq))
        seq += 1
    return log
