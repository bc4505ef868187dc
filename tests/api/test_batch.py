"""POST /ingest: many sessions at once, all or nothing for each, a result for every item."""

import json

import pytest

from sessions.models import Refusal, Session

UPDATE = {"operations": [["append", "l", 1]]}
EVENT = {"type": "tool_call", "data": {"n": 1}}


def lines(*items):
    return "\n".join(json.dumps(item) for item in items)


def test_updates_and_events_of_many_sessions_in_one_array(api):
    batch = [{"session": "a", **UPDATE}, {"session": "b", **EVENT}, {"session": "a", **EVENT}]
    answer = api.post("ingest", batch)
    assert answer.status == 201
    results = answer.json["results"]
    assert [(r["item"], r["session"], r["status"]) for r in results] == [
        (0, "a", 201), (1, "b", 201), (2, "a", 201),
    ]  # fmt: skip
    assert results[0]["version"] == 1
    assert results[1]["seq"] == 0
    assert results[2]["ordinal"] == 2


@pytest.mark.parametrize(
    "kind", ["application/x-ndjson", "application/ndjson", "application/x-ndjson; charset=utf-8"]
)
def test_one_item_a_line(api, kind):
    body = lines({"session": "a", **UPDATE}, {"session": "a", **UPDATE}) + "\r\n\n"
    answer = api.post("ingest", body, content_type=kind)
    assert answer.status == 201
    assert [r["version"] for r in answer.json["results"]] == [1, 2]


def test_a_line_that_is_no_json_is_named_and_nothing_is_stored(api):
    body = lines({"session": "a", **UPDATE}) + '\n{"session":"a",\n'
    answer = api.post("ingest", body, content_type="application/x-ndjson")
    assert answer.status == 400
    assert answer.problem["line"] == 2
    assert not Session.objects.exists()


def test_a_refused_item_refuses_its_session_and_no_other(api):
    batch = [
        {"session": "a", **UPDATE},
        {"session": "b", **UPDATE},
        {"session": "a", "operations": [["explode"]]},
        {"session": "a", **EVENT},
    ]
    answer = api.post("ingest", batch)
    assert answer.status == 207
    results = answer.json["results"]
    assert [r["status"] for r in results] == [424, 201, 422, 424]
    assert results[2]["problem"]["rule"] == "unknown_operation"
    assert results[2]["problem"]["item"] == 2
    assert results[0]["problem"]["because"] == 2
    assert answer.json["refused"] == 3
    assert list(Session.objects.values_list("key", flat=True)) == ["b"]
    assert Refusal.objects.get().session_key == "a"


def test_a_refusal_found_while_storing_takes_the_session_back(api):
    api.update("a", ["set", "l", "text"])
    batch = [
        {"session": "a", "operations": [["set", "x", 1]]},
        {"session": "a", **UPDATE},
        {"session": "b", **UPDATE},
    ]
    answer = api.post("ingest", batch)
    assert [r["status"] for r in answer.json["results"]] == [424, 422, 201]
    assert api.deps("a") == {"l": "text"}
    assert api.update("a", ["set", "y", 1]).json["version"] == 2
    assert api.deps("a") == {"l": "text", "y": 1}


def test_when_every_session_is_refused_the_answer_is_a_problem(api):
    answer = api.post("ingest", [{"session": "a", **EVENT, "seq": 7}])
    assert answer.status == 409
    assert answer.problem["rule"] == "sequence_gap"
    assert answer.problem["item"] == 0
    assert answer.json["results"][0]["status"] == 409


@pytest.mark.parametrize(
    ("item", "field"),
    [
        ({**UPDATE}, "session"),
        ({"session": 5, **UPDATE}, "session"),
        ({"session": "a/b", **UPDATE}, "session"),
        ({"session": "", **UPDATE}, "session"),
        ({"session": ".."}, "session"),
        ({"session": "a"}, "operations"),
        ({"session": "a", **UPDATE, **EVENT}, "operations"),
        ({"session": "a", **UPDATE, "colour": 1}, "colour"),
        ({"session": "a", "operations": {}}, "operations"),
        ({"session": "a", "operations": [], "path": "sideways"}, "path"),
    ],
)
def test_an_item_of_the_wrong_form_is_named(api, item, field):
    answer = api.post("ingest", [{"session": "fine", **UPDATE}, item])
    assert answer.status == 207
    problem = answer.json["results"][1]["problem"]
    assert problem["item"] == 1
    assert problem["field"] == field
    assert answer.json["results"][0]["status"] == 201


@pytest.mark.parametrize("item", [1, "x", None, []])
def test_an_item_that_is_no_object_is_named(api, item):
    assert api.post("ingest", [item]).problem["item"] == 0


@pytest.mark.parametrize("body", [{}, {"session": "a", **UPDATE}, "text", 1, None])
def test_a_batch_is_an_array(api, body):
    answer = api.post("ingest", json.dumps(body))
    assert answer.status == 422
    assert answer.problem["rule"] == "array_required"


def test_an_empty_batch_stores_nothing_and_says_so(api):
    answer = api.post("ingest", [])
    assert (answer.status, answer.json) == (200, {"results": []})


def test_order_within_a_session_is_the_order_of_the_items(api):
    batch = [{"session": "s", "type": "tool_call", "data": {"n": n}} for n in range(300)]
    api.post("ingest", batch)
    assert [event["data"]["n"] for event in api.timeline("s")] == list(range(300))
    assert [event["ordinal"] for event in api.timeline("s")] == list(range(1, 301))
