"""Every error is a problem document that says what is wrong, and every limit has one."""

import json

import pytest
from django.conf import settings

LIMITS = settings.LIMITS


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "",
        "text/json",
        "multipart/form-data; boundary=x",
        "application/json; charset=latin-1",
    ],
)
@pytest.mark.parametrize("path", ["sessions/s/updates", "sessions/s/events", "ingest"])
def test_another_content_type_is_415(api, path, kind):
    answer = api.post(path, "[]", content_type=kind)
    assert answer.status == 415
    assert answer.problem["rule"] == "content_type"


def test_ndjson_is_for_batches_only(api):
    kind = "application/x-ndjson"
    assert api.post("sessions/s/updates", "{}", content_type=kind).status == 415


def test_an_encoded_body_is_415(api):
    answer = api.post("ingest", b"\x1f\x8b", Content_Encoding="gzip")
    assert answer.status == 415
    assert answer.headers["Accept-Encoding"] == "identity"


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
def test_another_method_is_405(api, method):
    answer = api.send(method, "ingest", [])
    assert answer.status == 405
    assert answer.problem["rule"] == "method_not_allowed"
    assert "POST" in answer.headers["Allow"]


def test_an_unknown_address_is_404(api):
    assert api.get("nothing/here").problem["status"] == 404


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ('{"operations":[["set","a",1,]]}', "json_syntax"),
        ('{"operations":[["set","a",NaN]]}', "json_number"),
        ('{"operations":[["set","a",1e999]]}', "json_number"),
        ('{"operations":[["set","a",{"x":1,"x":2}]]}', "json_duplicate_key"),
        ('{"operations":[],"operations":[]}', "json_duplicate_key"),
        ('{"operations":[]} x', "json_trailing_data"),
        ('{"operations":[["set","a",' + "[" * 62 + "]" * 62 + "]]}", "json_depth"),
        (" ", "json_truncated"),
        (b'{"operations":[["set","a","\xff"]]}', "json_utf8"),
        (b'\xef\xbb\xbf{"operations":[]}', "json_byte_order_mark"),
    ],
)
def test_a_body_that_is_no_strict_json_is_400_and_says_where(api, body, rule):
    answer = api.post("sessions/s/updates", body)
    assert answer.status == 400
    problem = answer.problem
    assert problem["rule"] == rule
    assert problem["line"] == 1
    assert problem["column"] >= 1


def test_the_deepest_nesting_is_taken(api):
    value = "[" * 61 + "]" * 61
    answer = api.post("sessions/s/updates", f'{{"operations":[["set","a",{value}]]}}')
    assert answer.status == 201


@pytest.mark.parametrize("body", ["[1]", "1", '"x"', "null", "[[]]"])
def test_an_update_is_an_object(api, body):
    answer = api.post("sessions/s/updates", body)
    assert answer.status == 422
    assert answer.problem["rule"] == "object_required"


@pytest.mark.parametrize(
    ("fields", "field", "rule"),
    [
        ({"colour": 1}, "colour", "unknown_field"),
        ({"path": "Context"}, "path", "literal_error"),
        ({"path": None}, "path", "literal_error"),
        ({"first_seq": -1}, "first_seq", "greater_than_equal"),
        ({"first_seq": 1.0}, "first_seq", "int_type"),
        ({"expected_version": True}, "expected_version", "int_type"),
        ({"expected_version": "1"}, "expected_version", "int_type"),
        ({"tool_call": {"id": "c"}}, "tool_call/name", "missing_field"),
        ({"tool_call": {"id": "c", "name": "n", "x": 1}}, "tool_call/x", "unknown_field"),
        ({"tool_call": {"id": 5, "name": "n"}}, "tool_call/id", "string_type"),
        ({"tool_call": "c"}, "tool_call", "model_type"),
        ({"occurred_at": "2026-03-01T09:00:00"}, "occurred_at", "invalid_value"),
        ({"occurred_at": 1}, "occurred_at", "string_type"),
        ({"id": "x" * 201}, "id", "too_long"),
        ({"id": 1}, "id", "string_type"),
        ({"id": "\x00"}, "id", "invalid_value"),
        ({"operations": None}, "operations", "list_type"),
        ({"operations": "x"}, "operations", "list_type"),
    ],
)
def test_a_wrong_field_is_named_with_its_rule(api, fields, field, rule):
    answer = api.post("sessions/s/updates", {"operations": [], **fields})
    assert answer.status == 422, answer
    problem = answer.problem
    assert (problem["field"], problem["rule"]) == (field, rule)


def test_every_wrong_field_is_named(api):
    answer = api.post("sessions/s/updates", {"operations": 1, "a": 1, "path": 2})
    assert {error["field"] for error in answer.problem["errors"]} == {"operations", "a", "path"}


