"""What one update costs late in the life of a session: `python -m tests.benchmarks.flat`.

Works in this process, on `sessions.ingest` itself, so that no time of HTTP hides a growing cost.
Reads a JSON object (sizes, last, rounds) from its first argument, and writes a line of JSON for
each size of deps. Environment as for any command of the project.
"""

from __future__ import annotations

import json
import sys
import time
from statistics import median
from typing import TYPE_CHECKING, Any

import django

if TYPE_CHECKING:
    from sessions.models import Workspace

FIRST, MIDDLE = 10, 1_000
YOUNG_SESSIONS = 5
BATCH = 500


class Growing:
    """A session whose deps have a given size from its first update on, and keep it."""

    def __init__(self, workspace: Workspace, key: str, size: int) -> None:
        self.workspace, self.key = workspace, key
        self.files = max(size // 1024, 1)
        self.version = 0
        text = "x" * 1000
        files = {f"file_{number}": {"read": 0, "text": text} for number in range(self.files)}
        self._store([[["set", "files", files]]])

    def upto(self, version: int) -> None:
        """Post updates in batches until the session has so many."""
        while self.version < version:
            count = min(BATCH, version - self.version)
            self._store([self._operations(self.version + n) for n in range(count)])

    def one(self) -> float:
        """Post one update; how long it took, its commit included."""
        return self._store([self._operations(self.version)])

    def _operations(self, number: int) -> list[Any]:
        """Two small ones: a value replaced, and a merge deep inside the large map."""
        touched = {f"file_{number % self.files}": {"read": number}}
        return [["set", "cursor", number], ["merge", "files", touched]]

    def _store(self, updates: list[list[Any]]) -> float:
        from sessions.core.reducer import parse_operations
        from sessions.ingest import UpdateItem, store_items

        items = []
        for operations in updates:
            text = json.dumps(operations, separators=(",", ":"))
            items.append(
                UpdateItem(
                    operations=parse_operations(json.loads(text)), operations_text=text,
                    data_texts={}, text=text,
                )
            )  # fmt: skip
        start = time.perf_counter()
        store_items(self.workspace, self.key, items)
        took = time.perf_counter() - start
        self.version += len(updates)
        return took


def measure(workspace: Workspace, size: int, last: int, rounds: int) -> dict[str, Any]:
    """Median seconds of the updates around the `FIRST`, the `MIDDLE` and the `last` one.

    The three are measured in turn, one update of each after the other, so that a disk or a
    neighbour that gets slower makes all three slower. There are several young sessions, since
    each is around its tenth update only for a while.
    """
    half = rounds // 2
    old = Growing(workspace, f"old-{size}", size)
    start = time.perf_counter()
    old.upto(last - half)
    growing = time.perf_counter() - start
    middle = Growing(workspace, f"middle-{size}", size)
    middle.upto(MIDDLE - half)
    each = -(-rounds // YOUNG_SESSIONS)
    young = []
    for number in range(YOUNG_SESSIONS):
        session = Growing(workspace, f"young-{size}-{number}", size)
        session.upto(max(FIRST - each // 2, 1))
        young.append(session)
    times: dict[str, list[float]] = {"first": [], "middle": [], "last": []}
    for number in range(rounds):
        times["first"].append(young[number // each].one())
        times["middle"].append(middle.one())
        times["last"].append(old.one())
    return {
        "size": size,
        **{name: median(values) for name, values in times.items()},
        "amortised": growing / (last - half),
        "version": old.version,
    }


def main() -> None:
    django.setup()
    from sessions.workspaces import default_workspace

    options = json.loads(sys.argv[1])
    workspace = default_workspace()
    measure(workspace, 2048, MIDDLE * 2, options["rounds"])  # everything once, to warm up
    for size in options["sizes"]:
        print(json.dumps(measure(workspace, size, options["last"], options["rounds"])), flush=True)


if __name__ == "__main__":
    main()
