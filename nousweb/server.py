"""The server: granian in front, Django's WSGI handler behind, and between them this adapter.

Why not granian's own WSGI interface: with Django it drops chunked bodies, takes a body that
broke off for a whole one, and a few uploads that stall hold its threads, so that nothing else
is answered. ASGI gets that right and costs Django half to two thirds of its speed.

So granian speaks RSGI to us. The event loop waits for the body, which costs no thread, and
hands the complete request to a thread of ours that runs Django. A request stays on one thread
from first to last, where its database connection lives.

What RSGI hides, and what follows from it:

- A body that breaks off ends like a whole one. With Content-Length the size tells. A chunked
  body shows an empty chunk before its end; so does one with trailers, and both are refused.
- Content-Length beside Transfer-Encoding is removed before we see it; granian reads the chunks
  and closes the connection, as RFC 9112 (6.3) asks, so nothing can be smuggled behind it.
- A streamed answer has no back-pressure, and ends like a whole one when its generator fails.
  Streams are therefore written out first, long ones into a temporary file, and sent with their
  length: a slow reader holds neither a thread nor memory, and a failure is a 500 instead of
  half a file.
- A header whose value isn't ASCII is left out: the request is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import multiprocessing
import multiprocessing.connection
import os
import queue
import signal
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache, partial
from http import HTTPStatus
from io import BytesIO
from typing import IO, Any

from granian.constants import HTTPModes, Interfaces
from granian.log import LogLevels
from granian.rsgi import HTTPProtocol, ProtocolError, Scope  # type: ignore[attr-defined]
from granian.server import Server

logger = logging.getLogger(__name__)

Environ = dict[str, Any]
Headers = list[tuple[str, str]]
Application = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]

IDLE_SECONDS = 20.0
"""A body of which nothing more comes for so long is given up: 408."""
WHOLE_SECONDS = 600.0
"""So is one that has not ended after so long."""
STOP_SECONDS = 30
"""How long requests under way may take to end when the server stops."""
PATIENCE_SECONDS = 0.02
"""When no request was taken up for so long and some wait, one more thread helps."""
FILE_FROM_BYTES = 1024 * 1024
"""A stream longer than this goes through a temporary file."""
FILE_SECONDS = 30.0
"""How long we keep that file open after granian was told to send it; it opens it at once."""


class Refused(Exception):
    """A request that never reaches Django: status, rule (as in the API's problems), detail."""

    def __init__(self, status: int, rule: str, detail: str) -> None:
        super().__init__(detail)
        self.status, self.rule, self.detail = status, rule, detail


class ClientGone(Exception):
    """Nobody waits for the stream that is being made."""


class Adapter:
    """An RSGI application that runs a WSGI application in threads of its own.

    A body is held in memory, at most `body_bytes` of it.
    """

    def __init__(
        self, application: Application, *, body_bytes: int, threads: int = 1,
        idle_seconds: float = IDLE_SECONDS, whole_seconds: float = WHOLE_SECONDS,
    ) -> None:  # fmt: skip
        self.application = application
        self.body_bytes = body_bytes
        self.idle_seconds, self.whole_seconds = idle_seconds, whole_seconds
        self.threads = _Threads(threads)

    def __rsgi_del__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Called by granian when a worker has answered its last request."""
        self.threads.stop()

    async def __rsgi__(self, scope: Scope, proto: HTTPProtocol) -> None:
        """Answer one request."""
        try:
            environ = environ_of(scope)
            body = await self._body(environ, proto)
        except Refused as refused:
            _refuse(refused, scope.path, proto)
            if refused.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                await self._drain(proto)
            return
        environ["wsgi.input"] = BytesIO(body)
        await _Job(self.application, environ, proto).run_in(self.threads)

    async def _body(self, environ: Environ, proto: HTTPProtocol) -> bytes:
        """The whole body. A request that announces none costs nothing. Raises Refused."""
        declared = environ.get("CONTENT_LENGTH")
        coding = environ.pop("HTTP_TRANSFER_ENCODING", None)
        if coding is None:
            if declared is None or declared == "0":
                return b""
            if int(declared) > self.body_bytes:  # granian took it for a number already
                raise self._too_large()
        elif coding.strip().lower() != "chunked":
            raise Refused(501, "transfer_encoding", "Transfer-Encoding: only chunked is taken.")
        try:
            body = await self._read(proto, int(declared) if declared else None)
        except TimeoutError:
            raise Refused(408, "body_timeout", "The body stalled; nothing was stored.") from None
        environ["CONTENT_LENGTH"] = str(len(body))  # Django reads no further than this
        return body

    async def _read(self, proto: HTTPProtocol, declared: int | None) -> bytes:
        """The body, to its declared or its own end. Raises Refused, TimeoutError."""
        clock = asyncio.get_running_loop().time
        end = clock() + self.whole_seconds
        chunks: list[bytes] = []
        size = empty = 0
        async with asyncio.timeout(self.idle_seconds) as patience:
            async for chunk in _Chunks(proto):
                empty += not chunk
                chunks.append(chunk)
                size += len(chunk)
                if size == declared:
                    return b"".join(chunks)
                if size > self.body_bytes:
                    raise self._too_large()
                patience.reschedule(min(clock() + self.idle_seconds, end))
        if declared is None and empty == 1:  # the mark of a proper end
            return b"".join(chunks)
        what = (
            "The chunks broke off, or have trailers, which are not taken"
            if declared is None
            else f"Content-Length says {declared:,} bytes, and {size:,} came"
        )
        raise Refused(400, "truncated_body", f"{what}; nothing was stored.")

    def _too_large(self) -> Refused:
        return Refused(
            413, "too_large", f"The body is too large: at most {self.body_bytes:,} bytes."
        )

    async def _drain(self, proto: HTTPProtocol) -> None:
        """Read on after the answer: a client that is still sending would otherwise see its
        connection reset, and not the answer."""
        left = 4 * self.body_bytes
        try:
            async with asyncio.timeout(self.idle_seconds):
                async for chunk in _Chunks(proto):
                    left -= len(chunk)
                    if left < 0:
                        return
        except TimeoutError:
            return


class _Threads:
    """The threads that run Django, and what waits for them.

    One thread is fastest while requests are short: several only fight over the interpreter
    (measured: 4 threads cost up to half as much again per request). So the first does all the
    work, and the others help when nothing has been taken up for PATIENCE_SECONDS.
    """

    def __init__(self, number: int) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._taken = 0  # counted by several threads: only good for "has it changed?"
        self._seen = 0
        self._watching = False
        self._first = threading.Thread(target=self._work, name="django-0", daemon=True)
        self._first.start()
        self._helpers = [_Helper(f"django-{n}", self._help) for n in range(1, number)]

    def put(self, job: _Job, loop: asyncio.AbstractEventLoop) -> None:
        """Called on the event loop."""
        self._jobs.put(job)
        if self._helpers and not self._watching:
            self._watch(loop)

    def stop(self) -> None:
        """Let every job end that was put before."""
        self._jobs.put(None)
        for helper in self._helpers:
            helper.stop()
        self._first.join(STOP_SECONDS)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        self._watching, self._seen = True, self._taken
        loop.call_later(PATIENCE_SECONDS, self._check, loop)

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        self._watching = False
        if self._jobs.empty():
            return
        if self._taken == self._seen:
            for helper in self._helpers:
                if helper.idle:
                    helper.wake()
                    break
        self._watch(loop)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._taken += 1
            job.run()

    def _help(self) -> None:
        """Work until nothing waits."""
        with contextlib.suppress(queue.Empty):
            while True:
                job = self._jobs.get_nowait()
                if job is None:  # for the first thread
                    self._jobs.put(None)
                    return
                self._taken += 1
                job.run()


class _Helper:
    """A thread that does a piece of work each time it is woken."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self.idle = True
        self._work = work
        self._stopped = False
        self._event = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            self._event.wait()
            self._event.clear()
            if self._stopped:
                return
            self._work()
            self.idle = True

    def wake(self) -> None:
        self.idle = False
        self._event.set()

    def stop(self) -> None:
        self._stopped = True
        self._event.set()
        self._thread.join(STOP_SECONDS)


class _Job:
    """One request on its way through the application."""

    def __init__(self, application: Application, environ: Environ, proto: HTTPProtocol) -> None:
        self.application, self.environ, self.proto = application, environ, proto
        self.status, self.headers = 500, []  # type: int, Headers
        self.loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self.loop.create_future()
        self.watch: asyncio.Task[None] | None = None
        self.gone = False

    async def run_in(self, threads: _Threads) -> None:
        """Wait until the request is answered and closed."""
        threads.put(self, self.loop)
        try:
            await self.done
        finally:
            if self.watch is not None:
                self.watch.cancel()

    def run(self) -> None:
        """In the thread: call the application and answer. Raises nothing."""
        try:
            self._answer()
        except ClientGone:
            logger.info("client left before its answer was made: %s", self.environ["PATH_INFO"])
        except BaseException:  # the thread has to live on, and the client to be answered
            method, path = self.environ["REQUEST_METHOD"], self.environ["PATH_INFO"]
            logger.exception("%s %s failed", method, path)
            detail = "Something went wrong here."
            _refuse(Refused(500, "internal_server_error", detail), path, self.proto)
        finally:
            self.loop.call_soon_threadsafe(self._finish)

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def _start_response(self, status: str, headers: Headers, exc_info: Any = None) -> None:
        self.status, self.headers = int(status[:3]), headers

    def _answer(self) -> None:
        result = self.application(self.environ, self._start_response)
        try:
            head = self.environ["REQUEST_METHOD"] == "HEAD"
            if not getattr(result, "streaming", True):
                body = b"".join(result)
                if head:
                    self._set_length(len(body))
                self.proto.response_bytes(self.status, self.headers, b"" if head else body)
            elif head:
                self.proto.response_empty(self.status, self.headers)
            else:
                self._send_stream(result)
        finally:
            close = getattr(result, "close", None)
            if close is not None:
                close()

    def _send_stream(self, result: Iterable[bytes]) -> None:
        chunks: list[bytes] = []
        size = 0
        stream = iter(result)
        for chunk in stream:
            chunks.append(chunk)
            size += len(chunk)
            if size > FILE_FROM_BYTES:
                break
        else:
            self.proto.response_bytes(self.status, self.headers, b"".join(chunks))
            return
        self.loop.call_soon_threadsafe(self._watch_client)
        file = tempfile.TemporaryFile()  # noqa: SIM115  # closed when it has been sent
        try:
            file.writelines(chunks)
            for chunk in stream:
                file.write(chunk)
                if self.gone:
                    raise ClientGone
            self._send_file(file)
        except BaseException:
            file.close()
            raise

    def _send_file(self, file: IO[bytes]) -> None:
        """The file has no name; /dev/fd opens it all the same, on Linux and macOS."""
        file.flush()
        self._set_length(file.tell())
        file.seek(0)
        self.proto.response_file(self.status, self.headers, f"/dev/fd/{file.fileno()}")
        self.loop.call_soon_threadsafe(self.loop.call_later, FILE_SECONDS, file.close)

    def _set_length(self, size: int) -> None:
        if not any(name.lower() == "content-length" for name, _ in self.headers):
            self.headers = [*self.headers, ("Content-Length", str(size))]

    def _watch_client(self) -> None:
        async def watch() -> None:
            await self.proto.client_disconnect()
            self.gone = True

        if not self.done.done():
            self.watch = self.loop.create_task(watch())


class _Chunks:
    """The chunks of a body, from where they have been read to; the protocol object itself can
    be iterated only once."""

    def __init__(self, proto: HTTPProtocol) -> None:
        with contextlib.suppress(ProtocolError):  # begun already
            aiter(proto)
        # Missing in its stub. (The built-in anext() with a default crashes on it, 3.11.)
        self._next: Callable[[], Awaitable[bytes]] = proto.__anext__  # type: ignore[attr-defined]

    def __aiter__(self) -> _Chunks:
        return self

    def __anext__(self) -> Awaitable[bytes]:
        return self._next()


# -- requests as WSGI wants them -----------------------------------------------------------

_BASE: Environ = {
    "SCRIPT_NAME": "",
    "SERVER_SOFTWARE": "nousweb",
    "wsgi.version": (1, 0),
    "wsgi.errors": sys.stderr,
    "wsgi.multithread": True,
    "wsgi.multiprocess": True,
    "wsgi.run_once": False,
}


def environ_of(scope: Scope) -> Environ:
    """The WSGI environ, without `wsgi.input`. Raises Refused for a head that makes no sense."""
    path = scope.path
    if not path.startswith("/"):
        raise Refused(400, "bad_request", "The request target is no path.")
    if "\0" in path:
        raise Refused(400, "bad_request", "A path has no NUL in it.")
    server, _, port = scope.server.rpartition(":")
    environ = {
        **_BASE,
        "REQUEST_METHOD": scope.method,
        "PATH_INFO": _wsgi_text(path),
        "QUERY_STRING": _wsgi_text(scope.query_string),
        "SERVER_PROTOCOL": f"HTTP/{scope.http_version}",
        "SERVER_NAME": server.strip("[]"),
        "SERVER_PORT": port,
        "REMOTE_ADDR": scope.client.rpartition(":")[0].strip("[]"),
        "wsgi.url_scheme": scope.scheme,
    }
    names = set()
    for name, value in scope.headers.items():
        names.add(name)
        key = _environ_key(name)
        if key in environ:
            joint = "; " if key == "HTTP_COOKIE" else ","
            value = f"{environ[key]}{joint}{value}"
        if key:
            environ[key] = value
    if len(names) != len(scope.headers.keys()):
        raise Refused(400, "bad_request", "The value of a header is not ASCII.")
    if scope.authority:  # of a target in absolute form; it takes the place of Host
        environ["HTTP_HOST"] = scope.authority
    elif "HTTP_HOST" not in environ and scope.http_version == "1.1":
        raise Refused(400, "bad_request", "There is no Host header.")
    return environ


def _wsgi_text(text: str) -> str:
    """Bytes as text, the way WSGI wants them: each a character of Latin-1."""
    return text if text.isascii() else text.encode().decode("latin-1")


@lru_cache(maxsize=512)
def _environ_key(name: str) -> str:
    """The key of a header; empty for one to leave out: `x_forwarded_for` would pass for
    `x-forwarded-for`, which a proxy in front of us may have checked."""
    if "_" in name:
        return ""
    key = name.upper().replace("-", "_")
    return key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"


def _refuse(refused: Refused, path: str, proto: HTTPProtocol) -> None:
    """Answer in Django's stead: a problem document for the API, a line of text for a page."""
    if path.startswith("/api/"):
        kind = "application/problem+json"
        document = {
            "type": f"/problems/{refused.rule}",
            "title": HTTPStatus(refused.status).phrase,
            "status": refused.status,
            "detail": refused.detail,
            "rule": refused.rule,
        }
        body = json.dumps(document)
    else:
        kind, body = "text/plain; charset=utf-8", f"{refused.detail}\n"
    proto.response_bytes(refused.status, [("Content-Type", kind)], body.encode())


# -- processes -----------------------------------------------------------------------------

_LOGGING: dict[str, Any] = {
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "loggers": {
        "_granian": {"handlers": ["stderr"], "propagate": False},
        "granian.access": {"handlers": ["stderr"], "level": "INFO", "propagate": False},
    },
}


def serve(host: str, port: int, *, workers: int, threads: int, access_log: bool = False) -> None:
    """Serve the Django project until SIGTERM or SIGINT; requests under way are answered.

    This process watches over `workers` processes with up to `threads` threads for Django each,
    and starts one anew that died. Call it in the main thread. Raises SystemExit when the workers
    can't stay alive.
    """
    # A forked child would share our database connections, and macOS doesn't allow it.
    multiprocessing.set_start_method("spawn", force=True)
    loader: Callable[..., Any] = partial(_worker, threads=threads)
    Server(
        target="nousweb.server",
        address=host,
        port=port,
        interface=Interfaces.RSGI,
        workers=workers,
        http=HTTPModes.http1,
        websockets=False,
        log_level=LogLevels.warning,
        log_dictconfig=_LOGGING,
        log_access=access_log,
        respawn_failed_workers=True,
        workers_kill_timeout=STOP_SECONDS + 5,
    ).serve(target_loader=loader, wrap_loader=False)


def _worker(threads: int) -> Adapter:
    """In a worker process: what it serves."""
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application

    application = get_wsgi_application()
    return Adapter(application, body_bytes=settings.LIMITS["body_bytes"], threads=threads)


def _leave_with_parent() -> None:
    """Stop when the process that watches over us is gone, and leave the port to the next."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
