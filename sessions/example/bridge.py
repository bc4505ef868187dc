"""The bridge: it hears what a runner commits, and posts it.

Every post has an Idempotency-Key that follows from its place, and a runner with the same start
does the same again: so a bridge that was killed can be started anew, and what had arrived
already is answered as it was, and stored once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .client import Api
from .runner import LogEvent, Update

_FLUSH_AFTER = ("turn_start", "step_end", "turn_end")


class Bridge:
    """Posts one session: events in small arrays, updates one at a time, in their order.

    `refusals` is how many refused updates the session has already: a refused post claims no
    Idempotency-Key, so it must not be sent again.
    """

    def __init__(self, api: Api, key: str, *, refusals: int = 0) -> None:
        self._api, self._path = api, f"sessions/{key}"
        self._waiting: list[dict[str, Any]] = []
        self._posts = self._refused = 0
        self._refused_before = refusals

    def event(self, event: LogEvent) -> None:
        """Post the event, at the latest when its step ends."""
        self._waiting.append(
            {"seq": event.seq, "type": event.type, "time": event.time, "data": event.data}
        )
        if event.type in _FLUSH_AFTER:
            self.flush()

    def update(self, update: Update) -> None:
        """Post the update, after the events that came before it."""
        self.flush()
        body: dict[str, Any] = {
            "id": update.call_id,
            "path": update.path.value,
            "operations": update.operations,
            "tool_call": {"id": update.call_id, "name": update.tool},
            "occurred_at": update.time,
        }
        if update.first_seq is not None:
            body["first_seq"] = update.first_seq
        if not update.refused:
            self._post("updates", body)
            return
        self._refused += 1
        self._post("updates", body, expect=(422,), send=self._refused > self._refused_before)

    def went_back(self, to_seq: int, reason: str) -> None:
        """Post a rewind."""
        self.flush()
        self._post("rewind", {"to_seq": to_seq, "reason": reason})

    def usage(self, usage: Mapping[str, int]) -> None:
        """Say how many tokens were used so far."""
        self.describe(usage=dict(usage))

    def describe(self, **fields: Any) -> dict[str, Any]:
        """Change fields of the session (agent_name, labels, usage, status); returns it."""
        self.flush()
        session: dict[str, Any] = self._api.patch(self._path, fields)
        return session

    def flush(self) -> None:
        """Post the events that wait."""
        if self._waiting:
            events, self._waiting = self._waiting, []
            self._post("events", events)

    def _post(
        self, what: str, body: Any, expect: tuple[int, ...] = (200, 201), *, send: bool = True
    ) -> None:
        self._posts += 1  # also when nothing is sent: the keys of later posts count on it
        if send:
            self._api.post(f"{self._path}/{what}", body, f"example-{self._posts:04d}", expect)
