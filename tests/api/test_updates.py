"""POST …/updates: the three paths, what the answer says, and what is kept."""

import json
import logging

import pytest

from sessions.models import Event, Refusal, Session, Update


def test_a_session_is_created_by_its_first_post(api):
    answer = api.update("run-1", ["set", "a", 1])
    assert answer.status == 201
    assert answer.json == {
        "version": 1, "ordinal": 1, "epoch": 0, "keys": ["a"], "events": [],
    }  # fmt: skip
    assert api.session("run-1")["version"] == 1


def test_versions_count_updates_without_gaps(api):
    versions = [api.update("s", ["set", "a", n]).json["version"] for n in range(5)]
    assert versions == [1, 2, 3, 4, 5]


def test_both_forms_of_an_operation_do_the_same(api):
    api.update("s", ["set", "a", {"x": 1}], {"op": "merge", "key": "a", "value": {"y": 2}})
    api.update("s", {"op": "append", "key": "l", "value": 1}, {"op": "delete", "key": "a"})
    assert api.deps("s", 1) == {"a": {"x": 1, "y": 2}}
    assert api.deps("s") == {"l": [1]}


def test_context_is_the_default_path_and_logs_bookkeeping_events(api):
    answer = api.update("s", ["log_event", "tool_call", {"id": "c"}], ["set", "a", 1])
    [event] = answer.json["events"]
    assert event == {"type": "tool_call", "disposition": "logged", "seq": 0, "ordinal": 2}
    assert Update.objects.get().path == "context"


def test_context_keeps_refused_and_invalid_events_with_their_reasons(api):
    answer = api.update(
        "s",
        ["log_event", "tool_call", {"n": 1}],
        ["log_event", "user_message", {"content": "smuggled"}],
        ["log_event", "made_up", {"n": 3}],
        ["log_event", "step_start", {"surface_op": ["replace", 0, 1]}],
        ["log_event", "tool_call", {"n": 5}],
    )
    found = [(e["disposition"], e.get("reason"), e.get("seq")) for e in answer.json["events"]]
    assert found == [
        ("logged", None, 0),
        ("refused", "surface_type", None),
        ("invalid", "unknown_event_type", None),
        ("invalid", "surface_op_on_non_surface_event", None),
        ("logged", None, 1),
    ]
    assert Event.objects.count() == 5
    assert api.session("s")["lost"] == 3


def test_run_context_applies_deps_and_keeps_dropped_events_in_place(api, caplog):
    api.update("s", ["set", "a", 1])
    with caplog.at_level(logging.WARNING, "sessions.ingest"):
        answer = api.update(
            "s",
            ["append", "l", "x"],
            ["log_event", "tool_call", {"id": "lost"}],
            ["log_event", "user_message", {"content": "also"}],
            ["log_event", "anything", {}],
            path="run_context",
        )
    assert [e["disposition"] for e in answer.json["events"]] == ["dropped"] * 3
    assert {e["reason"] for e in answer.json["events"]} == {"no_log"}
    assert api.deps("s") == {"a": 1, "l": ["x"]}
    events = api.timeline("s")
    assert [(e["ordinal"], e["type"], e["seq"]) for e in events] == [
        (3, "tool_call", None), (4, "user_message", None), (5, "anything", None),
    ]  # fmt: skip
    assert events[0]["data"] == {"id": "lost"}
    [record] = caplog.records
    message = record.getMessage()
    assert record.levelname == "WARNING"
    assert "3 events dropped" in message
    for event_type in ("tool_call", "user_message", "anything"):
        assert event_type in message


def test_a_type_cannot_forge_a_line_of_the_server_log(api, caplog):
    api.update("s", ["log_event", "x\nERROR all is lost", {}], path="run_context")
    assert "\n" not in caplog.records[-1].getMessage()


def test_runner_replaces_lists_and_maps_and_says_where_it_differs(api):
    api.update("s", ["set", "l", [1]], ["set", "m", {"a": 1}], ["set", "d", 1])
    answer = api.update(
        "s",
        ["append", "l", 2], ["merge", "m", {"b": 2}], ["delete", "d"], ["set", "same", 3],
        path="runner",
    )  # fmt: skip
    assert api.deps("s") == {"l": [2], "m": {"b": 2}, "d": 1, "same": 3}
    assert answer.json["differs"] == ["l", "m", "d"]
    assert json.loads(Update.objects.get(version=2).differs) == ["l", "m", "d"]


def test_runner_says_when_context_would_have_refused(api):
    api.update("s", ["set", "k", "text"])
    answer = api.update("s", ["append", "k", 1], path="runner")
    assert answer.status == 201
    assert api.deps("s") == {"k": [1]}
    assert "append" in answer.json["context_refuses"]


def test_runner_logs_events_as_context_does(api):
    answer = api.update(
        "s", ["log_event", "tool_call", {}], ["log_event", "user_message", {}], path="runner"
    )
    assert [e["disposition"] for e in answer.json["events"]] == ["logged", "refused"]


