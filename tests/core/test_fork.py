"""A log can be forked where upstream would fork it, and nowhere else."""

from typing import Any

import pytest
from hypothesis import given

from sessions.core.fork import Fork, ForkFault, ForkRefused, fork_at
from sessions.core.recovery import recovery_of
from sessions.core.reducer import same_json
from sessions.core.transcript import LogEvent, transcript_of
from tests.core.logs import log_of, logs, make_log, says, vectors


def outcome(events: list[LogEvent], boundary: Any) -> dict[str, Any]:
    try:
        fork = fork_at(events, boundary)
    except ForkRefused as refused:
        return {"error": [refused.fault.value, *refused.details]}
    return {"seed_length": fork.seed_length, "surface_seqs": fork.surface_seqs}


@pytest.mark.parametrize("vector", vectors("fork"))
def test_fork_vector(vector: dict[str, Any]) -> None:
    found = outcome(log_of(vector["events"]), vector["boundary"])
    assert same_json(found, vector["result"])


@given(logs(gaps=True))
def test_a_fork_sees_what_its_prefix_shows(events: list[LogEvent]) -> None:
    for boundary in range(events[-1].seq + 1 if events else 0):
        prefix = [event for event in events if event.seq <= boundary]
        if recovery_of(prefix).interrupted:
            with pytest.raises(ForkRefused) as refused:
                fork_at(events, boundary)
            assert refused.value.fault is ForkFault.OPEN_TURN
        else:
            seen = transcript_of(prefix).surface_seqs
            assert fork_at(events, boundary) == Fork(boundary + 1, prefix, seen)


def test_an_open_turn_is_named_with_a_way_out() -> None:
    log = make_log(says("a"), ("turn_start", {"turn": 1}), says("b"))
    with pytest.raises(ForkRefused, match="turn that starts at seq 1: fork before it"):
        fork_at(log, "last")
    assert fork_at(log, 0).seed_length == 1


def test_the_end_of_a_log_with_gaps_is_its_last_seq() -> None:
    log = [LogEvent(3, *says("a")), LogEvent(8, *says("b"))]
    assert fork_at(log, "last").seed_length == 9
    assert fork_at(log, 5) == Fork(6, log[:1], [3])
    with pytest.raises(ForkRefused, match="last event has seq 8") as refused:
        fork_at(log, 9)
    assert refused.value.details == (9, 9)


def test_an_empty_log_forks_at_last_only() -> None:
    assert fork_at([], "last") == Fork(0, [], [])
    with pytest.raises(ForkRefused, match="the log is empty"):
        fork_at([], 0)
