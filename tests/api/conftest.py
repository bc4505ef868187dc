"""A small client of the API, in the test's words."""

from __future__ import annotations

import json
import secrets
from typing import Any

import pytest
from django.test import Client

from sessions.tokens import create_token


class Api:
    """Posts and reads with a bearer token; paths are relative to /api/v1/."""

    def __init__(self, secret: str | None) -> None:
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        self.client = Client(SERVER_NAME="localhost", headers=headers)

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """`body` is sent as it is when it is text or bytes, else as JSON. Header names are
        given with underscores."""
        kind = headers.pop("content_type", "application/json")
        data = body if isinstance(body, str | bytes) else json.dumps(body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        response = self.client.generic(
            method, f"/api/v1/{path}", data, content_type=kind, headers=named
        )
        return Answer(response)

    def post(self, path: str, body: Any, **headers: str) -> Any:
        return self.send("POST", path, body, **headers)

    def patch(self, path: str, body: Any, **headers: str) -> Any:
        return self.send("PATCH", path, body, **headers)

    def get(self, path: str) -> Any:
        return Answer(self.client.get(f"/api/v1/{path}"))

    # -- the words of the domain -----------------------------------------------------------

    def update(self, key: str, *operations: Any, **fields: Any) -> Any:
        return self.post(f"sessions/{key}/updates", {"operations": list(operations), **fields})

    def event(self, key: str, event_type: str, data: Any = None, **fields: Any) -> Any:
        body = {"type": event_type, "data": {} if data is None else data, **fields}
        return self.post(f"sessions/{key}/events", body)

    def events(self, key: str, *events: tuple[str, Any]) -> Any:
        rows = [{"type": event_type, "data": data} for event_type, data in events]
        return self.post(f"sessions/{key}/events", rows)

    def rewind(self, key: str, to_seq: Any, **fields: Any) -> Any:
        return self.post(f"sessions/{key}/rewind", {"to_seq": to_seq, **fields})

    def session(self, key: str) -> dict[str, Any]:
        return self.get(f"sessions/{key}").json

    def deps(self, key: str, version: int | None = None) -> Any:
        query = "" if version is None else f"?version={version}"
        return self.get(f"sessions/{key}/deps{query}").json["deps"]

    def timeline(self, key: str) -> list[dict[str, Any]]:
        """Every event, in ordinal order."""
        return self.get(f"sessions/{key}/events?limit=1000").json["events"]


class Answer:
    """A response: `status`, `json`, `text`, `headers`."""

    def __init__(self, response: Any) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self.text = response.content.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def problem(self) -> dict[str, Any]:
        assert self.headers["Content-Type"] == "application/problem+json", self.text
        document = self.json
        assert document["status"] == self.status
        assert document["type"].endswith(document["rule"])
        assert document["title"]
        assert document["detail"]
        return document

    def __repr__(self) -> str:
        return f"<{self.status} {self.text[:500]}>"


@pytest.fixture
def api(db) -> Api:
    """A client whose token may post and read."""
    return Api(create_token("tests", ["ingest", "read"])[1])


@pytest.fixture
def token_secret(db) -> str:
    return create_token("tests", ["ingest", "read"], secrets.token_urlsafe(32))[1]
