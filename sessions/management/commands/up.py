"""`manage.py up`: everything that a first start needs, and then the server.

Each step asks for its own state, so that a start which was interrupted goes on where it was, and a
later one makes nothing twice.
"""

from __future__ import annotations

import hashlib
import io
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import IO, Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.hashers import make_password
from django.contrib.staticfiles import finders
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection, connections, transaction

from nousweb.server import serve
from sessions import audit
from sessions.example.load import MAIN_KEY
from sessions.models import AuditRecord, Token
from sessions.tokens import create_token, find_token, revoke_token

try:
    import fcntl
except ImportError:  # Windows: two first starts at once are not kept apart there
    fcntl = None  # type: ignore[assignment]

EXAMPLE_LOADED = "example_loaded"
EXAMPLE_LEFT_OUT = "example_left_out"
_TOKEN_VARIABLE = "NOUSWEB_UP_TOKEN"  # noqa: S105 — a name


class Command(BaseCommand):
    help = (
        "Make what is missing (database, administrator, token, example sessions) and serve the "
        "dashboard. Settings come from the environment; the README lists them."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--workers", type=int, help="processes (default: by the database)")
        parser.add_argument("--threads", type=int, default=4, help="most threads of a process")
        parser.add_argument(
            "--load-example-at", metavar="URL", help="used by `up` itself: load the example there"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["load_example_at"]:
            self._load_example(options["load_example_at"])
            return
        _check_port()
        url = f"http://{_shown_host()}:{settings.PORT}"
        lock = _only_one(settings.DATA_DIR / "up.lock")
        _check_port()  # whoever held the lock may listen there by now
        self._prepare(url)
        connections.close_all()
        workers = options["workers"] or (1 if connection.vendor == "sqlite" else _cores())
        if _example_loaded():
            self.stdout.write(f"Example:       {url}/sessions/{MAIN_KEY}/")
        self.stdout.write(f"nousweb serves on {url}/ — stop it with Ctrl-C.")
        self.stdout.flush()
        threading.Thread(target=_release, args=(lock, url), daemon=True).start()
        serve(settings.HOST, settings.PORT, workers=workers, threads=options["threads"])

    def _prepare(self, url: str) -> None:
        call_command("migrate", verbosity=0, interactive=False)
        _collect_static()
        self._administrator()
        secret = self._token(url)
        if _example_settled():
            return
        if settings.LOAD_EXAMPLE:
            _start_loading(url, secret)
        else:
            audit.record(EXAMPLE_LEFT_OUT, actor="setup")

    def _say(self, *lines: str) -> None:
        """Write at once: a secret that is stored must have been seen."""
        self.stdout.write("\n".join(lines))
        self.stdout.flush()

    def _administrator(self) -> None:
        users = get_user_model().objects
        if users.filter(is_superuser=True).exists():
            return
        given = os.environ.get("NOUSWEB_ADMIN_PASSWORD")
        password = given or secrets.token_urlsafe(12)
        with transaction.atomic():  # said before it is committed, not after
            users.create(
                username="admin",
                is_staff=True,
                is_superuser=True,
                password=make_password(password),
            )
            audit.record("user_created", actor="setup", target="admin")
            shown = "the one in NOUSWEB_ADMIN_PASSWORD" if given else password
            self._say("Administrator: admin", f"Password:      {shown}")

    def _token(self, url: str) -> str | None:
        """Make the first token; its secret, when it is known."""
        given = os.environ.get("NOUSWEB_TOKEN")
        if Token.objects.exclude(label=_LOADER).exists():
            if given and not find_token(given):
                self._say(
                    "NOUSWEB_TOKEN is no valid token of this database, and is not made one: it "
                    "names the first token only."
                )
                return None
            return given
        with transaction.atomic():
            try:
                _, secret = create_token("first token", ["ingest", "read"], given)
            except ValueError as error:
                raise CommandError(f"NOUSWEB_TOKEN can't be used: {error}.") from None
            self._say(f"Token:         {'the one in NOUSWEB_TOKEN' if given else secret}")
        self._say(
            "A first update, with the token in NOUSWEB_TOKEN:",
            f"  curl {url}/api/v1/sessions/my-first-run/updates \\",
            '    -H "Authorization: Bearer $NOUSWEB_TOKEN" -H "Content-Type: application/json" \\',
            """    -d '{"operations": [["set", "goal", "fix the build"]]}'""",
        )
        return secret

    def _load_example(self, url: str) -> None:
        """In a process of its own: wait for the server, load the example, say where it is."""
        secret = os.environ.pop(_TOKEN_VARIABLE, None)
        if not _wait_for(url):
            raise CommandError("The server did not answer; the next start loads the example.")
        own = None
        if secret is None:  # made once, and shown once: a token for this only
            own, secret = create_token(_LOADER, ["ingest", "read"])
        try:
            call_command("load_example", url=url, token=secret, stdout=io.StringIO())
            self.stdout.write(f"Example:       {url}/sessions/{MAIN_KEY}/")
            if not _example_loaded():
                audit.record(EXAMPLE_LOADED, actor="setup")
        finally:
            if own is not None:
                revoke_token(own, actor="setup")


_LOADER = "example loader"


def _shown_host() -> str:
    """The host to print: one that a browser on this machine reaches."""
    if settings.HOST in ("0.0.0.0", "::", ""):  # noqa: S104 — to print another one
        return "127.0.0.1"
    return f"[{settings.HOST}]" if ":" in settings.HOST else str(settings.HOST)


def _cores() -> int:
    return min(os.cpu_count() or 1, 4)


def _check_port() -> None:
    """Say so at once when something listens there already."""
    family = socket.AF_INET6 if ":" in settings.HOST else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.HOST, settings.PORT))
        except OSError as error:
            raise CommandError(
                f"{settings.HOST}:{settings.PORT} can't be used: {error.strerror}. Is nousweb "
                "running already? Another port goes into NOUSWEB_PORT."
            ) from None


