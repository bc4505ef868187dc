"""Loads the example sessions, each completely and once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from .bridge import Bridge
from .client import Api
from .incident import Incident
from .others import DocsAnswer, NightlyReport, ReleaseNotes
from .runner import Clock, Observer

MAIN_KEY = "example-incident-4127"
_MARK = ("example", "loaded")
"""The label that a session gets with the last request: then nothing is left to do."""


class _Told(Protocol):
    def tell(self) -> None: ...


class Story(Protocol):
    """A session that can be told to an observer."""

    agent: str
    labels: dict[str, str]
    ended: bool

    def __call__(self, clock: Clock, observer: Observer) -> _Told: ...


_SMALL: tuple[tuple[str, Story, int], ...] = (
    ("example-nightly-report", NightlyReport, 420),
    ("example-release-notes", ReleaseNotes, 190),
    ("example-docs-answer", DocsAnswer, 75),
)
"""Key, story, and how many minutes ago it began."""


def load_examples(api: Api, key: str = MAIN_KEY, say: Callable[[str], object] = print) -> str:
    """Load the small examples and then, as `key`, the main one; returns its page's path.

    May be run again at any time, after any interruption too: what is there stays as it is, what
    is missing is added. `say` is told a line for each session. Raises ApiError, OSError.
    """
    now = datetime.now(UTC)
    for name, story, minutes in _SMALL:
        load_session(api, name, story, now - timedelta(minutes=minutes), say)
    session = load_session(api, key, Incident, now - timedelta(hours=1), say)
    return str(session["url"])


def load_session(
    api: Api, key: str, story: Story, start: datetime, say: Callable[[str], object] = print
) -> dict[str, Any]:
    """Tell a story into the session `key`, unless it is there. Returns the session."""
    session: dict[str, Any] | None = api.get(f"sessions/{key}")
    if session is not None and _MARK in session["labels"].items():
        say(f"{key}: is there")
        return session
    bridge = Bridge(api, key, refusals=session["refusals"] if session else 0)
    # to the millisecond, like the times in the log: a second try must tell the same ones
    start = start.replace(microsecond=start.microsecond // 1000 * 1000)
    told = story(Clock(_first_time(api, key) or start), bridge)
    bridge.describe(agent_name=story.agent, labels=story.labels)
    told.tell()
    last: dict[str, Any] = {"labels": {**story.labels, _MARK[0]: _MARK[1]}}
    if story.ended:
        last["status"] = "ended"
    session = bridge.describe(**last)
    say(f"{key}: loaded")
    return session


def _first_time(api: Api, key: str) -> datetime | None:
    """When the session's first event was; None when there is none."""
    page = api.get(f"sessions/{key}/events?limit=1")
    if not page or not page["events"]:
        return None
    return datetime.fromisoformat(page["events"][0]["time"])
