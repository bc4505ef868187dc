"""Transactions: the session row is locked, the items are stored, and only then is it said."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from ..core.strict_json import dumps, loads, visible
from ..database import write_lock
from ..models import Claim, Epoch, Refusal, Session, Token, Workspace
from ..statements import select_row
from .errors import IdempotencyMismatch, IngestError
from .items import Item
from .writer import Answer, Writer, status_of

logger = logging.getLogger("sessions.ingest")


@dataclass(frozen=True, slots=True)
class Stored:
    """The answers to the items of one session, in their order. `created` is False when
    everything was there already: a retry, or events that had come before."""

    answers: list[Answer]
    created: bool


@dataclass(frozen=True, slots=True)
class RequestKey:
    """An `Idempotency-Key` and the digest (32 bytes) of what it was sent with."""

    key: str
    digest: bytes


def store_items(
    workspace: Workspace, session_key: str, items: Sequence[Item],
    request_key: RequestKey | None = None,
) -> Stored:  # fmt: skip
    """Store the items in their order, all or none, and return their answers after the commit.

    The session is created if it is not there. Raises an IngestError that names the item;
    Locked, or the database's OperationalError, when the database stays locked.
    Costs what the items weigh, whatever the session holds.
    """
    work = list(items)
    with _writing(workspace, session_key, create=True) as (session, now, done):
        claimed = _claimed(session, request_key)
        if claimed is not None:
            return Stored(claimed, created=False)
        writer = Writer(session, now, work)
        done.writer = writer
        created = False
        answers = []
        for index, item in enumerate(work):
            answer, stored = writer.store(index, item)
            answers.append(answer)
            created = created or stored
        writer.finish()
        _claim(session, request_key, answers, now)
    _log_losses(session_key, writer)
    return Stored(answers, created)


def rewind_session(
    workspace: Workspace, session_key: str, to_seq: int, reason: str,
    request_key: RequestKey | None = None,
) -> Stored:  # fmt: skip
    """Begin a new epoch at `to_seq`. Sent again with nothing stored since, it is the same one.

    Raises BadRewind, and Session.DoesNotExist.
    """
    with _writing(workspace, session_key, create=False) as (session, now, done):
        claimed = _claimed(session, request_key)
        if claimed is not None:
            return Stored(claimed, created=False)
        began = _epoch_begun_here(session, to_seq)
        if began is not None:
            return Stored([_rewind_answer(session, began)], created=False)
        writer = Writer(session, now, [])
        done.writer = writer
        began = writer.rewind(0, to_seq, reason=reason)
        writer.finish()
        answers = [_rewind_answer(session, began)]
        _claim(session, request_key, answers, now)
    return Stored(answers, created=True)


def change_session(
    workspace: Workspace, session_key: str, *, agent_name: str | None = None,
    labels: dict[str, str] | None = None, usage: dict[str, int] | None = None,
    ended: bool = False,
) -> Session:  # fmt: skip
    """What a runner says of its session: only what is given changes; usage counters replace
    those of the same name. Raises Session.DoesNotExist."""
    with _writing(workspace, session_key, create=False) as (session, now, _):
        if agent_name is not None:
            session.agent_name = agent_name
        if labels is not None:
            session.labels = dumps(labels)
        if usage is not None:
            merged = {**loads(session.usage), **usage}
            session.usage = dumps(merged)
            session.total_tokens = _total_tokens(merged)
        if ended and session.ended_at is None:
            session.ended_at = now
        session.status = status_of(session)
        session.last_activity_at = now
        session.save(
            update_fields=[
                "agent_name", "labels", "usage", "total_tokens", "ended_at", "status",
                "last_activity_at",
            ]
        )  # fmt: skip
    return session


def record_refusal(
    workspace: Workspace, token: Token | None, session_key: str, problem: dict[str, Any], body: str
) -> None:
    """Keep an update that the reducer refused, and count it on its session if there is one."""
    with write_lock(session_key), transaction.atomic():
        Session.objects.filter(workspace=workspace, key=session_key).update(
            refusals=F("refusals") + 1
        )
        Refusal.objects.create(
            workspace=workspace, session_key=session_key, token=token, problem=dumps(problem),
            body=body, at=timezone.now(),
        )  # fmt: skip


# -- the transaction -----------------------------------------------------------------------


class _Done:
    """Holds the writer whose head is to be kept after the commit, or given up."""

    writer: Writer | None = None


@contextmanager
def _writing(
    workspace: Workspace, key: str, *, create: bool
) -> Iterator[tuple[Session, datetime, _Done]]:
    done = _Done()
    with write_lock(f"{workspace.pk}/{key}"):
        try:
            with transaction.atomic():
                yield _locked_session(workspace, key, create=create), timezone.now(), done
        except BaseException as error:
            if done.writer is not None:
                done.writer.abandon(clean=isinstance(error, IngestError))
            raise
        if done.writer is not None:
            done.writer.keep()


def _locked_session(workspace: Workspace, key: str, *, create: bool) -> Session:
    session = _select_for_update(workspace, key)
    if session is None and create:
        now = timezone.now()
        fresh = Session(workspace=workspace, key=key, started_at=now, last_activity_at=now)
        # another process may create it first: then its row is locked below
        Session.objects.bulk_create([fresh], ignore_conflicts=True)
        session = _select_for_update(workspace, key)
    if session is None:
        raise Session.DoesNotExist(f"There is no session {key!r}.")
    return session


def _select_for_update(workspace: Workspace, key: str) -> Session | None:
    return select_row(Session, "workspace_id = %s AND key = %s", [workspace.pk, key], lock=True)


# -- idempotency of whole requests ---------------------------------------------------------


def _claimed(session: Session, request_key: RequestKey | None) -> list[Answer] | None:
    if request_key is None:
        return None
    claim = Claim.objects.filter(session=session, key=request_key.key).first()
    if claim is None:
        return None
    if bytes(claim.digest) != request_key.digest:
        raise IdempotencyMismatch(
            0, "Idempotency-Key", "This Idempotency-Key was used with another request."
        )
    answers: list[Answer] = loads(claim.answer)
    return answers


def _claim(
    session: Session, request_key: RequestKey | None, answers: list[Answer], now: datetime
) -> None:
    if request_key is not None:
        Claim.objects.create(
            session=session, key=request_key.key, digest=request_key.digest,
            answer=dumps(answers), at=now,
        )  # fmt: skip


# -- small things --------------------------------------------------------------------------


def _epoch_begun_here(session: Session, to_seq: int) -> Epoch | None:
    """The current epoch, if it began at `to_seq` and nothing was stored since."""
    began = Epoch.objects.filter(session=session, number=session.epoch).first()
    if began is None or began.to_seq != to_seq or began.first_ordinal != session.next_ordinal:
        return None
    return began


def _rewind_answer(session: Session, began: Epoch) -> Answer:
    return {
        "epoch": began.number,
        "to_seq": began.to_seq,
        "next_seq": session.next_seq,
        "version": session.version,
        "deps_version": began.deps_version,
        "abandoned": session.abandoned,
    }


def _total_tokens(usage: dict[str, int]) -> int:
    given = usage.get("total_tokens")
    if given is not None:
        return given
    return usage.get("input_tokens", 0) + usage.get("output_tokens", 0)


def _log_losses(session_key: str, writer: Writer) -> None:
    """An event that reached us and no log is said aloud, as upstream says it."""
    for version, lost in writer.losses:
        by_disposition: dict[str, list[str]] = {}
        for event_type, disposition in lost:
            by_disposition.setdefault(disposition, []).append(dumps(visible(event_type)[:80]))
        for disposition, types in by_disposition.items():
            logger.warning(
                "session %s update %d: %d event%s %s: %s", session_key, version, len(types),
                "" if len(types) == 1 else "s", disposition, ", ".join(types[:50]),
            )  # fmt: skip
