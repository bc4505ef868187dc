"""The reading API: sessions, one session, events, updates, deps, the timeline of a step."""

import pytest

from sessions.models import Session
from sessions.tokens import create_token

from .conftest import Api


def seqs(answer):
    return [event["seq"] for event in answer.json["events"]]


def test_sessions_come_with_the_newest_activity_first_and_page_by_cursor(api):
    for n in range(7):
        api.update(f"s{n}", ["set", "a", 1])
    api.update("s0", ["set", "a", 2])
    found, after = [], ""
    while True:
        page = api.get(f"sessions?limit=3{after}").json
        found += [session["key"] for session in page["sessions"]]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert found == ["s0", "s6", "s5", "s4", "s3", "s2", "s1"]


def test_sessions_are_filtered_by_agent_status_and_loss(api):
    api.update("a", ["log_event", "x", {}], path="run_context")
    api.event("b", "turn_start")
    api.patch("sessions/b", {"agent_name": "triage"})
    api.update("c", ["set", "a", 1])

    def keys(query):
        return [session["key"] for session in api.get(f"sessions?{query}").json["sessions"]]

    assert keys("lost=true") == ["a"]
    assert keys("lost=false") == ["c", "b"]
    assert keys("status=running") == ["b"]
    assert keys("agent=triage") == ["b"]
    assert keys("agent=triage&status=idle") == []
    assert api.get("sessions?status=asleep").status == 422


@pytest.mark.parametrize("cursor", ["x", "!!", "AAAA", "%00", "1"])
def test_a_cursor_that_no_page_gave_is_refused(api, cursor):
    answer = api.get(f"sessions?after={cursor}")
    assert answer.status == 422
    assert answer.problem["field"] == "after"


def test_a_nul_in_a_filter_is_refused_on_both_databases(api):
    answer = api.get("sessions?agent=a%00b")
    assert answer.status == 422
    assert answer.problem["field"] == "agent"


@pytest.mark.parametrize("limit", ["0", "1001", "x", "-1"])
def test_a_page_has_a_limit(api, limit):
    for path in ("sessions", "sessions/s/events", "sessions/s/updates"):
        answer = api.get(f"{path}?limit={limit}")
        assert answer.status == 422
        assert answer.problem["field"] == "limit"


def test_events_page_by_ordinal_with_every_disposition(api):
    api.update("s", ["log_event", "tool_call", {}], ["log_event", "nope", {}])
    api.update("s", ["log_event", "tool_call", {}], path="run_context")
    api.event("s", "user_message", {}, seq=1)
    first = api.get("sessions/s/events?limit=2").json
    assert [e["disposition"] for e in first["events"]] == ["logged", "invalid"]
    rest = api.get(f"sessions/s/events?after_ordinal={first['next']}&limit=2").json
    assert [e["disposition"] for e in rest["events"]] == ["dropped", "logged"]
    last = api.get(f"sessions/s/events?after_ordinal={rest['next']}&limit=2").json
    assert last == {"events": [], "next": None}
    event = first["events"][1]
    assert event["reason"] == "unknown_event_type"
    assert event["update_version"] == 1
    assert (event["turn"], event["step"], event["epoch"]) == (1, 0, 0)


def test_updates_page_by_version(api):
    for n in range(5):
        api.update("s", ["set", "n", n])
    page = api.get("sessions/s/updates?after_version=2&limit=2").json
    assert [update["version"] for update in page["updates"]] == [3, 4]
    assert page["updates"][0]["operations"] == [["set", "n", 2]]
    assert page["next"] == 4


def test_the_timeline_of_a_step_has_updates_and_events_in_order(api):
    api.events("s", ("turn_start", {}), ("step_start", {}), ("assistant_message", {}))
    api.update("s", ["set", "a", 1], ["log_event", "tool_call", {}], path="run_context")
    api.event("s", "step_end", {"outcome": "ok"})
    answer = api.get("sessions/s/timeline?turn=1&step=1").json
    assert answer["step"]["outcome"] == "ok"
    found = [(e["kind"], e.get("type"), e["ordinal"]) for e in answer["entries"]]
    assert found == [
        ("event", "step_start", 2), ("event", "assistant_message", 3), ("update", None, 4),
        ("event", "tool_call", 5), ("event", "step_end", 6),
    ]  # fmt: skip
    page = api.get("sessions/s/timeline?turn=1&step=1&limit=3").json
    assert page["next"] == 4
    rest = api.get("sessions/s/timeline?turn=1&step=1&limit=3&after_ordinal=4").json
    assert [e["ordinal"] for e in rest["entries"]] == [5, 6]
    assert rest["next"] is None
    assert api.get("sessions/s/timeline?turn=1&step=9").status == 404


