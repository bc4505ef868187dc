"""`manage.py up`: make what a first start needs, then serve. Started again, it only serves."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import socket
import threading
import time
import urllib.error
import urllib.request
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError, connection

from nousweb.server import serve
from sessions.management import setup

_PORT_SECONDS = 1.0
_START_SECONDS = 60.0

FIRST_UPDATE = """\
Send a first update:

  curl {url}/api/v1/sessions/my-first-run/updates \\
    -H "Authorization: Bearer $NOUSWEB_TOKEN" -H "Content-Type: application/json" \\
    -d '{{"operations": [["set", "goal", "fix the build"], \
["log_event", "tool_call", {{"name": "grep"}}]]}}'
"""


class Command(BaseCommand):
    help = (
        "Make the database, the administrator, the first token and the example session where "
        "they are missing, and serve the dashboard. README.md names the variables that it reads."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default=settings.HOST, help="address to listen on")
        parser.add_argument("--port", type=int, default=settings.PORT)
        parser.add_argument(
            "--workers", type=int,
            help="processes; default 1 on SQLite, else one per processor, at most 4",
        )  # fmt: skip
        parser.add_argument("--threads", type=int, default=4, help="threads of a process")
        parser.add_argument("--access-log", action="store_true", help="a line for each request")

    def handle(self, *args: Any, **options: Any) -> None:
        host, port = options["host"], options["port"]
        self._check_port(host, port)
        self.url = _url(host, port)
        workers = options["workers"] or _default_workers()
        token, example = self._set_up()
        ready = threading.Thread(target=self._after_start, args=(token, example), daemon=True)
        ready.start()
        serve(
            host, port, workers=workers, threads=options["threads"],
            access_log=options["access_log"],
        )  # fmt: skip

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()

    def _check_port(self, host: str, port: int) -> None:
        """CommandError when something else listens there. The server shares its port among its
        workers, and would share it with the workers of another server too."""
        end = time.monotonic() + _PORT_SECONDS  # workers of a killed server take a moment to go
        while True:
            try:
                family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
                with socket.socket(family) as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(address)
                return
            except OSError as error:
                if error.errno == errno.EADDRINUSE and time.monotonic() < end:
                    time.sleep(0.1)
                    continue
                raise CommandError(_why_not(host, port, error)) from None

    def _set_up(self) -> tuple[str | None, bool]:
        """Make what is missing. Returns a token's secret if one is known, and whether the
        example has to be loaded."""
        try:
            with setup.only_one(settings.DATA_DIR):
                setup.migrate(self._say)
                setup.collect_static_files(self._say)
                setup.make_administrator(self._say, os.environ.get("NOUSWEB_ADMIN_PASSWORD"))
                token = self._first_token()
                setup.revoke_loader_tokens()
                return token, setup.example_is_due(settings.LOAD_EXAMPLE)
        except (OperationalError, TimeoutError) as error:
            raise CommandError(f"The database can't be used: {error}") from error
        finally:
            setup.let_go_of_database()

    def _first_token(self) -> str | None:
        try:
            return setup.make_first_token(self._say, os.environ.get("NOUSWEB_TOKEN"))
        except ValueError as error:
            raise CommandError(f"NOUSWEB_TOKEN can't be used: {error}") from None

    def _after_start(self, token: str | None, example: bool) -> None:
        """In a thread of its own, while the server starts."""
        if not _answers(f"{self.url}/healthz"):
            self.stderr.write(f"{self.url} does not answer after {_START_SECONDS:.0f} seconds.")
            return
        self._say(f"\nnousweb serves on {self.url}/   (Ctrl-C stops it)\n")
        if not example:
            return
        try:
            where = self._load_example(token)
            self._say(f"Example session {where}\n\n{FIRST_UPDATE.format(url=self.url)}")
        except Exception as error:
            self.stderr.write(f"The example is not loaded; the next start tries again: {error}")
        finally:
            setup.let_go_of_database()

    def _load_example(self, token: str | None) -> str:
        output = io.StringIO()
        with setup.loader_token(token) as secret:
            call_command("load_example", url=self.url, token=secret, stdout=output)
        where = output.getvalue().split()[-1]
        setup.example_loaded(where)
        return where


def _default_workers() -> int:
    """SQLite has one writer at a time, and its lock of the process keeps waits short."""
    return 1 if connection.vendor == "sqlite" else min(4, os.cpu_count() or 1)


def _url(host: str, port: int) -> str:
    """Where a browser on this machine finds us."""
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)  # noqa: S104
    if ":" in name and not name.startswith("["):
        name = f"[{name}]"
    return f"http://{name}:{port}"


def _why_not(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"Port {port} of {host} is in use. Stop what listens there, or choose another: "
            f"NOUSWEB_PORT={port + 1 if port < 65535 else port - 1} python manage.py up"
        )
    return f"Can't listen on {host}:{port} (NOUSWEB_HOST, NOUSWEB_PORT): {error}"


def _answers(url: str) -> bool:
    """Wait until the address answers 200; False when it takes too long."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(OSError), opener.open(url, timeout=5) as answer:
            if answer.status == 200:
                return True
        time.sleep(0.1)
    return False
