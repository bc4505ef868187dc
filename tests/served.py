"""A real server process, as a user would start it, with a data folder and a database of its own."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.postgres import free_port

ROOT = Path(__file__).resolve().parent.parent
TOKEN = "the-token-of-the-tests-0123456789"
PASSWORD = "the password of the tests"


class Served:
    """`manage.py up` in a process of its own. `url`, `port`, `pid`, `output()`."""

    def __init__(self, folder: Path, database: str | None, **environ: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.folder = folder
        self.environ = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("NOUSWEB_", "DJANGO_", "DATABASE_"))
        }
        self.environ |= {
            "NOUSWEB_DATA": str(folder), "NOUSWEB_PORT": str(self.port), "NOUSWEB_EXAMPLE": "0",
            "NOUSWEB_TOKEN": TOKEN, "NOUSWEB_ADMIN_PASSWORD": PASSWORD, "PYTHONUNBUFFERED": "1",
            **environ,
        }  # fmt: skip
        if database is not None:
            self.environ["DATABASE_URL"] = database
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *, wait: bool = True) -> Served:
        """Start, and wait until it serves. Raises RuntimeError with its output if it does not."""
        with (self.folder / "output").open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "up"], cwd=ROOT, env=self.environ,
                stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        if wait:
            self._wait()
        return self

    def _wait(self) -> None:
        assert self.process is not None
        for _ in range(600):
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended: {self.output()}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.request("GET", "/healthz")[0] == 200:
                    return
            time.sleep(0.1)
        raise RuntimeError(f"the server did not answer within a minute: {self.output()}")

    def output(self) -> str:
        """All that it has written so far."""
        return (self.folder / "output").read_text(errors="replace")

    def request(
        self, method: str, path: str, body: Any = None, timeout: float = 30, **headers: str
    ) -> tuple[int, Any]:
        """Status and answer (JSON where it is JSON, else text) of a request with the token."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        named = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        try:
            connection.request(method, path, raw, named)
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        is_json = "json" in (response.getheader("Content-Type") or "")
        return response.status, json.loads(text) if is_json and text else text

    def kill(self) -> None:
        """Kill every process of it at once, as a power cut would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to stop, and wait."""
        self._end(signal.SIGTERM)

    def _end(self, with_signal: int) -> None:
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            if with_signal == signal.SIGKILL:
                os.killpg(self.process.pid, with_signal)
            else:
                self.process.send_signal(with_signal)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.process = None


@contextlib.contextmanager
def served(database_server: str | None, **environ: str) -> Iterator[Served]:
    """A server, not started yet; everything of it goes when the block ends.

    `database_server` is the URL of a PostgreSQL server in which it gets a database of its own;
    None for SQLite.
    """
    folder = Path(tempfile.mkdtemp(prefix="nousweb-served-"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        database = stack.enter_context(_database(database_server)) if database_server else None
        server = Served(folder, database, **environ)
        stack.callback(server.kill)
        yield server


@contextlib.contextmanager
def _database(server: str) -> Iterator[str]:
    import psycopg

    name = f"served_{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
        try:
            yield f"{server.rpartition('/')[0]}/{name}"
        finally:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
