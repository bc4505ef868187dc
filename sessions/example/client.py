"""A client of the API, with nothing but the standard library: retries, and problem documents."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

ATTEMPTS = 7
_RETRIED = (429, 500, 502, 503, 504)
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Response:
    """An answer of the server. `retry_after`: how many seconds it asks to wait."""

    status: int
    body: bytes
    retry_after: float | None = None


Transport = Callable[[str, str, dict[str, str], bytes | None], Response]
"""Sends method, path, headers and body. Raises OSError when there is no answer."""


class ApiError(Exception):
    """An answer that the caller did not expect; the text is the problem's detail."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"{status}: {detail}")
        self.status = status


def http_transport(url: str, timeout: float = 30.0) -> Transport:
    """A transport to the server at `url`. Raises ValueError for an address that is no http."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is no address such as http://127.0.0.1:8000")
    # a proxy in the environment is no way to this very machine
    handlers = [urllib.request.ProxyHandler({})] if parts.hostname in _LOOPBACK else []
    opener = urllib.request.build_opener(*handlers)

    def send(method: str, path: str, headers: dict[str, str], body: bytes | None) -> Response:
        request = urllib.request.Request(  # noqa: S310  # the scheme was checked above
            url.rstrip("/") + path, data=body, headers=headers, method=method
        )
        try:
            with opener.open(request, timeout=timeout) as answer:
                return Response(answer.status, answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return Response(error.code, error.read(), _seconds(error.headers["Retry-After"]))

    return send


class Api:
    """The API as a bridge needs it. Every request is one that may be sent again, so every
    request is, when no answer came or the server was busy. Raises ApiError, OSError."""

    def __init__(self, transport: Transport, token: str, *, pause: float = 0.0) -> None:
        self._transport, self._token, self._pause = transport, token, pause

    def get(self, path: str) -> Any:
        """The document at `path` (below /api/v1/), or None when there is none."""
        response = self._send("GET", path, None, {})
        if response.status == 404:
            return None
        return self._document(response, (200,))

    def post(self, path: str, body: Any, key: str, expect: tuple[int, ...] = (200, 201)) -> Any:
        """Post under an Idempotency-Key; the answer's document."""
        response = self._send("POST", path, body, {"Idempotency-Key": key})
        time.sleep(self._pause)
        return self._document(response, expect)

    def patch(self, path: str, body: Any) -> Any:
        """Change something; the answer's document."""
        return self._document(self._send("PATCH", path, body, {}), (200,))

    def _send(self, method: str, path: str, body: Any, headers: dict[str, str]) -> Response:
        data = None if body is None else json.dumps(body, ensure_ascii=False).encode()
        given = {"Authorization": f"Bearer {self._token}", **headers}
        if data is not None:
            given["Content-Type"] = "application/json"
        wait = 0.1
        for attempt in range(1, ATTEMPTS + 1):
            try:
                response = self._transport(method, f"/api/v1/{path}", given, data)
            except OSError:
                if attempt == ATTEMPTS:
                    raise
                time.sleep(wait)
            else:
                if response.status not in _RETRIED or attempt == ATTEMPTS:
                    return response
                time.sleep(min(response.retry_after or wait, 10.0))
            wait = min(wait * 2, 3.0)
        raise AssertionError("unreachable")

    @staticmethod
    def _document(response: Response, expect: tuple[int, ...]) -> Any:
        try:
            document = json.loads(response.body)
        except ValueError:
            document = {"detail": response.body[:200].decode("utf-8", "replace")}
        if response.status not in expect:
            raise ApiError(response.status, str(document.get("detail", document)))
        return document


def _seconds(text: str | None) -> float | None:
    return float(text) if text and text.isdecimal() else None