def _only_one(path: Path) -> IO[str]:
    """Wait until no other start prepares this data folder. The lock is the file's, until it is
    closed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("w")
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX)
    return file


def _release(lock: IO[str], url: str) -> None:
    """Let the next start go on when the server answers, and not before: the workers share their
    port, so that a second server would not notice the first."""
    with lock:
        _wait_for(url)


def _collect_static() -> None:
    """Collect and compress the static files, when they are others than last time."""
    state = hashlib.sha256()
    for finder in finders.get_finders():
        for name, storage in finder.list([]):
            changed = os.stat(storage.path(name))
            state.update(f"{name} {changed.st_size} {changed.st_mtime_ns}\n".encode())
    stamp = settings.DATA_DIR / "static.stamp"
    if stamp.exists() and stamp.read_text() == state.hexdigest():
        return
    call_command("collectstatic", verbosity=0, interactive=False)
    stamp.write_text(state.hexdigest())


def _example_loaded() -> bool:
    return AuditRecord.objects.filter(action=EXAMPLE_LOADED).exists()


def _example_settled() -> bool:
    """Whether a first start has loaded the example, or was told to leave it out."""
    return AuditRecord.objects.filter(action__in=(EXAMPLE_LOADED, EXAMPLE_LEFT_OUT)).exists()


def _start_loading(url: str, secret: str | None) -> None:
    """Load the example from another process, once the server is there."""
    environ = dict(os.environ)
    environ.pop(_TOKEN_VARIABLE, None)
    if secret is not None:  # not on the command line, where others could read it
        environ[_TOKEN_VARIABLE] = secret
    subprocess.Popen([sys.executable, sys.argv[0], "up", "--load-example-at", url], env=environ)


def _wait_for(url: str) -> bool:
    """Whether the server answers within a minute."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in range(300):
        try:
            with direct.open(f"{url}/healthz", timeout=5):
                return True
        except OSError:
            time.sleep(0.2)
    return False
