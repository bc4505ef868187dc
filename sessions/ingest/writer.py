"""One transaction on one locked session: items in, rows and answers out."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import Max

from ..core.chain import Part, link
from ..core.events import KNOWN_TYPES, Disposition, fault_of
from ..core.reducer import (
    JudgedEvent,
    OperationRefused,
    Path,
    Undo,
    apply_operations,
    judge_events,
    same_json,
    take_back,
)
from ..core.strict_json import dumps, loads, visible
from ..deps import Head, checkpoint_due, deps_in_epoch, heads, write_checkpoint
from ..models import (
    COUNTER_FIELDS,
    Epoch,
    Event,
    Session,
    SessionStatus,
    Step,
    Turn,
    Update,
)
from ..statements import answers_by_id, insert_rows, update_row
from .errors import (
    BadRewind,
    EventRefused,
    IdempotencyMismatch,
    SequenceConflict,
    SequenceGap,
    UpdateRefused,
    VersionConflict,
)
from .items import EventItem, Item, UpdateItem
from .places import Places

Answer = dict[str, Any]
_SESSION_FIELDS = (
    *COUNTER_FIELDS, "status", "last_activity_at", "ended_at", "version", "next_seq",
    "next_ordinal", "epoch", "steps", "abandoned", "head_digest", "turns", "open_turn",
    "open_step", "lead_turn", "last_turn_reason", "checkpoint_bytes", "bytes_since_checkpoint",
)  # fmt: skip
_CHAIN_KEY = hashlib.sha256(b"nousweb chain " + settings.SECRET_KEY.encode()).digest()


class Writer:
    """Stores items one after the other. Nothing is final before `finish`, and the caller's
    commit; `abandon` puts the head deps back when either does not happen."""

    def __init__(self, session: Session, now: datetime, items: list[Item]) -> None:
        self.session, self.now = session, now
        self.losses: list[tuple[int, list[tuple[str, str]]]] = []
        self._places = Places(session)
        self._updates: list[Update] = []
        self._events: list[Event] = []
        self._logged: dict[int, Event] = {}
        self._head: Head | None = None
        self._taken_at: int | None = None
        self._undos: list[Undo] = []
        self._held = self._load_held(items)
        self._known = self._load_known(items)

    # -- one item --------------------------------------------------------------------------

    def store(self, index: int, item: Item) -> tuple[Answer, bool]:
        """Store an item. Returns its answer, and whether it was stored now (False: it, or
        each of its events, was there already). Raises an IngestError."""
        if item.client_id is not None:
            known = self._known.get(item.client_id)
            if known is not None:
                digest, answer = known
                if digest != item.digest:
                    raise IdempotencyMismatch(
                        index, "id", f"The id {item.client_id!r} was used with another body."
                    )
                return loads(answer), False
        if isinstance(item, UpdateItem):
            return self._store_update(index, item), True
        return self._store_event(index, item)

    def _store_update(self, index: int, item: UpdateItem) -> Answer:
        session = self.session
        if item.expected_version is not None and item.expected_version != session.version:
            raise VersionConflict(index, item.expected_version, session.version)
        judged = judge_events(item.operations, item.path)
        loggable = [event for event in judged if event.disposition is Disposition.LOGGED]
        repeats = self._repeats(index, item, loggable)
        head = self._take_head()
        try:
            applied = apply_operations(item.operations, head.deps, item.path)
        except OperationRefused as refused:
            raise UpdateRefused(index, refused) from refused
        self._undos.append(applied.undo)
        session.version += 1
        head.version = session.version
        session.bytes_since_checkpoint += len(item.operations_text)
        ordinal = self._next_ordinal()
        step = self._places.here(ordinal)
        update = Update(
            version=session.version, path=item.path.value, operations=item.operations_text,
            keys=dumps(applied.keys), differs=dumps(applied.differs),
            context_refusal=applied.context_refuses.message if applied.context_refuses else "",
            tool_call_id=item.tool_call_id, tool_name=item.tool_name,
            occurred_at=item.occurred_at, **self._shared(ordinal, step, item),
        )  # fmt: skip
        self._updates.append(update)
        self._places.touch(step, ordinal, {"updates": 1})
        events = [
            self._store_judged(event, item, update, repeats.get(event.index)) for event in judged
        ]
        seqs = [event["seq"] for event in events if "seq" in event]
        if seqs:
            update.first_seq, update.last_seq = min(seqs), max(seqs)
        update.log_events = dumps(events)
        answer: Answer = {
            "version": session.version,
            "ordinal": ordinal,
            "epoch": session.epoch,
            "keys": applied.keys,
            "events": events,
        }
        if item.path is Path.RUNNER:
            answer["differs"] = applied.differs
            if applied.context_refuses is not None:
                answer["context_refuses"] = applied.context_refuses.message
        self._claim(update, item, answer)
        lost = [(e["type"], e["disposition"]) for e in events if e["disposition"] != "logged"]
        if lost:
            self.losses.append((session.version, lost))
        # After its events: what became of them is part of the link.
        self._seal_update(update)
        return answer

    def _repeats(
        self, index: int, item: UpdateItem, loggable: list[JudgedEvent]
    ) -> dict[int, Event]:
        """The events of an update that the log holds already, by the operation's index."""
        if item.first_seq is None or item.path is Path.RUN_CONTEXT:
            return {}
        if item.first_seq > self.session.next_seq:
            raise SequenceGap(index, "first_seq", item.first_seq, self.session.next_seq)
        repeats = {}
        for seq, event in enumerate(loggable, item.first_seq):
            if seq >= self.session.next_seq:
                break
            held = self._held_at(seq)
            if not _same_event(held, event.type, event.data):
                field = f"operations/{event.index}"
                raise SequenceConflict(index, field, seq, self.session.next_seq, visible(held.type))
            repeats[event.index] = held
        return repeats

    def _store_judged(
        self, event: JudgedEvent, item: UpdateItem, update: Update, held: Event | None
    ) -> Answer:
        answer: Answer = {"type": event.type, "disposition": event.disposition.value}
        if held is not None:
            return {**answer, "seq": held.seq, "ordinal": held.ordinal, "duplicate": True}
        row = self._add_event(
            event.type, event.data, item.data_texts[event.index], item.occurred_at,
            disposition=event.disposition, reason=event.reason.value if event.reason else "",
            update=update, operation_index=event.index,
        )  # fmt: skip
        if row.seq is not None:
            answer["seq"] = row.seq
        else:
            answer["reason"] = row.reason
        return {**answer, "ordinal": row.ordinal}

    def _store_event(self, index: int, item: EventItem) -> tuple[Answer, bool]:
        session = self.session
        self._check_event(index, item)
        if item.seq is not None and item.seq > session.next_seq:
            raise SequenceGap(index, "seq", item.seq, session.next_seq)
        if item.seq is not None and item.seq < session.next_seq:
            held = self._held_at(item.seq)
            if not item.rewind or self._began_epoch(held, item):
                if not _same_event(held, item.type, item.data):
                    raise SequenceConflict(
                        index, "seq", item.seq, session.next_seq, visible(held.type)
                    )
                return _event_answer(held, duplicate=True), False
            self.rewind(index, item.seq, reason="", by_event=True)
        row = self._add_event(
            item.type, item.data, item.data_text, item.time,
            disposition=Disposition.LOGGED, reason="", item=item,
        )  # fmt: skip
        answer = _event_answer(row)
        self._claim(row, item, answer)
        return answer, True

    def _check_event(self, index: int, item: EventItem) -> None:
        if item.type not in KNOWN_TYPES:
            if item.seq is None:
                raise EventRefused(
                    index, "type", "unknown_event_type",
                    f'"{visible(item.type)[:80]}" is no known event type. With the seq that it '
                    "has in the runner's log it is kept as it is.",
                )  # fmt: skip
            return
        fault = fault_of(item.type, item.data)
        if fault is not None:
            raise EventRefused(
                index, "data/surface_op", fault.value,
                "No log takes this surface_op: only an event that the model sees may carry one, "
                'and it is "append" or ["replace", start, stop] with 0 ≤ start ≤ stop.',
            )  # fmt: skip

    def _began_epoch(self, held: Event, item: EventItem) -> bool:
        """Whether this is the very event whose `rewind` began the current epoch, sent again."""
        if held.epoch != self.session.epoch or held.epoch == 0:
            return False
        began = Epoch.objects.get(session=self.session, number=held.epoch)
        return (
            began.by_event
            and began.to_seq == item.seq
            and held.time == item.time
            and _same_event(held, item.type, item.data)
        )

    # -- rewind ----------------------------------------------------------------------------

    def rewind(self, index: int, to_seq: int, *, reason: str, by_event: bool = False) -> Epoch:
        """Go back to when the log had `to_seq` events: a new epoch begins.

        Everything after the last event kept is abandoned; an update that brought one of the
        events kept stays. Raises BadRewind when the log was never that long.
        """
        session = self.session
        if to_seq > session.next_seq:
            raise BadRewind(
                index, "to_seq", f"The log has {session.next_seq} events: it can't go back to "
                f"{to_seq}.", expected_seq=session.next_seq,
            )  # fmt: skip
        kept = self._held_at(to_seq - 1) if to_seq else None
        beyond = self._held_at(to_seq).ordinal if to_seq < session.next_seq else None
        self._flush()
        self._drop_head()
        cut = self._cut(kept, to_seq, beyond)
        version = self._version_before(cut)
        began = Epoch.objects.create(
            session=session, number=session.epoch + 1, to_seq=to_seq, cut=cut,
            first_ordinal=session.next_ordinal, version=session.version, deps_version=version,
            abandoned=self._abandoned_before(cut) + session.next_ordinal - cut,
            by_event=by_event, reason=reason, at=self.now,
        )  # fmt: skip
        for model in (Turn, Step):
            rows = model.objects.filter(session=session, last_ordinal__gte=cut)
            rows.filter(abandoned_from=None).update(abandoned_from=cut)
            rows.filter(abandoned_from__gt=cut).update(abandoned_from=cut)
        deps = deps_in_epoch(session, version, kept.epoch if kept else 0)
        session.epoch = began.number
        session.abandoned = began.abandoned
        session.next_seq = to_seq
        session.last_turn_reason = ""
        self._logged = {seq: event for seq, event in self._logged.items() if seq < to_seq}
        self._places.go_back(
            kept.turns_after if kept else 0,
            kept.open_turn_after if kept else None,
            kept.open_step_after if kept else None,
        )
        write_checkpoint(session, deps)
        self._seal_rewind(began)
        self._head = Head(session.version, session.epoch, deps)
        return began

    def _cut(self, kept: Event | None, to_seq: int, beyond: int | None) -> int:
        """The first ordinal that is abandoned."""
        if kept is None:
            return 1
        # an update may arrive after the broadcast of its own event
        late = Update.objects.filter(
            session=self.session, ordinal__gt=kept.ordinal, first_seq__lt=to_seq
        )
        if beyond is not None:
            late = late.filter(ordinal__lt=beyond)
        return max(late.aggregate(last=Max("ordinal"))["last"] or 0, kept.ordinal) + 1

    def _version_before(self, cut: int) -> int:
        update = (
            Update.objects.filter(session=self.session, ordinal__lt=cut)
            .order_by("-ordinal")
            .values_list("version", flat=True)
            .first()
        )
        return update or 0

    def _abandoned_before(self, cut: int) -> int:
        epoch = (
            Epoch.objects.filter(session=self.session, first_ordinal__lte=cut)
            .order_by("-number")
            .values_list("abandoned", flat=True)
            .first()
        )
        return epoch or 0

    # -- rows ------------------------------------------------------------------------------

    def _add_event(
        self, event_type: str, data: dict[str, Any], data_text: str, time: str | None, *,
        disposition: Disposition, reason: str, update: Update | None = None,
        operation_index: int | None = None, item: EventItem | None = None,
    ) -> Event:  # fmt: skip
        session = self.session
        ordinal = self._next_ordinal()
        logged = disposition is Disposition.LOGGED
        if logged:
            step = self._places.enter(event_type, data, ordinal, time)
            if event_type == "turn_start":
                session.ended_at = None
        else:
            step = self._places.here(ordinal)
        event = Event(
            seq=session.next_seq if logged else None, type=event_type, data=data_text, time=time,
            disposition=disposition.value, reason=reason, update=update,
            operation_index=operation_index, turns_after=session.turns,
            open_turn_after=session.open_turn_id, open_step_after=session.open_step_id,
            **self._shared(ordinal, step, item),
        )  # fmt: skip
        if logged:
            self._logged[session.next_seq] = event
            session.next_seq += 1
        self._seal_event(event)
        self._events.append(event)
        self._places.touch(step, ordinal, _counts(event, data))
        return event

    def _shared(self, ordinal: int, step: Step, item: Item | None) -> dict[str, Any]:
        return {
            "session": self.session,
            "ordinal": ordinal,
            "epoch": self.session.epoch,
            "step": step,
            "turn_number": self._places.turn_of(step).number,
            "step_number": step.number,
            "received_at": self.now,
            "client_id": item.client_id if item else None,
            "client_digest": item.digest if item else None,
        }

    def _next_ordinal(self) -> int:
        ordinal = self.session.next_ordinal
        self.session.next_ordinal += 1
        return ordinal

    def _claim(self, row: Update | Event, item: Item, answer: Answer) -> None:
        if item.client_id is not None:
            row.answer = dumps(answer)
            self._known[item.client_id] = (item.digest, row.answer)

    # -- the hash chain --------------------------------------------------------------------

    def _seal(self, *parts: Part) -> bytes:
        digest = link(_CHAIN_KEY, bytes(self.session.head_digest), parts)
        self.session.head_digest = digest
        return digest

    def _seal_update(self, update: Update) -> None:
        update.digest = self._seal(
            "update", update.ordinal, update.epoch, update.version, update.path,
            update.operations, update.occurred_at, update.tool_call_id, update.tool_name,
            update.log_events,
        )  # fmt: skip

    def _seal_event(self, event: Event) -> None:
        event.digest = self._seal(
            "event", event.ordinal, event.epoch, event.seq, event.type, event.data, event.time,
            event.disposition, event.reason,
        )  # fmt: skip

    def _seal_rewind(self, epoch: Epoch) -> None:
        self._seal("rewind", epoch.number, epoch.to_seq, epoch.cut, epoch.reason)

    # -- what is there already -------------------------------------------------------------

    def _held_at(self, seq: int) -> Event:
        """The event that the live log holds at `seq` (less than `next_seq`).

        Of several epochs' events with one seq the newest is the live one: had it been
        abandoned, the log would end before it.
        """
        event = self._logged.get(seq) or self._held.get(seq)
        if event is None:
            event = Event.objects.filter(session=self.session, seq=seq).order_by("-epoch")[0]
            self._held[seq] = event
        return event

    def _load_held(self, items: list[Item]) -> dict[int, Event]:
        """The events held at the seqs that the items name, in one query a thousand."""
        end = self.session.next_seq
        wanted: set[int] = set()
        for item in items:
            if isinstance(item, EventItem):
                if item.seq is not None:
                    wanted.add(item.seq)
            elif item.first_seq is not None:
                events = sum(operation.name == "log_event" for operation in item.operations)
                wanted.update(range(item.first_seq, item.first_seq + events))
        seqs = sorted(seq for seq in wanted if seq < end)
        held: dict[int, Event] = {}
        for start in range(0, len(seqs), 1000):
            rows = Event.objects.filter(session=self.session, seq__in=seqs[start : start + 1000])
            for event in rows.order_by("epoch"):
                held[event.seq or 0] = event
        return held

    def _load_known(self, items: list[Item]) -> dict[str, tuple[bytes | None, str]]:
        """The answers given to items with the same ids."""
        ids = [item.client_id for item in items if item.client_id is not None]
        known: dict[str, tuple[bytes | None, str]] = {}
        for start in range(0, len(ids), 500):
            for name, digest, answer in answers_by_id(self.session.pk, ids[start : start + 500]):
                known[name] = (bytes(digest), answer)
        return known

    # -- the end ---------------------------------------------------------------------------

    def finish(self) -> None:
        """Write the rows, a checkpoint if one is due, and the session."""
        self._flush()
        session = self.session
        if self._head is not None and checkpoint_due(session):
            write_checkpoint(session, self._head.deps)
        session.last_activity_at = self.now
        session.status = status_of(session)
        update_row(session, _SESSION_FIELDS)

    def keep(self) -> None:
        """After the commit: what is in memory may serve the next transaction."""
        self._places.keep()
        self._keep_head()

    def _keep_head(self) -> None:
        if self._head is not None:
            weight = self.session.checkpoint_bytes + self.session.bytes_since_checkpoint
            heads.give_back(self.session.pk, self._head, weight)
            self._head = None

    def abandon(self, *, clean: bool) -> None:
        """Instead of the commit. After a refusal (`clean`) what was folded is taken back, so
        that a runner which is refused again and again costs no more than another; after any
        other failure the head is forgotten."""
        head = self._head
        if clean and head is not None and self._taken_at is not None:
            for undo in reversed(self._undos):
                take_back(undo)
            head.version = self._taken_at
            self._keep_head()
        self._drop_head()

    def _drop_head(self) -> None:
        self._head = self._taken_at = None
        self._undos.clear()

    def _flush(self) -> None:
        self._places.save()
        if self._updates:
            insert_rows(self._updates)
        if self._events:
            for event in self._events:
                event.update_id = event.update.pk if event.update is not None else None
            insert_rows(self._events)
        self._updates, self._events = [], []

    def _take_head(self) -> Head:
        if self._head is None:
            self._head = heads.take(self.session)
            self._taken_at = self._head.version
        return self._head