def test_what_is_not_there_is_404(api):
    for path in ("", "/events", "/updates", "/deps", "/steps", "/timeline?turn=1&step=0"):
        answer = api.get(f"sessions/nope{path}")
        assert answer.status == 404
        assert answer.problem["rule"] == "session_not_found"


def test_a_session_says_what_its_runner_said(api):
    api.update("s", ["set", "a", 1])
    api.patch("sessions/s", {"agent_name": "triage", "labels": {"env": "prod"}})
    api.patch("sessions/s", {"usage": {"input_tokens": 10, "output_tokens": 5, "requests": 1}})
    answer = api.patch("sessions/s", {"usage": {"output_tokens": 7}})
    assert answer.json["agent_name"] == "triage"
    assert answer.json["labels"] == {"env": "prod"}
    assert answer.json["usage"] == {"input_tokens": 10, "output_tokens": 7, "requests": 1}
    assert answer.json["total_tokens"] == 17
    assert api.session("s") == answer.json


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"status": "running"}, "status"),
        ({"agent": "x"}, "agent"),
        ({"labels": {"a": 1}}, "labels/a"),
        ({"labels": []}, "labels"),
        ({"usage": {"tokens": 1}}, "usage/tokens"),
        ({"usage": {"requests": -1}}, "usage/requests"),
        ({"usage": {"requests": 1.5}}, "usage/requests"),
        ({"agent_name": "x" * 201}, "agent_name"),
        ({"agent_name": "\x00"}, "agent_name"),
    ],
)
def test_a_patch_names_the_field_that_is_wrong(api, body, field):
    api.update("s", ["set", "a", 1])
    answer = api.patch("sessions/s", body)
    assert answer.status == 422
    assert answer.problem["field"] == field


def test_a_patch_of_an_unknown_session_is_404_and_makes_none(api):
    assert api.patch("sessions/nope", {"agent_name": "x"}).status == 404
    assert not Session.objects.exists()


def test_reading_costs_the_same_for_any_session(api, django_assert_max_num_queries):
    for n in range(30):
        api.update(f"s{n}", ["log_event", "tool_call", {}])
        api.event("s0", "tool_call", {})
    for path in ("sessions", "sessions/s0", "sessions/s0/events", "sessions/s0/updates",
                 "sessions/s0/steps", "sessions/s0/timeline?turn=1&step=0"):  # fmt: skip
        with django_assert_max_num_queries(6):
            assert api.get(path).status == 200


def test_an_update_costs_the_same_number_of_queries_however_long_the_session(
    api, django_assert_max_num_queries
):
    for n in range(60):
        api.update("s", ["append", "l", n], ["log_event", "tool_call", {}])
    with django_assert_max_num_queries(10):
        api.update("s", ["append", "l", 1], ["log_event", "tool_call", {}])


def test_reading_needs_the_scope(db):
    assert Api(None).get("sessions").status == 401
    assert Api(create_token("i", ["ingest"])[1]).get("sessions").status == 403


def test_the_openapi_document_is_for_staff_only(client, admin_client, django_user_model):
    for path in ("/api/v1/openapi.json", "/api/v1/docs"):
        assert client.get(path).status_code == 302
        user = django_user_model.objects.create_user(f"u{path[-4:]}", password="x")
        client.force_login(user)
        assert client.get(path).status_code == 302
        client.logout()
        assert admin_client.get(path).status_code == 200


def test_the_openapi_document_describes_every_route_with_examples(admin_client):
    document = admin_client.get("/api/v1/openapi.json").json()
    operations = [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    assert len(operations) >= 12
    for path, method, operation in operations:
        assert operation["summary"], path
        assert operation["description"], path
        assert "401" in operation["responses"], path
        if method in ("post", "patch"):
            content = operation["requestBody"]["content"]["application/json"]
            assert content["schema"], path
    updates = document["paths"]["/api/v1/sessions/{key}/updates"]["post"]
    assert updates["requestBody"]["content"]["application/json"]["example"]["operations"]


def test_the_openapi_document_states_every_limit(admin_client, settings):
    text = admin_client.get("/api/v1/openapi.json").json()["info"]["description"]
    for limit in settings.LIMITS.values():
        assert f"{limit:,}" in text


def test_the_readme_states_every_setting_and_every_limit(settings):
    import re

    readme = (settings.BASE_DIR / "README.md").read_text(encoding="utf-8")
    source = (settings.BASE_DIR / "nousweb" / "settings.py").read_text(encoding="utf-8")
    for name in set(re.findall(r'"(NOUSWEB_[A-Z_]+|DATABASE_URL)"', source)):
        assert f"`{name}`" in readme, name
    for name in ("batch_items", "operations", "key_characters", "name_characters", "page_items"):
        assert f"{settings.LIMITS[name]:,}" in readme, name
