"""Rows for the API: bounded queries, each in the order and the page that its reader asks for."""

from __future__ import annotations

from django.db.models import Q

from .models import Event, Session, Step, Update


def log_after(session: Session, seq: int, limit: int) -> list[Event]:
    """Events of the live log with a greater seq, in seq order, at most `limit`.

    Of several epochs' events with one seq the newest is live (had it been abandoned, the log
    would end before it); so at most `limit` seqs are read, each in all its epochs.
    """
    upto = min(seq + 1 + limit, session.next_seq)
    rows = (
        Event.objects.filter(session=session, seq__gt=seq, seq__lt=upto)
        .select_related("update")
        .order_by("seq", "epoch")
    )
    live = {event.seq: event for event in rows}
    return list(live.values())


def steps_after(session: Session, ordinal: int, limit: int) -> list[Step]:
    """Steps whose first ordinal is greater, in that order, at most `limit`."""
    rows = Step.objects.filter(session=session, first_ordinal__gt=ordinal)
    return list(rows.select_related("turn").order_by("first_ordinal")[:limit])


def find_step(session: Session, turn: int, step: int, epoch: int | None) -> Step | None:
    """The step with these numbers in an epoch; without one, in the newest epoch that has it."""
    wanted = Q(turn__session=session, turn__number=turn, number=step)
    if epoch is not None:
        wanted &= Q(turn__epoch=epoch)
    rows = Step.objects.select_related("turn").filter(wanted)
    found = rows.order_by("-turn__epoch").first()
    if found is not None:
        found.session = session
    return found


def step_rows(
    step: Step, after_ordinal: int, limit: int
) -> tuple[list[Update | Event], int | None]:
    """The step's updates and events in ordinal order, at most `limit`, and the ordinal to go
    on after, None when there are no more. Two queries, and neither reads past what was
    committed when the session was read: a row may be committed between them."""
    span = Q(step=step, ordinal__gt=after_ordinal, ordinal__lt=step.session.next_ordinal)
    updates = Update.objects.filter(span).order_by("ordinal")
    events = Event.objects.filter(span).order_by("ordinal")
    rows: list[Update | Event] = [
        *updates[: limit + 1],
        *events.select_related("update")[: limit + 1],
    ]
    rows.sort(key=lambda row: row.ordinal)
    more = rows[limit - 1].ordinal if len(rows) > limit else None
    return rows[:limit], more
