"""Fixtures for every test. The settings (`tests/settings.py`) choose the database: `pytest`
runs on SQLite, `NOUSWEB_TEST_DATABASE=postgresql pytest` on PostgreSQL, `python -m tests` on both.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings

from tests.browser import launched
from tests.served import Served, served


def pytest_report_header(config: pytest.Config) -> str:
    return f"database: {settings.TEST_DATABASE}"


@pytest.fixture(autouse=True)
def _clean_caches() -> Iterator[None]:
    """What a process remembers of its rows must not outlive a test's rows."""
    from sessions import workspaces
    from sessions.deps import heads
    from sessions.ingest.places import forget_kept_rows

    heads.drop()
    forget_kept_rows()
    workspaces.forget()
    return


@pytest.fixture(scope="session", autouse=True)
def _flush_may_erase() -> Iterator[None]:
    """A test with real transactions is cleaned up by deleting its rows, which our triggers
    refuse to anyone who does not say that it is erasing."""
    from django.db import transaction
    from django.test import TransactionTestCase

    from sessions.database import erasing

    original = TransactionTestCase._fixture_teardown

    def teardown(self: TransactionTestCase) -> None:
        with transaction.atomic(), erasing():
            original(self)

    TransactionTestCase._fixture_teardown = teardown  # type: ignore[method-assign]
    yield
    TransactionTestCase._fixture_teardown = original  # type: ignore[method-assign]


def _database_server() -> str | None:
    return os.environ["DATABASE_URL"] if settings.TEST_DATABASE == "postgresql" else None


@pytest.fixture(scope="session")
def server() -> Iterator[Served]:
    """A real server process that the tests share. Nothing in it belongs to one test."""
    with served(_database_server()) as process:
        yield process.start()


@pytest.fixture
def own_server() -> Iterator[Served]:
    """A real server process of this test's own, not started yet."""
    with served(_database_server()) as process:
        yield process


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A real browser."""
    with launched() as found:
        yield found
