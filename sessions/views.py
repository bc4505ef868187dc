"""The pages. Every state is a URL; a fragment has its own, and HTMX only swaps what a full page
would show."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, cast

from django.contrib.admin.views.decorators import staff_member_required
from django.contrib.auth.decorators import login_required
from django.core.exceptions import BadRequest
from django.db import connection
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.templatetags.static import static
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET
from django_htmx.http import (
    HttpResponseClientRefresh,
    HttpResponseStopPolling,
    trigger_client_event,
)

from . import timeline
from .core.reducer import Deps
from .core.strict_json import loads, visible
from .deps import UnknownVersion, deps_at
from .forms import LostFilters, SessionFilters, TimelineQuery, read_query, with_query
from .models import Session, Step, Update
from .shown import Shown, readable, shown
from .workspaces import default_workspace

View = Callable[..., HttpResponse]


def page(view: Any) -> Any:
    """A private page: for people who signed in, read only, kept by no cache. A fragment asked
    for by a page whose reader is signed out by now makes that page reload."""
    guarded = login_required(view)

    @wraps(view)
    def wrapped(request: HttpRequest, *args: Any, **rest: Any) -> HttpResponse:
        if "HX-Request" in request.headers and not request.user.is_authenticated:
            return HttpResponseClientRefresh()
        return cast(HttpResponse, guarded(request, *args, **rest))

    return never_cache(require_GET(wrapped))


def session_page(view: View) -> Any:
    """A page of one session; 404 for a key that there is not."""

    @wraps(view)
    def wrapped(request: HttpRequest, key: str, **rest: Any) -> HttpResponse:
        try:
            session = timeline.get_session(default_workspace(), key)
        except Session.DoesNotExist:
            raise Http404(f"There is no session {key}.") from None
        return view(request, session, **rest)

    return page(wrapped)


def head_of(session: Session, tab: str = "") -> dict[str, Any]:
    """What every page of a session shows above its tabs."""
    return {
        "session": session,
        "tab": tab,
        "labels": [(readable(k), readable(str(v))) for k, v in loads(session.labels).items()],
        "span": timeline.span_of(session),
        "state": timeline.summary_state(session),
    }


@require_GET
def healthz(request: HttpRequest) -> HttpResponse:
    """200 when we serve and the database answers."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return HttpResponse("ok", content_type="text/plain")


@require_GET
def favicon(request: HttpRequest) -> HttpResponse:
    """Where browsers look for an icon on pages that name none, such as the admin's."""
    return redirect(static("favicon.svg"), permanent=True)


# -- sessions ------------------------------------------------------------------------------


@page
def sessions(request: HttpRequest) -> HttpResponse:
    """The list of sessions, the newest activity first."""
    query = read_query(SessionFilters, request.GET)
    after = request.GET.get("after")
    try:
        found = timeline.list_sessions(
            default_workspace(),
            agent=query["agent"] or None,
            status=query["status"] or None,
            lost=True if query["lost"] else None,
            text=query["q"] or None,
            after=after or None,
        )
    except timeline.BadCursor:
        raise BadRequest("This is no cursor of a page.") from None
    filtered = any(query[name] for name in ("agent", "status", "lost", "q"))
    return render(
        request,
        "sessions.html",
        {
            "sessions": found.sessions,
            "form": SessionFilters(query),
            "filtered": filtered,
            "is_first": not after,
            "next": with_query(request.GET, after=found.next_cursor) if found.next_cursor else "",
            "now": timezone.now(),
            "root": request.build_absolute_uri("/"),
        },
    )


@page
def sessions_changed(request: HttpRequest) -> HttpResponse:
    """Fragment: how many sessions were active since the page was made; 204 for none."""
    since = parse_datetime(request.GET.get("since", ""))
    if since is None or since.tzinfo is None:
        raise BadRequest("since must be a time.")
    count = timeline.changed_sessions(default_workspace(), since)
    if not count:
        return HttpResponse(status=204)
    return render(request, "_sessions_changed.html", {"count": count, "since": since})


# -- the timeline --------------------------------------------------------------------------


def _steps(request: HttpRequest, session: Session, *, goes_on: bool = False) -> dict[str, Any]:
    query = read_query(TimelineQuery, request.GET)
    lost_only = bool(query["lost"])
    at = query["at"] or ""
    marked = _number(at)
    found = timeline.steps_page(
        session,
        after=query["after"],
        before=query["before"],
        at=marked,
        end=at == "end",
        lost_only=lost_only,
        goes_on=goes_on,
    )
    last = found.last_step
    return {
        "session": session,
        "page": found,
        "last": last.pk if last else None,
        "turn": last.turn_id if last else None,
        "lost_only": lost_only,
        "marked": marked,
        "next": with_query(request.GET, after=found.next_after, before=None, at=None)
        if found.next_after is not None
        else "",
        "previous": with_query(request.GET, before=found.previous_before, after=None, at=None)
        if found.previous_before is not None
        else "",
    }


