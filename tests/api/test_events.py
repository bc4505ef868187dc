"""POST …/events: exact seqs, conflicts, gaps, and types we don't know."""

import json

import pytest

from sessions.models import Event


def test_events_are_numbered_from_zero(api):
    seqs = [api.event("s", "user_message", {"content": "x"}).json["seq"] for _ in range(3)]
    assert seqs == [0, 1, 2]


def test_an_event_already_held_is_a_duplicate_and_stored_once(api):
    first = api.event("s", "user_message", {"content": "x", "n": 1}, seq=0)
    again = api.post(
        "sessions/s/events",
        '{"data": {"n":1,  "content":"\\u0078"}, "type":"user_message","seq":0}',
    )
    assert (first.status, again.status) == (201, 200)
    assert again.json["duplicate"] is True
    assert again.json["seq"] == 0
    assert Event.objects.count() == 1


@pytest.mark.parametrize("other", [1.0, True, "1", 2, None])
def test_other_content_at_a_held_seq_is_a_conflict_that_says_how_to_rewind(api, other):
    api.event("s", "tool_call", {"n": 1}, seq=0)
    answer = api.event("s", "tool_call", {"n": other}, seq=0)
    assert answer.status == 409
    problem = answer.problem
    assert problem["rule"] == "sequence_conflict"
    assert problem["rewind"] == {"to_seq": 0}
    assert problem["field"] == "seq"
    assert "rewind" in problem["detail"]


def test_another_type_at_a_held_seq_is_a_conflict(api):
    api.event("s", "tool_call", {}, seq=0)
    assert api.event("s", "request_header", {}, seq=0).status == 409


def test_a_gap_names_the_seq_expected(api):
    api.event("s", "tool_call", {}, seq=0)
    answer = api.event("s", "tool_call", {}, seq=5)
    assert answer.status == 409
    assert answer.problem["rule"] == "sequence_gap"
    assert answer.problem["expected_seq"] == 1


def test_a_gap_in_an_array_takes_nothing_and_loses_nothing_before_it(api):
    api.event("s", "tool_call", {}, seq=0)
    rows = [{"seq": n, "type": "tool_call", "data": {"n": n}} for n in (1, 2, 4, 5)]
    answer = api.post("sessions/s/events", rows)
    assert answer.status == 409
    assert answer.problem["item"] == 2
    assert answer.problem["expected_seq"] == 3
    assert [e["seq"] for e in api.timeline("s")] == [0]


def test_an_unknown_type_with_its_seq_is_kept_raw(api):
    answer = api.event("s", "thought_started", {"deep": [1]}, seq=0)
    assert answer.status == 201
    [event] = api.timeline("s")
    assert (event["type"], event["disposition"], event["seq"]) == ("thought_started", "logged", 0)
    assert event["data"] == {"deep": [1]}


def test_an_unknown_type_without_a_seq_is_refused(api):
    answer = api.event("s", "thought_started", {})
    assert answer.status == 422
    assert answer.problem["rule"] == "unknown_event_type"
    assert answer.problem["field"] == "type"


@pytest.mark.parametrize(
    ("event_type", "surface_op", "rule"),
    [
        ("turn_start", "append", "surface_op_on_non_surface_event"),
        ("tool_call", ["replace", 0, 1], "surface_op_on_non_surface_event"),
        ("user_message", ["replace", 2, 1], "invalid_surface_op"),
        ("user_message", ["replace", -1, 1], "invalid_surface_op"),
        ("user_message", ["replace", 0, True], "invalid_surface_op"),
        ("user_message", ["replace", 0, 1.0], "invalid_surface_op"),
        ("user_message", "prepend", "invalid_surface_op"),
    ],
)
def test_a_surface_op_that_no_log_takes_is_refused(api, event_type, surface_op, rule):
    answer = api.event("s", event_type, {"surface_op": surface_op}, seq=0)
    assert answer.status == 422
    assert answer.problem["rule"] == rule


def test_a_replace_is_logged(api):
    api.event("s", "user_message", {"content": "a"})
    answer = api.event("s", "system_message", {"content": "b", "surface_op": ["replace", 0, 9]})
    assert answer.json["seq"] == 1


def test_the_same_event_by_update_and_by_broadcast_is_stored_once(api):
    update = api.update(
        "s", ["log_event", "tool_call", {"id": "a"}], ["log_event", "tool_call", {"id": "b"}],
        first_seq=0,
    )  # fmt: skip
    assert [e["seq"] for e in update.json["events"]] == [0, 1]
    broadcast = api.event("s", "tool_call", {"id": "b"}, seq=1)
    assert broadcast.json["duplicate"] is True
    assert len(api.timeline("s")) == 2


def test_the_same_event_by_broadcast_and_then_by_update_is_stored_once(api):
    api.event("s", "tool_call", {"id": "a"}, seq=0)
    update = api.update(
        "s", ["set", "k", 1], ["log_event", "tool_call", {"id": "a"}],
        ["log_event", "tool_call", {"id": "b"}], first_seq=0,
    )  # fmt: skip
    assert update.status == 201
    assert [(e["seq"], e.get("duplicate")) for e in update.json["events"]] == [(0, True), (1, None)]
    assert len(api.timeline("s")) == 2
    assert api.deps("s") == {"k": 1}