@pytest.mark.parametrize("key", ["a%2Fb", "a%20b", "%00", "..", ".", "%2e%2e", "x" * 201, "é",
                                 "a%0Ab", "%F0%9F%92%A9"])  # fmt: skip
def test_a_session_key_that_is_none_is_refused(api, key):
    for answer in (
        api.post(f"sessions/{key}/updates", {"operations": []}),
        api.get(f"sessions/{key}"),
        api.patch(f"sessions/{key}", {"agent_name": "x"}),
    ):
        assert answer.status in (404, 422), answer
        assert answer.problem
        assert "html" not in answer.text


@pytest.mark.parametrize("key", ["a", "A.b_c:d-e", "0", "x" * 200, "...", "a..b", "new", "updates"])
def test_a_session_key_may_be_any_of_its_characters(api, key):
    assert api.update(key, ["set", "a", 1]).status == 201
    assert api.session(key)["key"] == key


# -- limits: L is taken, L + 1 is not -------------------------------------------------------


def test_limit_of_the_body(api, settings):
    settings.LIMITS = {**LIMITS, "body_bytes": 1000}
    body = '{"operations":[]' + " " * 983 + "}"
    assert len(body) == 1000
    assert api.post("sessions/s/updates", body).status == 201
    answer = api.post("sessions/s/updates", body + " ")
    assert answer.status == 413
    assert answer.problem["limit"] == 1000


def test_a_body_that_django_finds_too_large_is_a_problem_as_well(api, settings):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 100
    answer = api.post("sessions/s/updates", " " * 200)
    assert answer.status == 413
    assert answer.problem["rule"] == "too_large"


def test_limit_of_items_in_a_batch(api, settings):
    settings.LIMITS = {**LIMITS, "batch_items": 3}
    item = {"session": "s", "operations": []}
    assert api.post("ingest", [item] * 3).status == 201
    answer = api.post("ingest", [item] * 4)
    assert answer.status == 413
    assert answer.problem["limit"] == 3
    text = "\n".join(json.dumps(item) for _ in range(4))
    assert api.post("ingest", text, content_type="application/x-ndjson").status == 413
    assert api.post("sessions/s/updates", [{"operations": []}] * 4).status == 413


def test_limit_of_the_size_of_an_event(api):
    limit = LIMITS["event_bytes"]
    room = limit - len('{"x": ""}')
    fits, exceeds = {"x": "y" * room}, {"x": "y" * (room + 1)}
    assert api.event("s", "tool_call", fits).status == 201
    assert api.update("s", ["log_event", "tool_call", fits]).status == 201
    answer = api.event("s", "tool_call", exceeds)
    assert answer.status == 422
    assert (answer.problem["field"], answer.problem["limit"]) == ("data", limit)
    answer = api.update("s", ["set", "a", 1], ["log_event", "tool_call", exceeds])
    assert answer.problem["field"] == "operations/1/data"


def test_limit_of_the_size_of_an_event_counts_bytes(api):
    limit = LIMITS["event_bytes"]
    text = '{"x":"' + "é" * (limit // 2) + '"}'
    answer = api.post("sessions/s/events", f'{{"type":"tool_call","data":{text}}}'.encode())
    assert answer.status == 422


def test_limit_of_a_deps_key(api):
    limit = LIMITS["key_characters"]
    assert api.update("s", ["set", "k" * limit, 1]).status == 201
    answer = api.update("s", ["set", "k" * (limit + 1), 1])
    assert answer.status == 422
    assert (answer.problem["field"], answer.problem["limit"]) == ("operations/0/key", limit)


def test_limit_of_operations(api):
    limit = LIMITS["operations"]
    assert api.update("s", *[["delete", "k"]] * limit).status == 201
    answer = api.update("s", *[["delete", "k"]] * (limit + 1))
    assert answer.status == 422
    assert answer.problem["field"] == "operations"


def test_limit_of_an_event_type(api):
    assert api.update("s", ["log_event", "t" * 200, {}]).status == 201
    answer = api.update("s", ["log_event", "t" * 201, {}])
    assert answer.status == 422
    assert answer.problem["field"] == "operations/0/type"


def test_limit_of_a_session_key(api):
    assert api.update("k" * 200, ["set", "a", 1]).status == 201
    assert api.update("k" * 201, ["set", "a", 1]).status == 422


# -- who may -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Bearer nope", "Basic abc", "Token x", "Bearer é"]
)
def test_without_a_valid_token_it_is_401(api, header):
    api.client.defaults.pop("HTTP_AUTHORIZATION")
    named = {} if header is None else {"Authorization": header}
    answer = api.post("sessions/s/updates", {"operations": []}, **named)
    assert answer.status == 401
    assert answer.problem["rule"] == "not_authenticated"
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_the_token_is_asked_before_the_body(api):
    api.client.defaults["HTTP_AUTHORIZATION"] = "Bearer wrong"
    assert api.post("ingest", "{").status == 401