def status_of(session: Session) -> str:
    """The status that follows from the log: ended when the runner said so, running with an
    open turn, interrupted when recovery closed the last one, else idle."""
    if session.ended_at is not None:
        return SessionStatus.ENDED.value
    if session.open_turn_id is not None:
        return SessionStatus.RUNNING.value
    if session.last_turn_reason == "interrupted":
        return SessionStatus.INTERRUPTED.value
    return SessionStatus.IDLE.value


def _same_event(held: Event, event_type: str, data: dict[str, Any]) -> bool:
    return held.type == event_type and same_json(loads(held.data), data)


def _event_answer(event: Event, *, duplicate: bool = False) -> Answer:
    answer: Answer = {
        "type": event.type,
        "disposition": event.disposition,
        "seq": event.seq,
        "ordinal": event.ordinal,
        "epoch": event.epoch,
    }
    return {**answer, "duplicate": True} if duplicate else answer


def _counts(event: Event, data: dict[str, Any]) -> dict[str, int]:
    counts = {"events": 1, event.disposition: 1}
    if event.disposition != Disposition.LOGGED:
        return counts
    if event.type == "tool_call":
        counts["tool_calls"] = 1
    elif event.type == "assistant_message":
        calls = data.get("tool_calls")
        if isinstance(calls, dict):
            counts["tool_calls"] = 1
        elif isinstance(calls, list):
            counts["tool_calls"] = sum(isinstance(call, dict) for call in calls)
    elif event.type == "step_end":
        counts["errors"] = int(data.get("outcome") == "error")
    elif event.type == "tool_result":
        counts["errors"] = int(_is_error(data))
    return counts


def _is_error(data: dict[str, Any]) -> bool:
    """Whether a tool result says that the tool failed: an error in its metadata."""
    metadata = data.get("metadata")
    if not isinstance(metadata, dict):
        return False
    return bool(metadata.get("error") or metadata.get("is_error")) or (
        metadata.get("status") == "error"
    )
