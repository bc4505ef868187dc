"""Many writers at once: nothing is lost, ordinals are dense, and a busy database is a 503."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.conf import settings
from django.db import OperationalError, connection, connections, transaction

from sessions import database
from sessions.models import Event, Session, Update
from sessions.tokens import create_token

from .conftest import Api

pytestmark = pytest.mark.django_db(transaction=True)


def race(count: int, function):
    """Call the function in `count` threads at once, with its number; the results in order."""
    barrier = threading.Barrier(count)

    def run(number: int):
        try:
            barrier.wait()
            return function(number)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


@pytest.fixture
def secret() -> str:
    return create_token("race", ["ingest", "read"])[1]


def test_sixteen_writers_into_one_session_lose_nothing(secret):
    def write(number: int):
        api = Api(secret)
        return [
            api.update("s", ["append", "l", number * 100 + n], ["log_event", "tool_call", {"n": n}])
            for n in range(10)
        ]

    answers = [answer for some in race(16, write) for answer in some]
    assert {answer.status for answer in answers} == {201}
    assert sorted(answer.json["version"] for answer in answers) == list(range(1, 161))
    ordinals = [
        *Update.objects.values_list("ordinal", flat=True),
        *Event.objects.values_list("ordinal", flat=True),
    ]
    assert sorted(ordinals) == list(range(1, 321))
    assert sorted(Event.objects.values_list("seq", flat=True)) == list(range(160))
    session = Session.objects.get()
    assert (session.version, session.events, session.next_ordinal) == (160, 160, 321)
    kept = Api(secret).deps("s")["l"]
    assert sorted(kept) == sorted(number * 100 + n for number in range(16) for n in range(10))


def test_fifty_racers_with_one_id_store_one_row_and_get_one_answer(secret):
    body = {"id": "one", "operations": [["append", "l", 1]]}
    answers = race(50, lambda _: Api(secret).post("sessions/s/updates", body))
    assert {answer.text for answer in answers} == {answers[0].text}
    assert sorted({answer.status for answer in answers}) == [200, 201]
    assert Update.objects.count() == 1


def test_racers_with_one_idempotency_key_store_one_row(secret):
    body = {"operations": [["append", "l", 1]]}
    answers = race(16, lambda _: Api(secret).post("sessions/s/updates", body, Idempotency_Key="k"))
    assert {answer.text for answer in answers} == {answers[0].text}
    assert Update.objects.count() == 1


def test_an_update_and_its_broadcast_that_race_store_one_event(secret):
    def post(number: int):
        api = Api(secret)
        if number % 2:
            return api.event("s", "tool_call", {"id": "x"}, seq=0)
        return api.update("s", ["log_event", "tool_call", {"id": "x"}], first_seq=0)

    answers = race(8, post)
    assert all(answer.status in (200, 201) for answer in answers), answers
    assert Event.objects.count() == 1


def test_many_first_posts_make_one_session(secret):
    race(16, lambda n: Api(secret).update("new", ["set", f"k{n}", n]))
    assert Session.objects.count() == 1
    assert len(Api(secret).deps("new")) == 16


def test_a_database_that_stays_locked_is_503_with_retry_after(secret, monkeypatch):
    Api(secret).update("s", ["set", "a", 1])
    monkeypatch.setattr(database, "LOCK_WAIT_SECONDS", 0.2)
    if connection.vendor == "sqlite":
        monkeypatch.setitem(settings.DATABASES["default"]["OPTIONS"], "timeout", 0.2)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            session = Session.objects.select_for_update().get(key="s")
            session.save()
            held.set()
            done.wait(20)
        connections.close_all()

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert held.wait(5)
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = '200ms'")
        else:
            with connection.cursor() as cursor:
                cursor.execute("PRAGMA busy_timeout = 200")
        answer = Api(secret).update("s", ["set", "a", 2])
    finally:
        done.set()
        holder.join()
    assert answer.status == 503
    assert answer.problem["rule"] == "database_busy"
    assert answer.headers["Retry-After"] == "1"
    assert Api(secret).update("s", ["set", "a", 2]).json["version"] == 2


def test_the_process_own_lock_gives_up_with_503(secret, monkeypatch):
    monkeypatch.setattr(database, "LOCK_WAIT_SECONDS", 0.05)
    locks = [database._SQLITE_LOCK, *database._STRIPES]
    for lock in locks:
        lock.acquire()
    try:
        answer = Api(secret).update("s", ["set", "a", 1])
    finally:
        for lock in locks:
            lock.release()
    assert answer.status == 503


def test_a_failed_transaction_leaves_the_head_as_it_was(secret, monkeypatch):
    api = Api(secret)
    api.update("s", ["set", "l", [1]])

    def fail(*_):
        raise OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr("sessions.ingest.writer.update_row", fail)
        assert api.update("s", ["append", "l", 2]).status == 503
    assert api.update("s", ["append", "l", 3]).json["version"] == 2
    assert api.deps("s") == {"l": [1, 3]}