@session_page
def session_timeline(request: HttpRequest, session: Session) -> HttpResponse:
    """The timeline: steps grouped by turn, each with its entries."""
    context = _steps(request, session)
    steps = context["page"].steps
    context["toggle_lost"] = with_query(
        request.GET, lost=not context["lost_only"], after=None, before=None, at=None
    )
    context["rail"] = timeline.rail(
        session,
        after=steps[0].step.first_ordinal - 1 if steps else 0,
        lost_only=context["lost_only"],
    )
    return render(request, "timeline.html", {**context, **head_of(session, "timeline")})


@session_page
def more_steps(request: HttpRequest, session: Session) -> HttpResponse:
    """Fragment: the next steps of the timeline."""
    return render(request, "_steps.html", _steps(request, session, goes_on=True))


@session_page
def rail(request: HttpRequest, session: Session) -> HttpResponse:
    """Fragment: names of steps, to get around."""
    query = read_query(TimelineQuery, request.GET)
    lost_only = bool(query["lost"])
    found = timeline.rail(session, after=query["after"] or 0, lost_only=lost_only)
    return render(
        request, "_rail.html", {"session": session, "rail": found, "lost_only": lost_only}
    )


@session_page
def summary(request: HttpRequest, session: Session) -> HttpResponse:
    """Fragment: the counters of a session; 204 when they are as the page has `seen` them, and
    the end of polling once the session has ended. What is new tells the rest of the page, by the
    event `session-changed`, to ask for its part."""
    query = read_query(TimelineQuery, request.GET)
    if query["seen"] == timeline.summary_state(session):
        return HttpResponseStopPolling() if session.ended_at else HttpResponse(status=204)
    response = render(request, "_summary.html", head_of(session))
    return trigger_client_event(response, "session-changed")


@session_page
def poll(request: HttpRequest, session: Session) -> HttpResponse:
    """Fragment: what came after the ordinal `after`, and the element that asks for the rest.
    204 when there is nothing; the end of polling once the session has ended. Headings of steps
    and turns that the page shows already are told, by an event, to ask for themselves."""
    query = read_query(TimelineQuery, request.GET)
    lost_only = bool(query["lost"])
    changes = timeline.changes_since(
        session,
        query["after"] or 0,
        query["epoch"] or 0,
        last=query["last"],
        turn=query["turn"],
        lost_only=lost_only,
    )
    if not changes:
        return HttpResponseStopPolling() if session.ended_at else HttpResponse(status=204)
    context = {"session": session, "changes": changes, "lost_only": lost_only}
    response = render(request, "_changes.html", context)
    for name in sorted(_stale_headings(changes, query["after"] or 0)):
        trigger_client_event(response, name)
    return response


def _stale_headings(changes: timeline.Changes, ordinal: int) -> set[str]:
    """Events for the headings of steps and turns that began at or before the ordinal."""
    stale = set()
    for group in changes.groups:
        if group.step.first_ordinal <= ordinal:
            stale.add(f"step-{group.step.pk}")
        if group.turn.first_ordinal <= ordinal:
            stale.add(f"turn-{group.turn.pk}")
    return stale


@session_page
def news(request: HttpRequest, session: Session) -> HttpResponse:
    """Fragment: how many entries came after the ordinal `after`, for a page that does not show
    the end; 204 when there are none."""
    query = read_query(TimelineQuery, request.GET)
    after = query["after"] or 0
    count = session.next_ordinal - 1 - after
    if count <= 0:
        return HttpResponse(status=204)
    context = {
        "session": session, "after": after, "count": count, "lost_only": bool(query["lost"]),
    }  # fmt: skip
    return render(request, "_news.html", context)


def _step_or_404(session: Session, pk: int) -> Step:
    try:
        return timeline.get_step(session, pk)
    except Step.DoesNotExist:
        raise Http404("There is no such step in this session.") from None


