"""What posting costs, beside a yardstick: `python -m tests.benchmarks`.

It prints two tables.

**Posts through the server.** Updates posted one a request, and in batches of 100, by 1, 4 and
16 clients at once, each into a session of its own. Beside them stands a bare endpoint (`bare/`):
Django and ninja in the same server with the same database settings, which validates the same
request and inserts one row. All servers run at once and are measured in turn, several rounds
each; the table has the median of the rounds (with the slowest and the fastest) and the 99th
percentile over all of them. One client process drives raw sockets; `client busy` is the share
of the time it computed, and well below 100 % means that it was not the bottleneck.

**The cost of one update.** The median time of a session's updates around the 10th, the 1,000th
and the 100,000th, with deps of 1 KB, 1 MB and 10 MB, measured in turn inside one process. Our
rule is that the cost of an update grows with neither: the last over the first is at most 1.5,
and the command fails when it isn't. `amortised` is the mean over all updates, posted in batches
of 500: it holds what medians hide, above all checkpoints.

Everything happens in temporary folders, and takes three minutes. `--quick` takes half a minute
and goes to the 5,000th update only. `--database postgresql` starts a throwaway PostgreSQL, which
doesn't sync to the disk; for numbers that mean something give the URL of a real one, with an
empty database.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tests.benchmarks import client, servers
from tests.benchmarks.client import Measured, Request
from tests.benchmarks.tables import milliseconds, percentile, spread, table

CONCURRENCY = (1, 4, 16)
BATCH = 100
MOST_RATIO = 1.5
KB, MB = 1024, 1024 * 1024


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--quick", action="store_true", help="short rounds, fewer updates")
    parser.add_argument("--database", default="sqlite", metavar="sqlite|postgresql|URL")
    parser.add_argument("--rounds", type=int, help="rounds of each cell (3; quick: 1)")
    parser.add_argument("--seconds", type=float, help="of a round (2.5; quick: 1)")
    parser.add_argument("--workers", type=int, default=1, help="processes of each server")
    parser.add_argument("--threads", type=int, default=1, help="threads of each process")
    parser.add_argument("--only", choices=("posts", "flat"), help="one of the two tables")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 3)
    options.seconds = options.seconds or (1.0 if options.quick else 2.5)
    flat = True
    with database(options.database) as (name, url):
        cores = os.cpu_count()
        print(f"{name}; Python {platform.python_version()}, {cores} cores", flush=True)
        if options.only != "flat":
            posts(url, options)
        if options.only != "posts":
            flat = updates(url, quick=options.quick)
    return 0 if flat else 1


@contextlib.contextmanager
def database(wanted: str) -> Iterator[tuple[str, str | None]]:
    """The database's name for people, and its URL (None: SQLite in the data folder)."""
    if wanted == "sqlite":
        yield "SQLite (WAL, synchronous FULL)", None
    elif wanted == "postgresql":
        from tests.postgres import server

        with server() as url:
            yield "PostgreSQL (throwaway, not synced to the disk)", url
    else:
        yield "PostgreSQL", wanted


# -- posts through the server --------------------------------------------------------------


def posts(url: str | None, options: argparse.Namespace) -> None:
    """Measure and print the first table."""
    found: dict[tuple[str, int], list[Measured]] = defaultdict(list)
    with (
        servers.bare(url, options.workers, options.threads) as bare,
        servers.nousweb(url, options.workers, options.threads) as nousweb,
    ):
        cells = (("bare", bare.port), ("single", nousweb.port), ("batch", nousweb.port))
        for kind, port in cells:
            client.run(port, 4, min(options.seconds, 1.0), requests(kind, "warm-up"))
        for number in range(options.rounds):
            for connections in CONCURRENCY:
                for kind, port in cells:
                    request = requests(kind, f"{connections}-{number}")
                    measured = client.run(port, connections, options.seconds, request)
                    if measured.failed:
                        raise SystemExit(f"{kind}: answers other than 201: {measured.failed}")
                    found[kind, connections].append(measured)
    title = (
        f"\nPosts through the server: {options.workers} process × {options.threads} thread, "
        f"{options.rounds} rounds of {options.seconds:g} s, in turn"
    )
    heads = ("clients", *(str(connections) for connections in CONCURRENCY))
    print(table(title, heads, _post_rows(found)), flush=True)


