"""Fixtures for every test. The settings (`tests/settings.py`) choose the database: `pytest`
runs on SQLite, `NOUSWEB_TEST_DATABASE=postgresql pytest` on PostgreSQL, `python -m tests` on both.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.conf import settings


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
