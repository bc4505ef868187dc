"""The log and its visible surface agree with upstream, at a cost that stays near linear."""

import sys
import time
from typing import Any

import pytest
from hypothesis import given

from sessions.core.events import SURFACE_TYPES, Reason, replace_range
from sessions.core.reducer import same_json
from sessions.core.transcript import (
    LogEvent,
    build_log,
    message_of,
    position_of,
    transcript_of,
    utc_text,
)
from tests.core.logs import calls, logs, make_log, replaces, result, says, vectors


@pytest.mark.parametrize("vector", vectors("log"))
def test_log_vector(vector: dict[str, Any]) -> None:
    built = build_log(vector["events"])
    assert [rejection.index for rejection in built.rejected] == vector["rejected"]
    assert {str(r.index): r.reason.value for r in built.rejected} == vector["reasons"]
    assert len(built.events) == built.next_seq == vector["count"]
    transcript = transcript_of(built.events)
    assert same_json(transcript.surface_seqs, vector["surface_seqs"])
    assert same_json(transcript.messages, vector["messages"])


# -- against a plain reference -------------------------------------------------------------


def plain_hidden_by(events: list[LogEvent]) -> dict[int, int]:
    """The rule as it is written, each replace asked about each event: quadratic."""
    hidden_by: dict[int, int] = {}
    for replace in events:
        span = replace_range(replace.data.get("surface_op"))
        if replace.type not in SURFACE_TYPES or span is None:
            continue
        for event in events:
            if event.type not in SURFACE_TYPES or event.seq >= replace.seq:
                continue
            if span[0] <= position_of(event) <= span[1]:
                hidden_by.setdefault(event.seq, replace.seq)
    return hidden_by


@given(logs(gaps=True))
def test_the_transcript_is_what_the_plain_rule_gives(events: list[LogEvent]) -> None:
    transcript = transcript_of(events)
    hidden_by = plain_hidden_by(events)
    assert transcript.hidden_by == hidden_by
    visible = [e for e in events if e.type in SURFACE_TYPES and e.seq not in hidden_by]
    assert transcript.surface == sorted(visible, key=lambda e: (position_of(e), e.seq))


@given(logs(gaps=True))
def test_each_hidden_event_is_counted_by_the_replace_that_hid_it(events: list[LogEvent]) -> None:
    transcript = transcript_of(events)
    told = {seq: replace for replace, seqs in transcript.hid.items() for seq in seqs}
    assert told == transcript.hidden_by
    assert all(seqs == sorted(seqs) for seqs in transcript.hid.values())
    assert set(transcript.hid) == {e.seq for e in events if "surface_op" in e.data}


@given(logs())
def test_what_is_hidden_never_comes_back(events: list[LogEvent]) -> None:
    hidden: dict[int, int] = {}
    for length in range(len(events) + 1):
        now = transcript_of(events[:length]).hidden_by
        assert now.items() >= hidden.items()
        hidden = now


# -- who hid what --------------------------------------------------------------------------


def test_the_first_replace_that_covers_an_event_hides_it() -> None:
    log = make_log(says("a"), says("b"), says("c"), replaces(0, 1), replaces(0, 2))
    transcript = transcript_of(log)
    assert transcript.hidden_by == {0: 3, 1: 3, 2: 4, 3: 4}
    assert transcript.hid == {3: [0, 1], 4: [2, 3]}
    assert transcript.surface_seqs == [4]


def test_a_replace_that_comes_too_late_has_hidden_nothing() -> None:
    transcript = transcript_of(make_log(says("a"), replaces(0, 0), replaces(4, 9)))
    assert transcript.hid == {1: [0], 2: []}


def test_a_replace_named_by_its_own_seq_is_missed() -> None:
    log = make_log(says("a"), says("b"), replaces(0, 1), replaces(2, 2))
    assert transcript_of(log).surface_seqs == [2, 3]


