"""The pages. Every state is a URL; a fragment has its own, and HTMX only swaps what a full page
would show."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

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
from django_htmx.http import HttpResponseStopPolling

from . import timeline
from .core.strict_json import loads, visible
from .deps import UnknownVersion, deps_at
from .forms import LostFilters, SessionFilters, TimelineQuery, read_query, with_query
from .models import Session, Step, Update
from .shown import Shown, readable, shown
from .workspaces import default_workspace

View = Callable[..., HttpResponse]


def page(view: Any) -> Any:
    """A private page: for people who signed in, read only, kept by no cache."""
    return never_cache(require_GET(login_required(view)))


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
    at, before = query["at"] or "", query["before"]
    if at == "end":
        before = session.next_ordinal
    found = timeline.steps_page(
        session,
        after=query["after"],
        before=before,
        at=int(at) if at.isascii() and at.isdecimal() else None,
        lost_only=lost_only,
        goes_on=goes_on,
    )
    return {
        "session": session,
        "page": found,
        "lost_only": lost_only,
        "marked": int(at) if at.isascii() and at.isdecimal() else None,
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
    context["toggle_lost"] = with_query(
        request.GET, lost=not context["lost_only"], after=None, before=None, at=None
    )
    return render(request, "timeline.html", {**context, "tab": "timeline"})


@session_page
def more_steps(request: HttpRequest, session: Session) -> HttpResponse:
    """Fragment: the next steps of the timeline."""
    return render(request, "_steps.html", _steps(request, session, goes_on=True))


@session_page
def summary(request: HttpRequest, session: Session) -> HttpResponse:
    """Fragment: the counters of a session; 204 when nothing came since ordinal `seen`, and the
    end of polling once the session has ended."""
    query = read_query(TimelineQuery, request.GET)
    seen = query["seen"] if query["seen"] is not None else -1
    if seen == session.next_ordinal - 1 and (query["epoch"] or 0) == session.epoch:
        if session.ended_at is not None:
            return HttpResponseStopPolling()
        return HttpResponse(status=204)
    return render(request, "_summary.html", {"session": session, "live": True})


@session_page
def poll(request: HttpRequest, session: Session) -> HttpResponse:
    """Fragment: what came after the ordinal `after`, and the element that asks for the rest.
    204 when there is nothing; the end of polling once the session has ended."""
    query = read_query(TimelineQuery, request.GET)
    lost_only = bool(query["lost"])
    changes = timeline.changes_since(
        session, query["after"] or 0, query["epoch"] or 0, lost_only=lost_only
    )
    if not changes:
        if session.ended_at is not None:
            return HttpResponseStopPolling()
        return HttpResponse(status=204)
    context = {"session": session, "changes": changes, "lost_only": lost_only}
    return render(request, "_changes.html", context)


def _step_or_404(session: Session, pk: int) -> Step:
    try:
        return timeline.get_step(session, pk)
    except Step.DoesNotExist:
        raise Http404("There is no such step in this session.") from None


def _step_entries(request: HttpRequest, session: Session, pk: int) -> dict[str, Any]:
    query = read_query(TimelineQuery, request.GET)
    step = _step_or_404(session, pk)
    found = timeline.step_entries(
        step,
        after_ordinal=query["after"] or 0,
        upto=query["upto"],
        lost_only=bool(query["lost"]),
    )
    return {
        "session": session,
        "step": step,
        "entries": found,
        "lost_only": bool(query["lost"]),
        "upto": query["upto"],
    }


@session_page
def step_page(request: HttpRequest, session: Session, pk: int) -> HttpResponse:
    """One step on a page of its own."""
    context = _step_entries(request, session, pk)
    return render(request, "step.html", {**context, "tab": "timeline"})


@session_page
def entries(request: HttpRequest, session: Session, pk: int) -> HttpResponse:
    """Fragment: entries of a step."""
    context = {**_step_entries(request, session, pk), "goes_on": True}
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
        "session": session,
        "step": row.step,
        "entry": timeline.entry_view(row, session),
        "raw": readable(raw[:limit]),
        "size": len(raw),
        "cut": len(raw) > limit,
        "tab": "timeline",
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


def _key_rows(deps: dict[str, Any], start: int, limit: int) -> list[tuple[str, str, Shown]]:
    names = sorted(deps, key=visible)[start : start + limit]
    return [(name, readable(name), shown(deps[name], 1500)) for name in names]


@session_page
def deps(request: HttpRequest, session: Session) -> HttpResponse:
    """The deps as they are now, or with `at` as they were after that version: a page of keys,
    or one key whole."""
    wanted = request.GET.get("at", "")
    try:
        at = deps_at(session, _number(wanted) if wanted else None)
    except UnknownVersion as unknown:
        raise Http404(str(unknown)) from None
    names = sorted(at.deps, key=visible)
    context: dict[str, Any] = {
        "session": session,
        "at": at,
        "is_now": not wanted,
        "is_past": bool(wanted),
        "tab": "deps",
        "count": len(names),
        "back": with_query(request.GET, key=None, start=None),
        "earlier": with_query(request.GET, at=at.version - 1, key=None) if at.version else "",
        "later": with_query(request.GET, at=at.version + 1, key=None)
        if wanted and at.version < session.version
        else "",
    }
    if "key" in request.GET:
        index = _number(request.GET["key"])
        if index is None or index >= len(names):
            raise Http404("There is no such key.")
        name = names[index]
        context.update(name=readable(name), value=shown(at.deps[name], 200_000))
        return render(request, "deps_key.html", context)
    first = _number(request.GET.get("start", "0")) or 0
    context["rows"] = _key_rows(at.deps, first, KEYS_A_PAGE)
    context["first"] = first
    following = first + KEYS_A_PAGE
    context["next"] = with_query(request.GET, start=following) if following < len(names) else ""
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
        "rows": _key_rows(at.deps, 0, 30),
        "first": 0,
    }
    return render(request, "_deps_panel.html", context)


# -- raw log, lost events, refusals --------------------------------------------------------


@session_page
def log(request: HttpRequest, session: Session) -> HttpResponse:
    """Every update and event ever, in ordinal order."""
    query = read_query(TimelineQuery, request.GET)
    found = timeline.log_page(session, query["after"] or 0)
    context = {
        "session": session,
        "page": found,
        "tab": "log",
        "next": with_query(request.GET, after=found.next_ordinal) if found.next_ordinal else "",
    }
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
        "session": session,
        "tab": "refusals",
        "refusals": [(row, loads(row.problem), readable(row.body_head)) for row in rows],
        "next": with_query(request.GET, before=rows[-1].pk) if len(rows) == 50 else "",
    }
    return render(request, "refusals.html", context)