def _post_rows(found: dict[tuple[str, int], list[Measured]]) -> list[tuple[str, ...]]:
    def rates(kind: str, connections: int, factor: int = 1) -> list[float]:
        return [measured.rate * factor for measured in found[kind, connections]]

    def row(name: str, kind: str, factor: int = 1) -> tuple[str, ...]:
        return (name, *(spread(rates(kind, count, factor)) for count in CONCURRENCY))

    def late(name: str, kind: str) -> tuple[str, ...]:
        all_of = [[x for one in found[kind, count] for x in one.latencies] for count in CONCURRENCY]
        return (name, *(milliseconds(percentile(values, 0.99)) for values in all_of))

    def share(name: str, kind: str, factor: int = 1) -> tuple[str, ...]:
        return (
            name,
            *(
                f"{median(rates(kind, count, factor)) / median(rates('bare', count)):.2f}"
                for count in CONCURRENCY
            ),
        )

    busy = [max(one.busy for kind in KINDS for one in found[kind, c]) for c in CONCURRENCY]
    return [
        row("bare endpoint, rows/s", "bare"),
        row("single updates/s", "single"),
        share("  × bare", "single"),
        row(f"in batches of {BATCH}, updates/s", "batch", BATCH),
        share("  × bare", "batch", BATCH),
        late("p99 ms, bare", "bare"),
        late("p99 ms, single", "single"),
        late(f"p99 ms, a batch of {BATCH}", "batch"),
        ("client busy, at most", *(f"{share:.0%}" for share in busy)),
    ]


KINDS = ("bare", "single", "batch")


def requests(kind: str, run: str) -> Request:
    """Requests of a kind, each new: ids and values differ, and every client has a session."""

    def single(connection: int, number: int) -> bytes:
        body = json.dumps(update(f"{run}-{connection}-{number}", number)).encode()
        path = f"/api/v1/sessions/bench-{run}-{connection}/updates"
        return client.http_request(path, body, servers.TOKEN)

    def batch(connection: int, number: int) -> bytes:
        key = f"bench-batch-{run}-{connection}"
        items = [
            {"session": key, **update(f"{run}-{connection}-{number}-{item}", number * BATCH + item)}
            for item in range(BATCH)
        ]
        return client.http_request("/api/v1/ingest", json.dumps(items).encode(), servers.TOKEN)

    return batch if kind == "batch" else single


def update(name: str, number: int) -> dict[str, object]:
    """An update as a bridge posts it: about 300 bytes, three operations."""
    return {
        "id": f"call_{name}",
        "path": "context",
        "operations": [
            ["set", "status", "reading"],
            ["merge", "progress", {"files": {f"lib/file_{number % 40}.ex": {"lines": number}}}],
            ["append", "notes", f"nothing unusual in file {number}"],
        ],
        "tool_call": {"id": f"call_{name}", "name": "read_file"},
        "occurred_at": "2026-03-01T09:00:00.000Z",
    }


# -- the cost of one update ----------------------------------------------------------------


def updates(url: str | None, *, quick: bool) -> bool:
    """Measure and print the second table; whether the cost stayed flat."""
    last = 5_000 if quick else 100_000
    wanted = {"sizes": [KB, MB, 10 * MB], "last": last, "rounds": 50}
    rows, flat = [], True
    with tempfile.TemporaryDirectory(prefix="nousweb-flat-") as folder:
        env = servers.environment("nousweb.settings", Path(folder), url)
        migrate = [sys.executable, "-m", "django", "migrate", "--verbosity=0"]
        subprocess.run(migrate, env=env, cwd=servers.ROOT, check=True)
        command = [sys.executable, "-m", "tests.benchmarks.flat", json.dumps(wanted)]
        run = subprocess.run(
            command, env=env, cwd=servers.ROOT, check=True, stdout=subprocess.PIPE, text=True
        )
    for line in run.stdout.splitlines():
        found = json.loads(line)
        ratio = found["last"] / found["first"]
        flat = flat and ratio <= MOST_RATIO
        size = f"{found['size'] // MB} MB" if found["size"] >= MB else f"{found['size'] // KB} KB"
        times = [milliseconds(found[name]) for name in ("first", "middle", "last")]
        rows.append((size, *times, f"{ratio:.2f}", milliseconds(found["amortised"])))
    heads = ("deps", "10th", "1,000th", f"{last:,}th", "last / first", "amortised")
    title = "\nThe cost of one update of a session, in milliseconds"
    print(table(title, heads, rows), flush=True)
    print(f"last / first is to be at most {MOST_RATIO}: {'it is' if flat else 'IT IS NOT'}")
    return flat


if __name__ == "__main__":
    sys.exit(main())
