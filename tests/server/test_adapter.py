"""The adapter between granian and Django, without a socket: waiting, streaming, closing."""

from __future__ import annotations

import asyncio
import logging
import threading
from types import SimpleNamespace

import pytest

from nousweb.server import FILE_FROM_BYTES, Adapter


class Headers(dict):
    """granian's headers, as far as the adapter asks for them."""


class Proto:
    """Plays granian's side. `chunks` are the body; after them it ends, or stalls for ever."""

    def __init__(self, chunks: list[bytes], *, stalls: bool = False) -> None:
        self.chunks, self.stalls = list(chunks), stalls
        self.status, self.headers, self.body = 0, {}, b""

    def __aiter__(self) -> Proto:
        return self

    async def __anext__(self) -> bytes:
        if self.chunks:
            return self.chunks.pop(0)
        if self.stalls:
            await asyncio.sleep(60)
        raise StopAsyncIteration

    async def client_disconnect(self) -> None:
        await asyncio.sleep(60)

    def response_bytes(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.status, self.headers, self.body = status, dict(headers), body

    def response_empty(self, status: int, headers: list[tuple[str, str]]) -> None:
        self.response_bytes(status, headers, b"")

    def response_file(self, status: int, headers: list[tuple[str, str]], file: str) -> None:
        with open(file, "rb") as sent:
            self.response_bytes(status, headers, sent.read())


class Answer:
    """What a WSGI application returns: an iterable that wants to be closed."""

    def __init__(self, chunks, *, streaming: bool) -> None:
        self.chunks, self.streaming = chunks, streaming
        self.closed_by = ""

    def __iter__(self):
        return iter(self.chunks)

    def close(self) -> None:
        self.closed_by = threading.current_thread().name


def ask(application, proto: Proto, *, threads: int = 1, path: str = "/api/x", **head) -> Proto:
    """One request through an adapter of its own."""
    headers = head.pop("headers", {})
    if not isinstance(headers, Headers):
        headers = Headers({"host": "localhost", **headers})
    scope = SimpleNamespace(
        method="POST", path=path, query_string="", http_version="1.1", scheme="http",
        server="127.0.0.1:8000", client="127.0.0.1:1", authority=None, headers=headers,
    )  # fmt: skip
    vars(scope).update(head)

    async def run() -> None:
        adapter = Adapter(
            application, body_bytes=100, threads=threads, idle_seconds=0.05, whole_seconds=0.3
        )
        try:
            await adapter.__rsgi__(scope, proto)
            await asyncio.sleep(0.01)  # a file that was sent is closed now
        finally:
            adapter.__rsgi_del__(asyncio.get_running_loop())

    asyncio.run(run())
    return proto


def says(answer: Answer, seen: dict | None = None):
    def application(environ, start_response):
        if seen is not None:
            seen.update(environ, body=environ["wsgi.input"].read())
        start_response("200 OK", [("Content-Type", "text/plain")])
        return answer

    return application


def never(environ, start_response):
    raise AssertionError("the application must not be called")


LENGTH = {"headers": {"content-length": "6"}}
CHUNKED = {"headers": {"transfer-encoding": "chunked"}}


def test_a_body_that_stalls_is_408():
    proto = ask(never, Proto([b"abc"], stalls=True), **LENGTH)
    assert proto.status == 408
    assert proto.headers["Content-Type"] == "application/problem+json"


def test_a_body_that_comes_drop_by_drop_is_408_in_the_end():
    class Drops(Proto):
        async def __anext__(self) -> bytes:
            await asyncio.sleep(0.02)
            return b"x"

    assert ask(never, Drops([]), headers={"content-length": "99"}).status == 408


@pytest.mark.parametrize(("chunks", "head"), [([b"abc", b"", b""], LENGTH),
                                              ([b"abc"], LENGTH),
                                              ([b"abc", b"", b""], CHUNKED),
                                              ([b"abc"], CHUNKED)])  # fmt: skip
def test_a_body_that_breaks_off_is_400(chunks, head):
    assert ask(never, Proto(chunks), **head).status == 400


@pytest.mark.parametrize("head", [LENGTH, CHUNKED])
def test_a_whole_body_arrives(head):
    seen = {}
    proto = ask(says(Answer([b"ok"], streaming=False), seen), Proto([b"abc", b"def", b""]), **head)
    assert (proto.status, proto.body) == (200, b"ok")
    assert seen["body"] == b"abcdef"
    assert seen["CONTENT_LENGTH"] == "6"


def test_chunks_over_the_limit_are_413():
    assert ask(never, Proto([b"x" * 60, b"x" * 60, b""]), **CHUNKED).status == 413


def test_outside_the_api_a_refusal_is_plain_text():
    proto = ask(never, Proto([]), path="/sessions/\0/")
    assert proto.status == 400
    assert proto.headers["Content-Type"].startswith("text/plain")


def test_a_header_that_is_not_ascii_is_refused_because_granian_leaves_it_out():
    class Hiding(Headers):
        def items(self):
            return [("host", "localhost")]

    hidden = Hiding({"host": "localhost", "idempotency-key": "é"})
    assert ask(never, Proto([]), headers=hidden).status == 400


def test_names_with_an_underscore_do_not_pass_for_others():
    seen = {}
    ask(says(Answer([], streaming=False), seen), Proto([]), headers={"x_forwarded_for": "1.2.3.4"})
    assert "HTTP_X_FORWARDED_FOR" not in seen


@pytest.mark.parametrize("size", [10, FILE_FROM_BYTES + 10])
def test_a_stream_is_sent_with_its_length_and_closed_on_its_thread(size, monkeypatch):
    monkeypatch.setattr("nousweb.server.FILE_SECONDS", 0)
    answer = Answer((b"x" * 1000 for _ in range(-(-size // 1000))), streaming=True)
    proto = ask(says(answer), Proto([]))
    assert len(proto.body) >= size
    assert int(proto.headers.get("Content-Length", len(proto.body))) == len(proto.body)
    assert answer.closed_by == "django-0"


@pytest.mark.parametrize("size", [10, FILE_FROM_BYTES + 10])
def test_a_stream_that_fails_is_500_and_not_half_a_file(size, caplog):
    def chunks():
        yield b"x" * size
        raise ValueError("the export failed")

    answer = Answer(chunks(), streaming=True)
    with caplog.at_level(logging.ERROR, "nousweb.server"):
        proto = ask(says(answer), Proto([]))
    assert proto.status == 500
    assert b"x" * size not in proto.body
    assert answer.closed_by
    assert "the export failed" in caplog.text


def test_head_runs_no_stream():
    answer = Answer(pytest.fail, streaming=True)
    proto = ask(says(answer), Proto([]), method="HEAD")
    assert (proto.status, proto.body) == (200, b"")
    assert answer.closed_by


def test_a_slow_request_does_not_hold_the_others():
    release = threading.Event()

    def application(environ, start_response):
        start_response("200 OK", [])
        if environ["QUERY_STRING"] == "slow":
            release.wait(10)
        else:
            release.set()  # only another thread can get here meanwhile
        return Answer([b"ok"], streaming=False)

    async def run() -> list[Proto]:
        adapter = Adapter(application, body_bytes=1, threads=2)
        protos = [Proto([]), Proto([])]
        scopes = [
            SimpleNamespace(
                method="GET", path="/", query_string=query, http_version="1.1", scheme="http",
                server="a:1", client="a:1", authority=None, headers=Headers(host="localhost"),
            )
            for query in ("slow", "")
        ]  # fmt: skip
        await asyncio.gather(*map(adapter.__rsgi__, scopes, protos))
        adapter.__rsgi_del__(asyncio.get_running_loop())
        return protos

    assert [proto.status for proto in asyncio.run(run())] == [200, 200]
    assert release.is_set()
