"""What tokens with the scope `read` may read. The same functions serve the pages."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from ninja import Query
from pydantic import AfterValidator, Field

from .. import reading, timeline
from ..core.strict_json import dumps, loads
from ..deps import deps_at
from ..entries import protected_keys
from ..models import Event, Session, Step, Token, Turn, Update
from . import problems
from .auth import read_auth
from .parser import check_session_key
from .router import router
from .schemas import (
    DepsOut,
    EventList,
    ProblemOut,
    SessionList,
    SessionOut,
    UpdateList,
    plain_text,
)

_MOST = settings.LIMITS["page_items"]
_ERRORS: dict[Any, Any] = {
    401: ProblemOut, 403: ProblemOut, 404: ProblemOut, 422: ProblemOut, 503: ProblemOut,
}  # fmt: skip
Limit = Annotated[int, Query(100, ge=1, le=_MOST, description="Most rows of a page.")]
Text = Annotated[str, AfterValidator(plain_text)]
Cursor = Annotated[int, Field(ge=0, le=2**63 - 1)]


class Request(HttpRequest):
    """A request that a token let in."""

    auth: Token


@router.get(
    "/sessions",
    auth=read_auth,
    tags=["read"],
    response={200: SessionList, **_ERRORS},
    summary="List sessions",
)
def get_sessions(
    request: Request,
    agent: Annotated[Text | None, Query(None, max_length=200)] = None,
    status: Literal["running", "idle", "ended", "interrupted"] | None = None,
    lost: Annotated[bool | None, Query(None, description="With, or without, lost events.")] = None,
    after: Annotated[str | None, Query(None, description="`next` of the page before.")] = None,
    limit: Limit = 100,
) -> HttpResponse:
    """Sessions with the newest activity first. `next` leads to the page after this one."""
    page = timeline.list_sessions(
        request.auth.workspace, agent=agent, status=status, lost=lost, after=after, limit=limit
    )
    return _json(
        {
            "sessions": [session_out(session) for session in page.sessions],
            "next": page.next_cursor,
        }
    )


@router.get(
    "/sessions/{key}",
    auth=read_auth,
    tags=["read"],
    response={200: SessionOut, **_ERRORS},
    summary="One session",
)
def get_session(request: Request, key: str) -> HttpResponse:
    """A session with its counters."""
    return _json(session_out(_session(request, key)))


@router.get(
    "/sessions/{key}/deps",
    auth=read_auth,
    tags=["read"],
    response={200: DepsOut, **_ERRORS},
    summary="Deps at a version",
)
def get_deps(
    request: Request,
    key: str,
    version: Annotated[Cursor | None, Query(None, description="Default: now.")] = None,
) -> HttpResponse:
    """The deps after update `version`, folded by the one reducer; without it the deps now."""
    at = deps_at(_session(request, key), version)
    return _json({"version": at.version, "epoch": at.epoch, "deps": at.deps})


@router.get(
    "/sessions/{key}/events",
    auth=read_auth,
    tags=["read"],
    response={200: EventList, **_ERRORS},
    summary="Events since an ordinal",
)
def get_events(
    request: Request,
    key: str,
    after_ordinal: Annotated[Cursor, Query(0)] = 0,
    after_seq: Annotated[Cursor | None, Query(None, description="Only logged ones, live.")] = None,
    limit: Limit = 100,
) -> HttpResponse:
    """Events of every disposition in ordinal order, lost ones included. With `after_seq` the
    events of the live log whose seq is greater, in seq order."""
    session = _session(request, key)
    if after_seq is not None:
        events = reading.log_after(session, after_seq, limit)
    else:
        events = timeline.events_after(session, after_ordinal, limit)
    more = events[-1].ordinal if len(events) == limit else None
    return _raw(
        "events", [_event_text(event) for event in events], more if after_seq is None else None
    )


@router.get(
    "/sessions/{key}/updates",
    auth=read_auth,
    tags=["read"],
    response={200: UpdateList, **_ERRORS},
    summary="Updates since a version",
)
def get_updates(
    request: Request, key: str, after_version: Annotated[Cursor, Query(0)] = 0, limit: Limit = 100
) -> HttpResponse:
    """Updates in version order, each with its operations exactly as received."""
    updates = timeline.updates_after(_session(request, key), after_version, limit)
    more = updates[-1].version if len(updates) == limit else None
    return _raw("updates", [_update_text(update) for update in updates], more)


@router.get(
    "/sessions/{key}/steps",
    auth=read_auth,
    tags=["read"],
    response={200: dict[str, Any], **_ERRORS},
    summary="Steps of a session",
)
def get_steps(
    request: Request, key: str, after_ordinal: Annotated[Cursor, Query(0)] = 0, limit: Limit = 100
) -> HttpResponse:
    """Steps in the order of their first ordinal, with counters and outcome."""
    session = _session(request, key)
    steps = reading.steps_after(session, after_ordinal, limit)
    more = steps[-1].first_ordinal if len(steps) == limit else None
    return _json({"steps": [_step_out(step) for step in steps], "next": more})


@router.get(
    "/sessions/{key}/timeline",
    auth=read_auth,
    tags=["read"],
    response={200: dict[str, Any], **_ERRORS},
    summary="Timeline of a step",
)
def get_step_timeline(
    request: Request,
    key: str,
    turn: Cursor,
    step: Cursor,
    epoch: Annotated[Cursor | None, Query(None, description="Default: the live one.")] = None,
    after_ordinal: Annotated[Cursor, Query(0)] = 0,
    limit: Limit = 100,
) -> HttpResponse:
    """The entries of one step in ordinal order: updates, logged events, lost events in place."""
    session = _session(request, key)
    found = reading.find_step(session, turn, step, epoch)
    if found is None:
        raise problems.Problem(
            404, "step_not_found", "No such step", f"There is no step {step} in turn {turn}."
        )
    rows, more = reading.step_rows(found, after_ordinal, limit)
    entries = [
        f'{{"kind":"update",{_update_text(row)[1:]}'
        if isinstance(row, Update)
        else f'{{"kind":"event",{_event_text(row)[1:]}'
        for row in rows
    ]
    body = f'{{"step":{dumps(_step_out(found))},"entries":[{",".join(entries)}],"next":'
    return HttpResponse(f"{body}{dumps(more)}}}", content_type="application/json")


# -- forms ---------------------------------------------------------------------------------


def _session(request: Request, key: str) -> Session:
    check_session_key(key)
    return timeline.get_session(request.auth.workspace, key)


def _json(value: Any) -> HttpResponse:
    return HttpResponse(dumps(value), content_type="application/json")


def _raw(name: str, texts: list[str], more: int | None) -> HttpResponse:
    body = f'{{"{name}":[{",".join(texts)}],"next":{dumps(more)}}}'
    return HttpResponse(body, content_type="application/json")


def session_out(session: Session) -> dict[str, Any]:
    """A session as `SessionOut`."""
    turn, step = session.open_turn, session.open_step
    return {
        "key": session.key,
        "url": reverse("timeline", args=[session.key]),
        "agent_name": session.agent_name,
        "labels": loads(session.labels),
        "usage": loads(session.usage),
        "status": str(session.status),
        "started_at": _time(session.started_at),
        "last_activity_at": _time(session.last_activity_at),
        "ended_at": _time(session.ended_at),
        "parent": session.parent.key if session.parent else None,
        "seed_length": session.seed_length,
        "version": session.version,
        "next_seq": session.next_seq,
        "next_ordinal": session.next_ordinal,
        "epoch": session.epoch,
        "turn": turn.number if turn else None,
        "step": step.number if step else None,
        "turns": session.turns,
        "steps": session.steps,
        "updates": session.updates,
        "events": session.events,
        "logged": session.logged,
        "dropped": session.dropped,
        "refused": session.refused,
        "invalid": session.invalid,
        "lost": session.lost,
        "tool_calls": session.tool_calls,
        "errors": session.errors,
        "abandoned": session.abandoned,
        "refusals": session.refusals,
        "total_tokens": session.total_tokens,
    }


def _event_text(event: Event) -> str:
    """An event as `EventOut`, its data exactly as received."""
    head = {
        "ordinal": event.ordinal,
        "epoch": event.epoch,
        "seq": event.seq,
        "turn": event.turn_number,
        "step": event.step_number,
        "type": event.type,
        "time": event.time,
        "received_at": _time(event.received_at),
        "disposition": event.disposition,
        "reason": event.reason or None,
        "update_version": event.update.version if event.update else None,
    }
    return f'{dumps(head)[:-1]},"data":{event.data}}}'


def _update_text(update: Update) -> str:
    """An update as `UpdateOut`, its operations exactly as received."""
    called = update.tool_call_id is not None
    head = {
        "version": update.version,
        "ordinal": update.ordinal,
        "epoch": update.epoch,
        "turn": update.turn_number,
        "step": update.step_number,
        "path": update.path,
        "keys": loads(update.keys),
        "differs": loads(update.differs),
        "protected_keys": protected_keys(update),
        "events": loads(update.log_events),
        "id": update.client_id,
        "tool_call": {"id": update.tool_call_id, "name": update.tool_name} if called else None,
        "occurred_at": update.occurred_at,
        "received_at": _time(update.received_at),
    }
    return f'{dumps(head)[:-1]},"operations":{update.operations}}}'


def _step_out(step: Step) -> dict[str, Any]:
    turn: Turn = step.turn
    return {
        "epoch": turn.epoch,
        "turn": turn.number,
        "step": step.number,
        "first_ordinal": step.first_ordinal,
        "last_ordinal": step.last_ordinal,
        "started_at": _time(step.started_at),
        "ended_at": _time(step.ended_at),
        "outcome": step.outcome or None,
        "abandoned_from": step.abandoned_from,
        "runner_number": step.runner_number,
        "updates": step.updates,
        "events": step.events,
        "logged": step.logged,
        "dropped": step.dropped,
        "refused": step.refused,
        "invalid": step.invalid,
        "lost": step.lost,
        "tool_calls": step.tool_calls,
        "errors": step.errors,
    }


def _time(moment: Any) -> str | None:
    return moment.isoformat().replace("+00:00", "Z") if moment is not None else None
