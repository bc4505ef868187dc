"""The example sessions: they show everything, load once, and survive being killed half-way."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from sessions.core.reducer import same_json
from sessions.example import load_examples
from sessions.example.client import Api, ApiError, Response, http_transport
from sessions.example.incident import Incident
from sessions.example.load import MAIN_KEY, load_session
from sessions.models import Epoch, Event, Refusal, Session, Update
from sessions.tokens import create_token

START = datetime(2026, 3, 1, 9, 0, 0, 123_987, tzinfo=UTC)
REQUESTS = 62
"""How many requests the main example takes."""
SMALL_KEYS = ["example-docs-answer", "example-nightly-report", "example-release-notes"]


class Killed(BaseException):
    """The process that loads is gone."""


class Wire:
    """A transport to the application itself. It breaks down at request number `dies_at`:
    before the request arrives, or, with `answered`, when the answer is on its way."""

    def __init__(self, dies_at: int | None = None, *, answered: bool = False) -> None:
        self.client = Client(SERVER_NAME="localhost")
        self.sent: list[tuple[str, str, int]] = []
        self.dies_at, self.answered = dies_at, answered

    def __call__(self, method, path, headers, body) -> Response:
        dies = self.dies_at is not None and len(self.sent) + 1 == self.dies_at
        if dies and not self.answered:
            raise Killed
        response = self.client.generic(
            method, path, body or b"", content_type="application/json", headers=headers
        )
        self.sent.append((method, path, response.status_code))
        if dies:
            raise Killed
        return Response(response.status_code, response.content)

    @property
    def writes(self) -> list[tuple[str, str, int]]:
        return [entry for entry in self.sent if entry[0] != "GET"]


@pytest.fixture
def secret(db) -> str:
    return create_token("example", ["ingest", "read"])[1]


@pytest.fixture
def load(secret):
    """Loads the main session over a wire, and returns it."""

    def run(wire: Wire | None = None, key: str = MAIN_KEY) -> Session:
        load_session(Api(wire or Wire(), secret), key, Incident, START, say=lambda line: None)
        return Session.objects.get(key=key)

    return run


def rows(session: Session) -> list[str]:
    """Everything stored of a session but our own clock, in one comparable list."""
    stored = [
        Update.objects.filter(session=session).order_by("ordinal").values(
            "ordinal", "version", "epoch", "turn_number", "step_number", "path", "operations",
            "keys", "differs", "log_events", "occurred_at", "client_id",
        ),
        Event.objects.filter(session=session).order_by("ordinal").values(
            "ordinal", "seq", "epoch", "turn_number", "step_number", "type", "data", "time",
            "disposition", "reason", "update__version",
        ),
        Epoch.objects.filter(session=session).values("number", "to_seq", "cut", "reason"),
        Refusal.objects.filter(session_key=session.key).values("body"),
        Session.objects.filter(pk=session.pk).values(
            "version", "next_seq", "next_ordinal", "epoch", "status", "agent_name", "labels",
            "usage", "steps", "turns", "events", "logged", "dropped", "refused", "invalid",
            "tool_calls", "errors", "abandoned", "refusals",
        ),
    ]  # fmt: skip
    return [json.dumps(row, default=str) for part in stored for row in part]


@pytest.fixture
def whole(load) -> list[str]:
    """The rows of an example that nothing disturbed. Made once: they hold no ids."""
    if not _WHOLE:
        _WHOLE.extend(rows(load(key="example-whole")))
    return _WHOLE


_WHOLE: list[str] = []


def events(session: Session, **wanted) -> list[Event]:
    return list(Event.objects.filter(session=session, **wanted).order_by("ordinal"))


def data_of(session: Session, event_type: str, **wanted) -> list[dict[str, Any]]:
    found = events(session, type=event_type, disposition="logged", **wanted)
    return [json.loads(event.data) for event in found]


# -- it shows everything -------------------------------------------------------------------


def test_it_has_several_turns_of_many_steps(load):
    session = load()
    assert (session.turns, session.status) == (4, "running")
    assert 8 <= session.steps <= 20
    assert 60 <= session.events <= 120


def test_one_step_calls_two_tools_at_once(load):
    assert any(
        len(data["tool_calls"]) == 2 for data in data_of(load(), "assistant_message", epoch=0)
    )


def test_context_is_injected_before_a_step(load):
    sources = [data.get("source") for data in data_of(load(), "system_message")]
    assert sources.count("memory") == 2
    assert "knowledge_base" in sources


def test_updates_take_every_path_with_every_operation(load):
    updates = list(Update.objects.filter(session=load()))
    assert {update.path for update in updates} == {"context", "run_context", "runner"}
    names = {operation[0] for update in updates for operation in json.loads(update.operations)}
    assert names == {"set", "merge", "append", "delete", "log_event"}


@pytest.mark.parametrize(
    ("tool", "keys"),
    [
        ("query_metrics", ["metrics"]),  # a merge that replaced the map
        ("get_rollback", ["timeline"]),  # an append that replaced the list
        ("close_questions", ["open_questions"]),  # a delete that did nothing
    ],
)
def test_the_runner_path_differs_from_context(load, tool, keys):
    found = Update.objects.filter(session=load(), tool_name=tool).exclude(differs="[]")
    assert json.loads(found[0].differs) == keys


@pytest.mark.parametrize("call", ["call_005", "call_014"])
def test_code_mode_logs_its_dispatches_once_though_they_come_twice(load, call):
    session = load()
    found = [data for data in data_of(session, "tool_call") if data["id"].startswith(f"{call}:")]
    assert [data["id"] for data in found] == [f"{call}:code:{n}" for n in range(3)]
    assert [data["mode"] for data in found] == ["parallel", "parallel", "exclusive"]
    assert {data["source"] for data in found} == {"code_mode"}


def test_an_update_may_come_after_the_broadcast_of_its_events(load):
    session = load()
    late = Update.objects.get(session=session, tool_name="watch")
    answers = json.loads(late.log_events)
    assert all(answer["duplicate"] for answer in answers)
    early = Update.objects.get(session=session, tool_name="run_code")
    assert not any("duplicate" in answer for answer in json.loads(early.log_events))


def test_events_on_the_run_context_path_are_dropped(load):
    lost = events(load(), disposition="dropped")
    assert [event.type for event in lost] == [
        "user_message", "tool_call", "tool_call", "data_access",
    ]  # fmt: skip
    assert {(event.turn_number, event.step_number, event.reason) for event in lost} == {
        (2, 2, "no_log")
    }


def test_a_surface_event_is_refused_and_two_others_are_invalid(load):
    lost = events(load(), turn_number=2, step_number=3, seq=None)
    assert [(event.type, event.reason) for event in lost] == [
        ("user_message", "surface_type"),
        ("approval", "unknown_event_type"),
        ("tool_call", "surface_op_on_non_surface_event"),
    ]


def test_the_reducer_refuses_an_update_and_the_model_reads_why(load):
    session = load()
    assert session.refusals == 1
    problem = json.loads(Refusal.objects.get(session_key=session.key).problem)
    assert problem["status"] == 422
    result = data_of(session, "tool_result", turn_number=2, step_number=4)[0]
    assert result["metadata"] == {"error": True}
    assert "append" in result["content"]


def test_a_step_fails_and_the_run_is_rewound(load):
    session = load()
    epoch = Epoch.objects.get(session=session)
    assert "529" in epoch.reason
    assert session.abandoned == 10
    failed = data_of(session, "step_end", epoch=0)[-1]
    assert failed == {"turn": 3, "step": 2, "outcome": "error"}
    prompts = [
        json.loads(event.data)["content"]
        for event in events(session, seq=epoch.to_seq, type="user_message")
    ]
    assert len(set(prompts)) == 2


def test_the_context_is_compacted(load):
    session = load()
    (summary,) = [data for data in data_of(session, "system_message") if "surface_op" in data]
    assert summary["surface_op"][0] == "replace"
    hidden = range(summary["surface_op"][1], summary["surface_op"][2] + 1)
    called = {
        call["id"]
        for event in events(session, type="assistant_message", epoch=0)
        for call in json.loads(event.data)["tool_calls"]
        if event.seq in hidden
    }
    answered = {
        json.loads(event.data)["tool_call_id"]
        for event in events(session, type="tool_result", epoch=0)
        if event.seq in hidden
    }
    assert called == answered


def test_messages_have_reasoning_and_parts(load):
    session = load()
    assert any(data["reasoning_content"] for data in data_of(session, "assistant_message"))
    parts = [
        data["content"]
        for data in data_of(session, "user_message")
        if isinstance(data["content"], list)
    ]
    assert [part["type"] for part in parts[0]] == ["text", "image_url"]


def test_a_type_of_a_newer_runner_is_kept_at_its_seq(load):
    (event,) = events(load(), type="checkpoint_saved")
    assert event.seq is not None


def test_the_session_has_a_name_labels_and_usage(load):
    session = load()
    assert session.agent_name == "incident-triage"
    assert json.loads(session.labels)["team"] == "payments"
    usage = json.loads(session.usage)
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert session.total_tokens == usage["total_tokens"]


def test_the_last_turn_is_interrupted_with_one_call_that_was_started(load):
    session = load()
    assert session.open_turn.number == 4
    asked = data_of(session, "assistant_message")[-1]["tool_calls"]
    assert [call["name"] for call in asked] == ["post_status", "page_owner"]
    assert data_of(session, "tool_call")[-1]["id"] == asked[0]["id"]
    assert data_of(session, "tool_result")[-1]["tool_call_id"] not in [call["id"] for call in asked]


def test_the_deps_are_those_that_the_runner_had(secret):
    runners = []

    def story(clock, observer):
        runners.append(Incident(clock, observer))
        return runners[0]

    story.agent, story.labels, story.ended = Incident.agent, Incident.labels, False
    api = Api(Wire(), secret)
    load_session(api, MAIN_KEY, story, START, say=lambda line: None)
    stored = api.get(f"sessions/{MAIN_KEY}/deps")["deps"]
    assert same_json(stored, runners[0].runner.working.deps)


def test_the_log_is_the_one_that_the_runner_had(secret):
    runners = []

    def story(clock, observer):
        runners.append(Incident(clock, observer))
        return runners[0]

    story.agent, story.labels, story.ended = Incident.agent, Incident.labels, False
    api = Api(Wire(), secret)
    load_session(api, MAIN_KEY, story, START, say=lambda line: None)
    first, *rest = runners[0].runner.working.log
    stored = api.get(f"sessions/{MAIN_KEY}/events?after_seq={first.seq}&limit=1000")["events"]
    assert [(event["seq"], event["type"], event["time"], event["data"]) for event in stored] == [
        (event.seq, event.type, event.time, event.data) for event in rest
    ]


# -- it loads once -------------------------------------------------------------------------


def test_all_examples_load_and_the_main_one_is_the_newest(secret):
    path = load_examples(Api(Wire(), secret), say=lambda line: None)
    assert path == f"/sessions/{MAIN_KEY}/"
    keys = [session.key for session in Session.objects.by_activity()]
    assert keys[0] == MAIN_KEY
    assert sorted(keys[1:]) == SMALL_KEYS
    assert {session.key: session.status for session in Session.objects.all()} == {
        MAIN_KEY: "running",
        "example-docs-answer": "idle",
        "example-nightly-report": "running",
        "example-release-notes": "ended",
    }


def test_a_second_time_adds_nothing(secret):
    load_examples(Api(Wire(), secret), say=lambda line: None)
    before = [rows(session) for session in Session.objects.order_by("pk")]
    wire = Wire()
    load_examples(Api(wire, secret), say=lambda line: None)
    assert wire.writes == []
    assert [rows(session) for session in Session.objects.order_by("pk")] == before


@pytest.mark.parametrize(
    ("dies_at", "answered"),
    [
        (3, False),
        (3, True),
        (4, True),
        (18, False),
        (34, True),
        (45, False),
        (52, True),
        (-1, True),
    ],
)
def test_a_second_try_completes_what_a_killed_one_began(load, whole, dies_at, answered):
    with pytest.raises(Killed):
        load(Wire(dies_at % (REQUESTS + 1), answered=answered))
    assert rows(load()) == whole


def test_killed_over_and_over_it_still_gets_there(load, whole):
    for dies_at in range(4, REQUESTS + 1, 7):
        with pytest.raises(Killed):
            load(Wire(dies_at, answered=True))
    assert rows(load()) == whole


def test_replaying_all_posts_changes_nothing(load):
    session = load()
    before = rows(session)
    Session.objects.filter(pk=session.pk).update(labels="{}")
    wire = Wire()
    load(wire)
    assert len(wire.sent) == REQUESTS - 1  # without the update that the reducer refuses
    assert {status for method, _, status in wire.sent if method == "POST"} == {200}
    assert rows(session) == before


# -- the client and the command ------------------------------------------------------------


def test_the_client_tries_again_when_no_answer_comes_or_the_server_is_busy(monkeypatch):
    answers = [OSError("reset"), Response(503, b"{}", retry_after=2.0), Response(201, b'{"a":1}')]
    waits: list[float] = []
    monkeypatch.setattr("sessions.example.client.time.sleep", waits.append)

    def transport(method, path, headers, body):
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    assert Api(transport, "t").post("sessions/x/events", [], "key") == {"a": 1}
    assert waits[:2] == [0.1, 2.0]


def test_the_client_gives_up_in_the_end(monkeypatch):
    monkeypatch.setattr("sessions.example.client.time.sleep", lambda seconds: None)

    def transport(method, path, headers, body):
        raise ConnectionRefusedError("nobody there")

    with pytest.raises(ConnectionRefusedError):
        Api(transport, "t").get("sessions/x")


def test_a_problem_is_raised_with_its_detail(secret):
    with pytest.raises(ApiError, match="422: operations"):
        Api(Wire(), secret).post("sessions/x/updates", {}, "key")


def test_only_http_addresses_are_taken():
    with pytest.raises(ValueError, match="is no address"):
        http_transport("file:///etc/passwd")


@pytest.mark.django_db(transaction=True)
def test_the_command_loads_through_a_live_server_and_prints_the_address(live_server, capsys):
    secret = create_token("example", ["ingest", "read"])[1]
    call_command("load_example", url=live_server.url, token=secret, key="example-mine")
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"{live_server.url}/sessions/example-mine/"
    assert Session.objects.get(key="example-mine").turns == 4


@pytest.mark.django_db(transaction=True)
def test_the_command_says_when_the_token_is_wrong(live_server):
    with pytest.raises(CommandError, match="401"):
        call_command("load_example", url=live_server.url, token="wrong")


def test_the_command_needs_a_token(monkeypatch):
    monkeypatch.delenv("NOUSWEB_TOKEN", raising=False)
    with pytest.raises(CommandError, match="NOUSWEB_TOKEN"):
        call_command("load_example")