def test_bookkeeping_and_unknown_types_are_never_seen_nor_hidden() -> None:
    log = make_log(("turn_start", {}), ("newer_type", {"content": "x"}), replaces(0, 1))
    assert transcript_of(log).surface_seqs == [2]
    assert transcript_of(log).hidden_by == {}


def test_ranges_follow_seqs_and_not_places_where_a_log_has_gaps() -> None:
    log = [
        LogEvent(3, *says("thanks")),
        LogEvent(7, *says("more")),
        LogEvent(9, *replaces(0, 6)),
    ]
    assert transcript_of(log).surface_seqs == [9, 7]


def test_seqs_that_do_not_ascend_are_refused() -> None:
    with pytest.raises(ValueError, match="must ascend"):
        transcript_of([LogEvent(1, *says("a")), LogEvent(1, *says("b"))])


# -- building ------------------------------------------------------------------------------


def test_a_log_can_go_on_from_a_seq() -> None:
    built = build_log([{"type": "user_message", "data": {}}, {"type": "nope", "data": {}}], 7)
    assert [event.seq for event in built.events] == [7]
    assert built.next_seq == 8
    assert [(r.index, r.reason) for r in built.rejected] == [(1, Reason.UNKNOWN_EVENT_TYPE)]


def test_an_unreadable_time_is_shown_as_it_came() -> None:
    assert message_of(LogEvent(0, *says("a"), "yesterday"))["created_at"] == "yesterday"
    assert message_of(LogEvent(0, *says("a")))["created_at"] is None


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-03-01T09:00:00Z", "2026-03-01T09:00:00Z"),
        ("2026-03-01 09:00:00,5+0200", "2026-03-01T07:00:00.5Z"),
        ("2026-03-01T09:00:00.1234567-03", "2026-03-01T12:00:00.123456Z"),
        ("2026-01-01T00:30:00.000+01:00", "2025-12-31T23:30:00.000Z"),
        ("0000-02-29T00:00:00Z", "0000-02-29T00:00:00Z"),
        ("0000-01-01T00:00:00+01:00", None),
        ("0000-12-31T23:30:00-01:00", "0001-01-01T00:30:00Z"),
        ("9999-12-31T23:59:59-01:00", None),
        ("2026-02-29T00:00:00Z", None),
        ("2026-03-01T09:00:00+02:60", None),
        ("2026-03-01T09:00:00", None),
        ("2026-03-01T09:00:00Z\n", None),
        ("٢026-03-01T09:00:00Z", None),
    ],
)
def test_a_time_becomes_utc_with_its_precision(text: str, utc: str | None) -> None:
    assert utc_text(text) == utc


# -- cost ----------------------------------------------------------------------------------


def busy_log(length: int, replaces_made: int) -> list[LogEvent]:
    """A long log whose replaces each cover all that stands before them."""
    every = length // replaces_made
    events = []
    for seq in range(length):
        if seq % every == every - 1:
            events.append(replaces(0, seq))
        else:
            events.append((says("u"), calls("a"), result("a"))[seq % 3])
    return make_log(*events)


def lines_run(events: list[LogEvent]) -> int:
    """How many lines of the core run while the transcript is made."""
    count = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal count
        if "sessions/core" not in frame.f_code.co_filename:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        transcript_of(events)
    finally:
        sys.settrace(before)
    return count


def test_twice_the_log_costs_about_twice_the_work() -> None:
    once, twice = lines_run(busy_log(1_500, 150)), lines_run(busy_log(3_000, 300))
    assert twice < 2.4 * once, "n log n; what is quadratic would cost four times as much"


def test_a_hundred_thousand_events_with_a_thousand_replaces_are_no_burden() -> None:
    log = busy_log(100_000, 1_000)
    start = time.process_time()
    transcript = transcript_of(log)
    assert time.process_time() - start < 3, "about 0.2 s; a quadratic one takes minutes"
    assert transcript.surface_seqs == [99_999]
    assert sum(map(len, transcript.hid.values())) == 99_999