def test_an_operation_that_the_reducer_refuses_applies_nothing_and_is_kept_for_staff(api):
    api.update("s", ["set", "k", "text"])
    answer = api.update(
        "s", ["set", "other", 1], ["log_event", "tool_call", {}], ["append", "k", 1]
    )
    problem = answer.problem
    assert answer.status == 422
    assert problem["rule"] == "append_needs_list"
    assert problem["field"] == "operations/2/key"
    assert api.deps("s") == {"k": "text"}
    session = api.session("s")
    assert (session["version"], session["events"], session["refusals"]) == (1, 0, 1)
    refusal = Refusal.objects.get()
    assert json.loads(refusal.problem)["rule"] == "append_needs_list"
    assert json.loads(refusal.body)["operations"][2] == ["append", "k", 1]
    # and the next one is folded into what was there
    assert api.update("s", ["merge", "m", {"a": 1}]).json["version"] == 2
    assert api.deps("s") == {"k": "text", "m": {"a": 1}}


def test_a_refused_first_update_makes_no_session(api):
    assert api.update("s", ["append", "k", 1], ["explode", "k"]).status == 422
    assert not Session.objects.exists()
    assert Refusal.objects.get().session_key == "s"


def test_expected_version_is_checked(api):
    api.update("s", ["set", "a", 1])
    answer = api.update("s", ["set", "a", 2], expected_version=0)
    assert answer.status == 409
    assert answer.problem["rule"] == "version_conflict"
    assert answer.problem["version"] == 1
    assert api.update("s", ["set", "a", 2], expected_version=1).status == 201


def test_operations_come_out_as_they_came_in(api):
    text = (
        '[ ["set","k", 1.10 ],["set" , "é\\u00e9\\u0000", "\\ud800" ],\n'
        ' {"value":-0.0,"key":"n","op":"set"}, ["set","big",123456789012345678901234567890.50] ]'
    )
    answer = api.post("sessions/s/updates", f'{{"operations":{text}}}')
    assert answer.status == 201
    assert Update.objects.get().operations == text
    assert f'"operations":{text}' in api.get("sessions/s/updates").text
    assert '"k":1.1' in api.get("sessions/s/deps").text
    assert '"n":-0.0' in api.get("sessions/s/deps").text
    assert '"\\u00e9\\u00e9\\u0000":"\\ud800"' in api.get("sessions/s/deps").text


def test_event_data_come_out_as_they_came_in(api):
    data = '{ "b": 1.10, "a":"\\u0000\\ud83d", "big": 10000000000000000000000001 }'
    body = f'{{"operations":[["log_event","tool_call",{data}]]}}'
    assert api.post("sessions/s/updates", body).status == 201
    assert Event.objects.get().data == data
    assert f'"data":{data}' in api.get("sessions/s/events").text


def test_tool_call_and_time_are_kept(api):
    api.update(
        "s", ["set", "a", 1],
        tool_call={"id": "c1", "name": "search"}, occurred_at="2026-03-01T09:00:00.123456789+02:00",
    )  # fmt: skip
    [update] = api.get("sessions/s/updates").json["updates"]
    assert update["tool_call"] == {"id": "c1", "name": "search"}
    assert update["occurred_at"] == "2026-03-01T09:00:00.123456789+02:00"


def test_an_array_of_updates_is_all_or_nothing_with_a_result_each(api):
    good = {"operations": [["append", "l", 1]]}
    answer = api.post("sessions/s/updates", [good, good])
    assert [r["version"] for r in answer.json["results"]] == [1, 2]
    answer = api.post("sessions/s/updates", [good, {"operations": [["append", "l", 2], ["pop"]]}])
    assert answer.status == 422
    assert answer.problem["item"] == 1
    bad = {"operations": [["set", "x", 1], ["append", "x", 2]]}
    answer = api.post("sessions/s/updates", [good, bad, good])
    assert answer.problem["item"] == 1
    assert api.deps("s") == {"l": [1, 1]}
    assert api.session("s")["version"] == 2


def test_an_update_without_operations_is_a_version_all_the_same(api):
    assert api.update("s").json["version"] == 1


@pytest.mark.parametrize("key", ["items", "keys", "0", "", "a.b", "a/b", "__proto__", "\x00"])
def test_any_text_is_a_deps_key(api, key):
    api.update("s", ["set", key, 1])
    api.update("s", ["merge", key, {"x": 1}])
    assert api.deps("s") == {key: {"x": 1}}


def test_a_huge_integer_is_a_value(api):
    digits = "9" * 6000
    api.post("sessions/s/updates", f'{{"operations":[["set","n",{digits}]]}}')
    assert f'"n":{digits}' in api.get("sessions/s/deps").text
    assert api.update("s", ["append", "n", 1]).status == 422