def _step_entries(request: HttpRequest, session: Session, pk: int) -> dict[str, Any]:
    query = read_query(TimelineQuery, request.GET)
    step = _step_or_404(session, pk)
    lost_only = bool(query["lost"])
    found = timeline.step_entries(
        step,
        after_ordinal=query["after"] or 0,
        before_ordinal=query["before"],
        upto=query["upto"],
        lost_only=lost_only,
    )
    return {
        "session": session,
        "step": step,
        "entries": found,
        "lost_only": lost_only,
        "upto": query["upto"],
    }


@session_page
def step_slice(request: HttpRequest, session: Session, pk: int) -> HttpResponse:
    """Fragment: entries from the step's first one until the next step begins (`upto`), after
    the ordinal `after` or the last ones before `before`. What goes on below others (`last` is
    the step shown there) needs no way back to them."""
    query = read_query(TimelineQuery, request.GET)
    step = _step_or_404(session, pk)
    lost_only = bool(query["lost"])
    after = query["after"]
    found = timeline.read_slice(
        session,
        step,
        after=step.first_ordinal - 1 if after is None else after,
        upto=session.next_ordinal - 1 if query["upto"] is None else query["upto"],
        before=query["before"],
        last=query["last"],
        lost_only=lost_only,
    )
    context = {"session": session, "step": step, "slice": found, "lost_only": lost_only}
    return render(request, "_slice.html", context)


@session_page
def step_head(request: HttpRequest, session: Session, pk: int) -> HttpResponse:
    """Fragment: the heading of a step, as it is now."""
    step = _step_or_404(session, pk)
    view = timeline.StepView(step)
    return render(request, "_step_head.html", {"session": session, "step": step, "view": view})


@session_page
def turn_head(request: HttpRequest, session: Session, pk: int) -> HttpResponse:
    """Fragment: the heading of a step's turn, as it is now."""
    step = _step_or_404(session, pk)
    view = timeline.StepView(step)
    return render(
        request, "_turn.html", {"session": session, "step": step, "turn": step.turn, "view": view}
    )


@session_page
def step_page(request: HttpRequest, session: Session, pk: int) -> HttpResponse:
    """One step on a page of its own."""
    context = _step_entries(request, session, pk)
    step: Step = context["step"]
    context["view"] = timeline.StepView(step)
    before = read_query(TimelineQuery, request.GET)["before"]
    if before:
        context["later"] = with_query(request.GET, after=before - 1, before=None)
    return render(request, "step.html", {**context, **head_of(session, "timeline")})


@session_page
def entries(request: HttpRequest, session: Session, pk: int) -> HttpResponse:
    """Fragment: entries of a step. Those that go on below others need no way back to them."""
    goes_on = read_query(TimelineQuery, request.GET)["before"] is None
    context = {**_step_entries(request, session, pk), "goes_on": goes_on}
    return render(request, "_entries.html", context)


@session_page
def entry(request: HttpRequest, session: Session, ordinal: int) -> HttpResponse:
    """One update or event on a page of its own, with what was received."""
    row = timeline.entry_at(session, ordinal)
    if row is None:
        raise Http404("There is no such entry in this session.")
    raw = row.operations if isinstance(row, Update) else row.data
    limit = 200_000
    context = {
        **head_of(session, "timeline"),
        "step": row.step,
        "entry": timeline.entry_view(row, session),
        "raw": readable(raw[:limit]),
        "size": len(raw),
        "cut": len(raw) > limit,
    }
    return render(request, "entry.html", context)


