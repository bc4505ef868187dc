"""The state layer: deps at a version, checkpoints, and the head cache.

Updates are the truth. Deps at a version are the nearest checkpoint before it and the fold of
the updates after that. While a process writes to a session it keeps the head deps, so that the
cost of an update grows neither with the deps nor with the session.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from django.conf import settings

from .core import strict_json
from .core.reducer import Deps, Path, apply_operations, parse_operations
from .models import Checkpoint, Session, Update

LEAST_CHECKPOINT_BYTES = 32 * 1024


class UnknownVersion(LookupError):
    """The session has no such version. `head` is the newest one."""

    def __init__(self, version: int, head: int) -> None:
        super().__init__(f"There is no version {version}; versions go from 0 to {head}.")
        self.version, self.head = version, head


@dataclass(frozen=True, slots=True)
class DepsAt:
    """Deps after update `version`, seen from `epoch`."""

    version: int
    epoch: int
    deps: Deps


def deps_at(session: Session, version: int | None = None) -> DepsAt:
    """The deps after update `version`; without it the deps now.

    The two differ when the runner has gone back: then the newest version still says what that
    update left, though it is abandoned. Version 0 is the empty start.
    Raises UnknownVersion. Costs about twice what reading the state once does.
    """
    if version is None:
        return DepsAt(
            session.version, session.epoch, _fold(session, session.version, session.epoch)
        )
    if not 0 <= version <= session.version:
        raise UnknownVersion(version, session.version)
    if version == 0:
        return DepsAt(0, 0, {})
    epoch = Update.objects.values_list("epoch", flat=True).get(session=session, version=version)
    return DepsAt(version, epoch, _fold(session, version, epoch))


def deps_in_epoch(session: Session, version: int, epoch: int) -> Deps:
    """The deps that a rewind goes back to: after `version`, as `epoch` sees it."""
    return _fold(session, version, epoch)


def _fold(session: Session, version: int, epoch: int) -> Deps:
    checkpoint = (
        Checkpoint.objects.filter(session=session, version__lte=version, epoch__lte=epoch)
        .order_by("-version", "-epoch")
        .first()
    )
    if checkpoint is None:
        return _catch_up(session, {}, 0, version)
    deps: Deps = strict_json.loads(checkpoint.deps)
    return _catch_up(session, deps, checkpoint.version, version)


def _catch_up(session: Session, deps: Deps, after: int, upto: int) -> Deps:
    """Fold the updates with `after` < version ≤ `upto` into `deps`, in place."""
    if after == upto:
        return deps
    rows = (
        Update.objects.filter(session=session, version__gt=after, version__lte=upto)
        .order_by("version")
        .values_list("path", "operations")
    )
    for path, operations in rows.iterator(chunk_size=500):
        apply_operations(
            parse_operations(strict_json.loads(operations)), deps, Path(path), explain=False
        )
    return deps


# -- checkpoints ---------------------------------------------------------------------------


def write_checkpoint(session: Session, deps: Deps) -> None:
    """Keep the deps at the session's version and epoch; restarts the count of bytes."""
    text = strict_json.dumps_compact(deps)
    Checkpoint.objects.create(
        session=session, version=session.version, epoch=session.epoch, deps=text
    )
    session.checkpoint_bytes = len(text.encode())
    session.bytes_since_checkpoint = 0


def checkpoint_due(session: Session) -> bool:
    """Whether the operations since the last checkpoint weigh more than it does. So all
    checkpoints together stay in proportion to what was received."""
    least = max(session.checkpoint_bytes, LEAST_CHECKPOINT_BYTES)
    return session.bytes_since_checkpoint > least


# -- the head cache ------------------------------------------------------------------------


@dataclass(slots=True)
class Head:
    """The deps of a session at its newest version. Whoever has taken it may change it."""

    version: int
    epoch: int
    deps: Deps
    weight: int = 0


class HeadCache:
    """Heads of the sessions that this process writes to, within a number of bytes.

    A head is taken out while it is in use, and given back after the commit.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most, self._bytes = most_bytes, 0
        self._heads: OrderedDict[int, Head] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, session: Session) -> Head:
        """The head at the session's version: kept, caught up with what another process
        wrote, or built. The session must be locked."""
        with self._lock:
            head = self._heads.pop(session.pk, None)
            if head is not None:
                self._bytes -= head.weight
        if head is None or head.epoch != session.epoch or head.version > session.version:
            deps = _fold(session, session.version, session.epoch)
        else:
            deps = _catch_up(session, head.deps, head.version, session.version)
        return Head(session.version, session.epoch, deps)

    def give_back(self, session_id: int, head: Head, weight: int) -> None:
        """Keep the head; the least recently used ones go when there are too many bytes."""
        head.weight = weight + 1024
        with self._lock:
            old = self._heads.pop(session_id, None)
            if old is not None:
                self._bytes -= old.weight
            self._heads[session_id] = head
            self._bytes += head.weight
            while self._bytes > self._most and len(self._heads) > 1:
                _, gone = self._heads.popitem(last=False)
                self._bytes -= gone.weight

    def drop(self) -> None:
        """Forget everything (tests, and after a fork of the process)."""
        with self._lock:
            self._heads.clear()
            self._bytes = 0


heads = HeadCache(settings.HEAD_CACHE_BYTES)
