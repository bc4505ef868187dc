"""The recovery plan agrees with upstream, repairs once, and tells a person what it means."""

from typing import Any

import pytest
from hypothesis import given

from sessions.core.recovery import OwedCall, PlannedEvent, Risk, call_id, recovery_of
from sessions.core.reducer import same_json
from sessions.core.strict_json import HugeInteger
from sessions.core.transcript import LogEvent
from tests.core.logs import calls, log_of, logs, make_log, result, vectors


def without_wording(planned: PlannedEvent) -> list[Any]:
    data = dict(planned.data)
    if planned.type == "tool_result":
        assert data.pop("content"), "a synthetic result says what it is"
    return [planned.type, data]


def appended(events: list[LogEvent], plan: list[PlannedEvent]) -> list[LogEvent]:
    first = events[-1].seq + 1 if events else 0
    return events + [LogEvent(first + n, *planned) for n, planned in enumerate(plan)]


@pytest.mark.parametrize("vector", vectors("recovery"))
def test_recovery_vector(vector: dict[str, Any]) -> None:
    events = log_of(vector["events"])
    recovery = recovery_of(events)
    assert recovery.interrupted is vector["interrupted"]
    assert same_json([turn.seq for turn in recovery.open_turns], vector["open_turns"])
    assert same_json([without_wording(planned) for planned in recovery.plan], vector["plan"])
    warnings = [
        {"kind": "stray_turn_end", "level": "warning", "seq": seq}
        for seq in recovery.stray_turn_ends
    ]
    assert same_json(warnings, vector["warnings"])
    assert recovery_of(appended(events, recovery.plan)).plan == []


@given(logs(gaps=True))
def test_recovering_twice_adds_nothing(events: list[LogEvent]) -> None:
    recovery = recovery_of(events)
    again = recovery_of(appended(events, recovery.plan))
    assert again.plan == []
    assert not again.interrupted
    assert again.stray_turn_ends == recovery.stray_turn_ends


@given(logs())
def test_no_call_is_answered_twice(events: list[LogEvent]) -> None:
    plan = recovery_of(events).plan
    answered = [p.data["tool_call_id"] for p in plan if p.type == "tool_result"]
    assert len(answered) == len(set(answered))
    assert not {call_id(e.data) for e in events if e.type == "tool_result"} & set(answered)


def owed(*events: tuple[str, dict[str, Any]]) -> list[OwedCall]:
    log = make_log(("turn_start", {"turn": 1}), *events)
    return list(recovery_of(log).open_turns[0].owed)


def test_a_call_of_unknown_outcome_says_to_check_before_repeating() -> None:
    (call,) = owed(calls("c1"))
    assert call.risk is Risk.OUTCOME_UNKNOWN
    assert "call of echo" in call.content
    assert "may have run" in call.content
    assert "Check what it changed" in call.content


def test_a_call_not_started_says_that_it_may_be_repeated() -> None:
    call, _ = owed(calls("c1", "c2"), ("tool_call", {"id": "c2", "name": "echo"}))
    assert call.risk is Risk.NOT_STARTED
    assert "nothing in the log shows that it started" in call.content


def test_a_code_mode_call_that_had_dispatched_others_is_not_said_to_have_had_no_effect() -> None:
    inner = [("tool_call", {"id": f"run:code:{n}", "name": "write"}) for n in range(2)]
    call, *_ = owed(calls("run"), *inner)
    assert call.risk is Risk.NOT_STARTED, "upstream's class stays"
    assert call.code_calls == 2
    assert "2 other calls" in call.content
    assert "no effect" not in call.content


def test_a_call_without_a_name_is_just_the_call() -> None:
    assert "The call was" in OwedCall("c", None, 0, Risk.NOT_STARTED).content
    assert "The call was" in OwedCall("c", {"a": 1}, 0, Risk.OUTCOME_UNKNOWN).content


def test_a_call_knows_the_event_that_showed_it_first() -> None:
    call, _ = owed(calls("c1"), ("tool_call", {"id": "c2"}))
    assert call.seq == 1


def test_a_result_pays_whether_its_id_is_text_or_a_number() -> None:
    assert owed(calls(5), result("5")) == []


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"tool_call_id": "a", "id": "b"}, "a"),
        ({"tool_call_id": None, "id": "b"}, "b"),
        ({"id": ""}, ""),
        ({"id": 5}, "5"),
        ({"id": True}, "true"),
        ({"id": HugeInteger("9" * 5000)}, "9" * 5000),
        ({"id": 1.5}, None),
        ({"id": ["a"]}, None),
        ({}, None),
    ],
)
def test_an_id_is_text_or_becomes_text_or_is_none(data: dict[str, Any], expected: Any) -> None:
    assert call_id(data) == expected
