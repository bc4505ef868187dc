"""Starts what is measured: each server as processes of its own, with a folder of its own."""

from __future__ import annotations

import contextlib
import http.client
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.postgres import free_port

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "benchmark-token-of-no-other-use"
_MAKE_TOKEN = (
    "from sessions.tokens import create_token;"
    f"create_token('benchmark', ['ingest', 'read'], {TOKEN!r})"
)


@dataclass(frozen=True, slots=True)
class Served:
    """A server that runs. `log` holds what it wrote."""

    port: int
    log: Path


def environment(settings: str, folder: Path, database: str | None) -> dict[str, str]:
    """The environment of a process that works with these settings and this database; nothing
    of ours (`NOUSWEB_…`) is inherited."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("NOUSWEB_")}
    env.pop("DATABASE_URL", None)
    env |= {"DJANGO_SETTINGS_MODULE": settings, "NOUSWEB_DATA": str(folder)}
    env |= {"PYTHONPATH": str(ROOT)}
    if database is not None:
        env["DATABASE_URL"] = database
    return env


@contextlib.contextmanager
def nousweb(database: str | None, workers: int, threads: int) -> Iterator[Served]:
    """nousweb, with its migrations and the token `TOKEN`."""
    with tempfile.TemporaryDirectory(prefix="nousweb-bench-") as folder:
        env = environment("nousweb.settings", Path(folder), database)
        _manage(env, "migrate", "--verbosity=0")
        _manage(env, "shell", "--verbosity=0", "--command", _MAKE_TOKEN)
        with _serve(env, Path(folder), workers, threads, "/healthz") as served:
            yield served


@contextlib.contextmanager
def bare(database: str | None, workers: int, threads: int) -> Iterator[Served]:
    """The bare endpoint, in the same server."""
    with tempfile.TemporaryDirectory(prefix="nousweb-bare-") as folder:
        env = environment("tests.benchmarks.bare.settings", Path(folder), database)
        _manage(env, "migrate", "--run-syncdb", "--verbosity=0")
        with _serve(env, Path(folder), workers, threads, "/none") as served:
            yield served


def _manage(env: dict[str, str], *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "django", *arguments], env=env, cwd=ROOT, check=True)


@contextlib.contextmanager
def _serve(
    env: dict[str, str], folder: Path, workers: int, threads: int, probe: str
) -> Iterator[Served]:
    port, log = free_port(), folder / "server.log"
    command = [sys.executable, "-m", "tests.benchmarks.serve", str(port), str(workers)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, str(threads)], env=env, cwd=ROOT, stdout=output, stderr=output
        )
    try:
        _wait(process, port, probe, log)
        yield Served(port, log)
    finally:
        process.terminate()
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, probe: str, log: Path) -> None:
    for _ in range(300):
        if process.poll() is not None:
            raise RuntimeError(f"The server did not start:\n{log.read_text()[-2000:]}")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", probe)
            connection.getresponse().read()
        except OSError:
            time.sleep(0.1)
        else:
            return
        finally:
            connection.close()
    raise RuntimeError(f"The server did not answer:\n{log.read_text()[-2000:]}")
