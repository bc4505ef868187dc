"""The databases: how we connect, and the check for a library that can lose commits."""

import sqlite3

import pytest
from django.db import connection

from nousweb.sqlite_driver import has_wal_reset_fault
from sessions import checks


@pytest.mark.parametrize(
    ("version", "faulty"),
    [
        ((3, 6, 23), False), ((3, 7, 0), True), ((3, 40, 1), True), ((3, 44, 5), True),
        ((3, 44, 6), False), ((3, 45, 0), True), ((3, 50, 6), True), ((3, 50, 7), False),
        ((3, 51, 0), True), ((3, 51, 2), True), ((3, 51, 3), False), ((3, 53, 4), False),
    ],
)  # fmt: skip
def test_which_versions_have_the_wal_reset_fault(version, faulty):
    assert has_wal_reset_fault(version) is faulty


@pytest.mark.parametrize(("version", "warned"), [((3, 40, 1), True), ((3, 51, 3), False)])
def test_the_check_warns_of_a_faulty_library(monkeypatch, settings, version, warned):
    engine = {"default": {"ENGINE": "django.db.backends.sqlite3"}}
    monkeypatch.setattr(checks.settings, "DATABASES", engine)
    monkeypatch.setattr(sqlite3, "sqlite_version_info", version)
    found = checks.sqlite_is_sound()
    assert [message.id for message in found] == (["agent_sessions.W001"] if warned else [])
    assert all(message.hint for message in found)


@pytest.mark.django_db
def test_connections_are_durable_and_never_wait_without_an_end():
    if connection.vendor == "postgresql":
        wanted = {"lock_timeout": "5s", "synchronous_commit": "off"}  # off: this test server
        statement = "SHOW {}"
        assert connection.pool is not None
    else:
        wanted = {"journal_mode": "wal", "synchronous": 2, "busy_timeout": 5000, "foreign_keys": 1}
        statement = "PRAGMA {}"
        assert connection.transaction_mode == "IMMEDIATE"
    with connection.cursor() as cursor:
        found = {}
        for name in wanted:
            cursor.execute(statement.format(name))
            found[name] = cursor.fetchone()[0]
    assert found == wanted