@session_page
def entry_raw(request: HttpRequest, session: Session, ordinal: int) -> HttpResponse:
    """What was received, as a text file to keep."""
    row = timeline.entry_at(session, ordinal)
    if row is None:
        raise Http404("There is no such entry in this session.")
    raw = row.operations if isinstance(row, Update) else row.data
    response = HttpResponse(raw, content_type="text/plain; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{session.key}-{ordinal}.json"'
    return response


# -- deps ----------------------------------------------------------------------------------

KEYS_A_PAGE = 100
KEYS_IN_PANEL = 30
VALUE_CHARACTERS = 200_000
_ROW_CHARACTERS, _PAGE_CHARACTERS = 1500, 40_000


@dataclass(frozen=True, slots=True)
class KeyRow:
    """A key of the deps: `name` to be read, `query` to be asked for, and its value."""

    name: str
    query: str
    value: Shown


def key_query(name: str) -> str:
    """A key as a query string carries it: every character beyond ASCII as its JSON escape, so
    that NUL and lone surrogates survive."""
    return json.dumps(name)[1:-1]


def key_from(query: str) -> str | None:
    """The key again, or None when the text is none."""
    try:
        found = json.loads(f'"{query}"')
    except ValueError:
        return None
    return found if isinstance(found, str) else None


def _key_rows(deps: Deps, start: int, limit: int) -> list[KeyRow]:
    """Rows of a page of keys, sorted; together they hold no more text than a page can carry."""
    rows = []
    left = _PAGE_CHARACTERS
    for name in sorted(deps, key=visible)[start : start + limit]:
        value = shown(deps[name], min(_ROW_CHARACTERS, left))
        left -= len(value.text)
        rows.append(KeyRow(readable(name), key_query(name), value))
    return rows


@session_page
def deps(request: HttpRequest, session: Session) -> HttpResponse:
    """The deps as they are now, or with `at` as they were after that version: a page of keys,
    or one key whole."""
    wanted = request.GET.get("at", "")
    try:
        at = deps_at(session, _number(wanted) if wanted else None)
    except UnknownVersion as unknown:
        raise Http404(str(unknown)) from None
    has_later = bool(wanted) and at.version < session.version
    context = {
        **head_of(session, "deps"),
        "at": at,
        "is_now": not wanted,
        "is_past": bool(wanted),
        "count": len(at.deps),
        "back": with_query(request.GET, key=None, start=None),
        "earlier": with_query(request.GET, at=at.version - 1) if at.version else "",
        "later": with_query(request.GET, at=at.version + 1) if has_later else "",
    }
    if "key" in request.GET:
        name = key_from(request.GET["key"])
        if name is None:
            raise Http404("That is no key of the deps.")
        value = shown(at.deps[name], VALUE_CHARACTERS) if name in at.deps else None
        context.update(name=readable(name), value=value)
        return render(request, "deps_key.html", context)
    first = _number(request.GET.get("start", "0")) or 0
    rows = _key_rows(at.deps, first, KEYS_A_PAGE)
    past = first + KEYS_A_PAGE
    context.update(rows=rows, first=first, last=first + len(rows))
    context["next"] = with_query(request.GET, start=past) if past < len(at.deps) else ""
    return render(request, "deps.html", context)


def _number(text: str) -> int | None:
    """The whole number, or None when it is none that both databases hold."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None


@session_page
def deps_panel(request: HttpRequest, session: Session) -> HttpResponse:
    """Fragment: the deps beside the timeline; 204 when they are as the page has seen them."""
    seen = f"{session.version}.{session.epoch}"
    if request.GET.get("seen") == seen:
        return HttpResponseStopPolling() if session.ended_at else HttpResponse(status=204)
    at = deps_at(session)
    context = {
        "session": session,
        "at": at,
        "seen": seen,
        "count": len(at.deps),
        "left": max(len(at.deps) - KEYS_IN_PANEL, 0),
        "rows": _key_rows(at.deps, 0, KEYS_IN_PANEL),
    }
    return render(request, "_deps_panel.html", context)


# -- raw log, lost events, refusals --------------------------------------------------------


@session_page
def log(request: HttpRequest, session: Session) -> HttpResponse:
    """Every update and event ever, in ordinal order."""
    query = read_query(TimelineQuery, request.GET)
    before = session.next_ordinal if query["at"] == "end" else query["before"]
    found = timeline.log_page(session, query["after"] or 0, before=before)
    context = {**head_of(session, "log"), "page": found}
    if found.next_ordinal is not None:
        context["next"] = with_query(request.GET, after=found.next_ordinal, before=None, at=None)
    if found.previous_ordinal is not None:
        context["previous"] = with_query(
            request.GET, before=found.previous_ordinal, after=None, at=None
        )
    return render(request, "log.html", context)


@page
def lost(request: HttpRequest) -> HttpResponse:
    """Every lost event across sessions, the newest first."""
    query = read_query(LostFilters, request.GET)
    found = timeline.lost_events(
        default_workspace(), disposition=query["disposition"] or None, before=query["before"]
    )
    context = {
        "page": found,
        "form": LostFilters(query),
        "next": with_query(request.GET, before=found.next_before) if found.next_before else "",
    }
    return render(request, "lost.html", context)


@staff_member_required
@session_page
def refusals(request: HttpRequest, session: Session) -> HttpResponse:
    """Updates of a session that the reducer refused, for staff."""
    query = read_query(TimelineQuery, request.GET)
    rows = timeline.refusals(session, query["before"])
    context = {
        **head_of(session, "refusals"),
        "refusals": [(row, loads(row.problem), readable(row.body_head)) for row in rows],
        "next": with_query(request.GET, before=rows[-1].pk) if len(rows) == 50 else "",
    }
    return render(request, "refusals.html", context)
