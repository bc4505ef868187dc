"""The admin shows everything, changes nothing, and never counts a table to its end."""

from __future__ import annotations

import pytest
from django.apps import apps
from django.urls import reverse

from sessions import admin as admin_module
from sessions.models import Event
from sessions.tokens import create_token
from tests.api.conftest import Api

MODELS = list(apps.get_app_config("agent_sessions").get_models())
IDS = [model._meta.model_name for model in MODELS]


@pytest.fixture
def api(db) -> Api:
    return Api(create_token("tests", ["ingest", "read"])[1])


@pytest.fixture
def filled(api) -> Api:
    """Rows of every kind."""
    api.events("s", ("turn_start", {}), ("step_start", {}), ("tool_call", {"x": "\x00\x1b"}))
    api.update("s", ["set", "a", 1], ["log_event", "tool_call", {}], path="run_context")
    api.update("s", ["log_event", "user_message", {}], ["log_event", "nope", {}])
    api.post("sessions/s/updates", {"operations": []}, Idempotency_Key="k")
    api.update("s", ["append", "a", 1])
    api.rewind("s", 1)
    return api


def address(model, page: str, *arguments) -> str:
    return reverse(f"admin:agent_sessions_{model._meta.model_name}_{page}", args=arguments)


@pytest.mark.parametrize("model", MODELS, ids=IDS)
def test_every_model_can_be_read_by_staff(filled, admin_client, model):
    assert model.objects.exists()
    listed = admin_client.get(address(model, "changelist"))
    assert listed.status_code == 200
    shown = admin_client.get(address(model, "change", model.objects.first().pk))
    assert shown.status_code == 200
    assert b'name="_save"' not in shown.content
    assert b"\x1b" not in shown.content


@pytest.mark.parametrize("model", MODELS, ids=IDS)
def test_no_one_can_add_change_or_delete_a_row(filled, admin_client, model):
    pk = model.objects.first().pk
    assert admin_client.get(address(model, "add")).status_code == 403
    assert admin_client.post(address(model, "change", pk), {}).status_code == 403
    assert admin_client.post(address(model, "delete", pk), {"post": "yes"}).status_code == 403
    assert model.objects.filter(pk=pk).exists()


@pytest.mark.parametrize("model", MODELS, ids=IDS)
def test_a_list_costs_a_few_queries_and_counts_no_table(
    filled, admin_client, model, django_assert_max_num_queries
):
    with django_assert_max_num_queries(6) as queries:
        admin_client.get(address(model, "changelist"))
    for query in queries.captured_queries:
        if "COUNT(" in query["sql"]:
            assert f"LIMIT {admin_module.MOST_COUNTED}" in query["sql"]


def test_events_are_filtered_by_disposition(filled, admin_client):
    for value, count in (("dropped", 1), ("refused", 1), ("invalid", 1), ("lost", 3)):
        found = admin_client.get(address(Event, "changelist"), {"disposition": value})
        assert found.context["cl"].result_count == count, value
    logged = Event.objects.filter(disposition="logged").count()
    found = admin_client.get(address(Event, "changelist"), {"disposition": "logged"})
    assert found.context["cl"].result_count == logged


def test_a_list_goes_on_page_by_page(api, admin_client, monkeypatch):
    monkeypatch.setattr(admin_module.EventAdmin, "list_per_page", 10)
    api.post("ingest", [{"session": "s", "type": "tool_call", "data": {}} for _ in range(25)])
    found = []
    for page in (1, 2, 3):
        changes = admin_client.get(address(Event, "changelist"), {"p": page}).context["cl"]
        found += [event.ordinal for event in changes.result_list]
    assert found == list(range(25, 0, -1))


def test_admin_and_pages_lead_to_each_other(filled, admin_client):
    assert (
        b'href="/sessions/s/"'
        in admin_client.get(reverse("admin:agent_sessions_session_changelist")).content
    )
    assert b"/sessions/s/entries/" in admin_client.get(address(Event, "changelist")).content
    assert b'href="/admin/"' in admin_client.get("/sessions/s/").content


def test_people_who_are_no_staff_are_kept_out(filled, client, django_user_model):
    client.force_login(django_user_model.objects.create_user("alice", password="x"))
    assert client.get(address(Event, "changelist")).status_code == 302