def test_first_seq_counts_logged_events_only(api):
    api.event("s", "tool_call", {"id": "b"}, seq=0)
    update = api.update(
        "s", ["log_event", "user_message", {}], ["log_event", "nope", {}],
        ["log_event", "tool_call", {"id": "b"}], first_seq=0,
    )  # fmt: skip
    assert [e["disposition"] for e in update.json["events"]] == ["refused", "invalid", "logged"]
    assert update.json["events"][2]["duplicate"] is True


def test_first_seq_with_other_content_is_a_conflict_and_applies_nothing(api):
    api.event("s", "tool_call", {"id": "x"}, seq=0)
    answer = api.update("s", ["set", "k", 1], ["log_event", "tool_call", {"id": "y"}], first_seq=0)
    assert answer.status == 409
    assert answer.problem["field"] == "operations/1"
    assert api.deps("s") == {}


def test_first_seq_ahead_of_the_log_is_a_gap(api):
    answer = api.update("s", ["log_event", "tool_call", {}], first_seq=3)
    assert answer.status == 409
    assert answer.problem["expected_seq"] == 0


def test_an_array_may_bring_an_event_that_it_brought_before(api):
    rows = [{"seq": n, "type": "tool_call", "data": {"n": n}} for n in range(4)]
    api.post("sessions/s/events", rows[:3])
    answer = api.post("sessions/s/events", rows[1:])
    assert answer.status == 201
    assert [r.get("duplicate", False) for r in answer.json["results"]] == [True, True, False]
    again = api.post("sessions/s/events", rows)
    assert again.status == 200
    twice = api.post("sessions/s/events", [{**rows[3], "seq": 4}, {**rows[3], "seq": 4}])
    assert [r.get("duplicate", False) for r in twice.json["results"]] == [False, True]


@pytest.mark.parametrize(
    "time",
    [
        "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999-11:00", "2026-03-01T09:00:00+0200",
        "2026-03-01 09:00:00,123456789123Z", "0000-02-29T00:00:00Z",
    ],
)  # fmt: skip
def test_any_time_with_an_offset_is_kept_as_received(api, time):
    assert api.event("s", "turn_start", {"turn": 1}, time=time).status == 201
    assert api.timeline("s")[0]["time"] == time
    assert api.get("sessions/s/steps").status == 200


@pytest.mark.parametrize(
    "time",
    ["2026-03-01T09:00:00", "2026-03-01", "yesterday", "2026-02-30T00:00:00Z", 5,
     "2026-03-01T25:00:00Z", "10000-01-01T00:00:00Z", "2026-03-01T09:00Z", "",
     "٢٠٢٦-03-01T09:00:00Z"],
)  # fmt: skip
def test_a_time_without_an_offset_or_that_is_none_is_refused(api, time):
    answer = api.event("s", "turn_start", {"turn": 1}, time=time)
    assert answer.status == 422
    assert answer.problem["field"] == "time"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"type": "tool_call"}, "data"),
        ({"data": {}}, "type"),
        ({"type": "tool_call", "data": []}, "data"),
        ({"type": "tool_call", "data": None}, "data"),
        ({"type": 5, "data": {}}, "type"),
        ({"type": "", "data": {}}, "type"),
        ({"type": "tool_call", "data": {}, "seq": -1}, "seq"),
        ({"type": "tool_call", "data": {}, "seq": 0.0}, "seq"),
        ({"type": "tool_call", "data": {}, "seq": True}, "seq"),
        ({"type": "tool_call", "data": {}, "seq": "0"}, "seq"),
        ({"type": "tool_call", "data": {}, "seq": 2**63}, "seq"),
        ({"type": "tool_call", "data": {}, "turn": 1}, "turn"),
        ({"type": "tool_call", "data": {}, "rewind": 1, "seq": 0}, "rewind"),
        ({"type": "tool_call", "data": {}, "rewind": True}, "rewind"),
        ({"type": "tool\x00call", "data": {}}, "type"),
        ({"type": "tool_call", "data": {}, "id": "a\x00"}, "id"),
        ({"type": "tool_call", "data": {}, "id": ""}, "id"),
    ],
)
def test_a_wrong_field_is_named(api, body, field):
    answer = api.post("sessions/s/events", body)
    assert answer.status == 422, answer
    assert answer.problem["field"] == field


def test_a_lone_surrogate_in_a_type_or_an_id_is_refused(api):
    for body, field in [
        ('{"type":"\\ud800","data":{}}', "type"),
        ('{"type":"tool_call","data":{},"id":"\\udfff"}', "id"),
    ]:
        answer = api.post("sessions/s/events", body)
        assert answer.status == 422
        assert answer.problem["field"] == field


def test_a_page_of_the_log_since_a_seq(api):
    for n in range(5):
        api.event("s", "tool_call", {"n": n}, seq=n)
    api.update("s", ["log_event", "tool_call", {}], path="run_context")
    found = api.get("sessions/s/events?after_seq=2").json["events"]
    assert [event["seq"] for event in found] == [3, 4]
    assert [json.dumps(event["data"]) for event in found] == ['{"n": 3}', '{"n": 4}']
