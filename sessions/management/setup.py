"""What a first start makes. Each step looks at what is there already, so that a start that was
interrupted is completed by the next one, and a later start makes nothing twice.

A secret is shown before it is committed: whatever is stored, someone has seen its secret.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command
from django.db import connection, connections, transaction
from django.db.migrations.executor import MigrationExecutor

from sessions import audit
from sessions.models import AuditRecord, Token
from sessions.tokens import create_token, find_token, revoke_token

try:
    import fcntl
except ImportError:  # not on Windows; the database then guards itself, step by step
    fcntl = None  # type: ignore[assignment]

Say = Callable[[str], None]

ADMIN = "admin"
FIRST_TOKEN = "first token"  # noqa: S105  # a label
LOADER_TOKEN = "example loader"  # noqa: S105
SCOPES = ["ingest", "read"]
_ADVISORY_LOCK = 7_305_528_911
_LOCK_SECONDS = 300


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Held while a start makes things: another one on the same folder or database waits."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "setup.lock").open("a") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        if connection.vendor != "postgresql":
            yield
            return
        _take_advisory_lock()
        try:
            yield
        finally:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [_ADVISORY_LOCK])


def _take_advisory_lock() -> None:
    """By asking again and again: waiting would meet the connection's own lock time-out."""
    for _ in range(_LOCK_SECONDS * 5):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_lock(%s)", [_ADVISORY_LOCK])
            if cursor.fetchone()[0]:
                return
        time.sleep(0.2)
    raise TimeoutError("another start has been setting up this database for minutes")


def let_go_of_database() -> None:
    """Close this thread's connection, and the pool behind it."""
    connections.close_all()
    for each in connections.all():
        close_pool = getattr(each, "close_pool", None)
        if close_pool is not None:
            close_pool()


def migrate(say: Say) -> None:
    """Bring the tables up to date, if they aren't."""
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        say("Making the tables of the database …")
        call_command("migrate", interactive=False, verbosity=0)


def collect_static_files(say: Say) -> None:
    """Collect, name by content and compress the static files, unless none has changed."""
    root = Path(settings.STATIC_ROOT)
    mark = settings.DATA_DIR / "static-files"
    fingerprint = _static_fingerprint()
    made = mark.read_text("ascii") if mark.exists() else ""
    if made == fingerprint and (root / "staticfiles.json").exists():
        return
    say("Collecting the static files …")
    call_command("collectstatic", interactive=False, verbosity=0)
    mark.write_text(fingerprint, "ascii")


def _static_fingerprint() -> str:
    """Changes when a static file does: from the names, sizes and times of all of them."""
    files = []
    for finder in get_finders():
        for name, storage in finder.list([]):
            status = os.stat(storage.path(name))
            files.append(f"{name} {status.st_size} {status.st_mtime_ns}")
    return hashlib.sha256("\n".join(sorted(files)).encode()).hexdigest()


def make_administrator(say: Say, password: str | None) -> None:
    """The account `admin`, when there is no superuser. A password that wasn't given is made and
    told."""
    users = get_user_model()._default_manager
    if users.filter(is_superuser=True).exists() or users.filter(username=ADMIN).exists():
        return
    made = password or secrets.token_urlsafe(15)
    with transaction.atomic():
        user = get_user_model()(username=ADMIN, is_staff=True, is_superuser=True)
        user.set_password(made)
        user.save()
        audit.record("administrator_created", actor="setup", target=ADMIN)
        shown = "as in NOUSWEB_ADMIN_PASSWORD" if password else f"{made}   (shown only now)"
        say(f"Administrator   {ADMIN}\nPassword        {shown}")


def make_first_token(say: Say, secret: str | None) -> str | None:
    """A token for the first runner, when there is none. Returns the secret of a valid token if
    it is known: the one made now, or the one given. ValueError for one that can't be a token."""
    if Token.objects.exclude(label=LOADER_TOKEN).exists():
        if secret and find_token(secret) is None:
            say("NOUSWEB_TOKEN is no token of this database and has no effect.")
            return None
        return secret
    with transaction.atomic():
        _, made = create_token(FIRST_TOKEN, SCOPES, secret)
        shown = "as in NOUSWEB_TOKEN" if secret else f"{made}   (shown only now)"
        say(f"Runner token    {shown}")
    return made


# -- the example ---------------------------------------------------------------------------


def example_is_due(wanted: bool) -> bool:
    """Whether the example has still to be loaded. Not `wanted` on the first start is for good."""
    if AuditRecord.objects.filter(action__in=["example_loaded", "example_declined"]).exists():
        return False
    if not wanted:
        audit.record("example_declined", actor="setup")
    return wanted


def example_loaded(url: str) -> None:
    """Write down that the example is there, so that no later start brings it back."""
    audit.record("example_loaded", actor="setup", target=url)


@contextmanager
def loader_token(known: str | None) -> Iterator[str]:
    """A secret to post the example with: the known one, else that of a token that is revoked
    when the block ends."""
    if known is not None:
        yield known
        return
    token, secret = create_token(LOADER_TOKEN, SCOPES)
    try:
        yield secret
    finally:
        revoke_token(token, actor="setup")


def revoke_loader_tokens() -> None:
    """Those that a start left behind which was interrupted."""
    for token in Token.objects.filter(label=LOADER_TOKEN, revoked_at=None):
        revoke_token(token, actor="setup")
