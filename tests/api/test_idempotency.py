"""A retry gets its first answer, never a second row."""

import json

import pytest

from sessions.models import Event, Update

BODY = {"id": "u-1", "operations": [["append", "l", 1], ["log_event", "tool_call", {"a": 1}]]}


def test_the_same_update_id_and_body_get_the_first_answer_again(api):
    first = api.post("sessions/s/updates", BODY)
    api.update("s", ["append", "l", 2])
    again = api.post("sessions/s/updates", BODY)
    assert (first.status, again.status) == (201, 200)
    assert again.json == first.json
    assert Update.objects.count() == 2
    assert api.deps("s") == {"l": [1, 2]}


def test_the_same_body_in_other_words_is_the_same_body(api):
    first = api.post("sessions/s/updates", BODY)
    text = json.dumps(BODY, indent=2, sort_keys=True)
    assert api.post("sessions/s/updates", text).json == first.json


def test_the_same_update_id_with_another_body_is_refused(api):
    api.post("sessions/s/updates", BODY)
    answer = api.post("sessions/s/updates", {**BODY, "path": "runner"})
    assert answer.status == 422
    assert answer.problem["rule"] == "idempotency_mismatch"
    assert answer.problem["field"] == "id"
    assert Update.objects.count() == 1


def test_an_id_belongs_to_its_session(api):
    api.post("sessions/a/updates", BODY)
    assert api.post("sessions/b/updates", {**BODY, "operations": []}).status == 201


def test_an_event_without_seq_can_be_sent_again_by_its_id(api):
    first = api.event("s", "tool_call", {"n": 1}, id="e-1")
    again = api.event("s", "tool_call", {"n": 1}, id="e-1")
    assert again.json == first.json
    assert Event.objects.count() == 1
    assert api.event("s", "tool_call", {"n": 2}, id="e-1").status == 422


def test_a_refused_update_claims_no_id(api):
    api.update("s", ["set", "k", "text"])
    body = {"id": "x", "operations": [["append", "k", 1]]}
    assert api.post("sessions/s/updates", body).status == 422
    api.update("s", ["delete", "k"])
    assert api.post("sessions/s/updates", body).status == 201


def test_an_id_twice_in_one_array_is_one_update(api):
    answer = api.post("sessions/s/updates", [BODY, BODY])
    assert [r["version"] for r in answer.json["results"]] == [1, 1]
    assert Update.objects.count() == 1


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("sessions/s/updates", {"operations": [["append", "l", 1]]}),
        ("sessions/s/updates", [{"operations": [["append", "l", 1]]}] * 2),
        ("sessions/s/events", {"type": "tool_call", "data": {}}),
        ("sessions/s/events", [{"type": "tool_call", "data": {}}] * 2),
        ("ingest", [{"session": "s", "operations": []}, {"session": "t", "operations": []}]),
    ],
)
def test_an_idempotency_key_gets_the_first_answer_again(api, path, body):
    first = api.post(path, body, Idempotency_Key="k-1")
    again = api.post(path, body, Idempotency_Key="k-1")
    assert (first.status, again.status) == (201, 200)
    strip = json.dumps(again.json).replace('"status": 200', '"status": 201')
    assert json.loads(strip) == first.json
    other = api.post(path, body, Idempotency_Key="k-2")
    assert other.status == 201
    assert other.json != first.json


def test_an_idempotency_key_with_another_body_is_refused(api):
    api.post("sessions/s/updates", {"operations": []}, Idempotency_Key="k")
    answer = api.post("sessions/s/updates", {"operations": [["set", "a", 1]]}, Idempotency_Key="k")
    assert answer.status == 422
    assert answer.problem["rule"] == "idempotency_mismatch"
    assert answer.problem["field"] == "Idempotency-Key"


def test_a_rewind_can_be_sent_again_by_its_key(api):
    api.event("s", "tool_call", {}, seq=0)
    body = {"to_seq": 0, "reason": "x"}
    first = api.post("sessions/s/rewind", body, Idempotency_Key="k")
    api.event("s", "tool_call", {}, seq=0)
    again = api.post("sessions/s/rewind", body, Idempotency_Key="k")
    assert again.json == first.json
    assert api.session("s")["epoch"] == 1


def test_a_batch_that_was_stored_in_part_is_completed_by_its_key(api):
    api.update("b", ["set", "k", "text"])
    batch = [
        {"session": "a", "operations": [["append", "l", 1]]},
        {"session": "b", "operations": [["append", "k", 1]]},
    ]
    assert api.post("ingest", batch, Idempotency_Key="k").status == 207
    api.update("b", ["delete", "k"])
    assert api.post("ingest", batch, Idempotency_Key="k").status == 201
    assert api.deps("a") == {"l": [1]}
    assert api.deps("b") == {"k": [1]}


@pytest.mark.parametrize("key", ["", "x" * 201, "ключ"])
def test_a_key_that_is_none_is_refused(api, key):
    raw = key.encode().decode("latin-1")
    answer = api.post("sessions/s/updates", {"operations": []}, Idempotency_Key=raw)
    assert answer.status == 422
    assert answer.problem["field"] == "Idempotency-Key"
