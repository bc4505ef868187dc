"""The NinjaAPI: routers, and the one place where each exception becomes an answer."""

from __future__ import annotations

import logging
from typing import Any

from django.conf import settings
from django.contrib.admin.views.decorators import staff_member_required
from django.db import OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from ninja import NinjaAPI
from ninja.errors import HttpError, ValidationError

from ..core.strict_json import MAX_DEPTH
from ..database import Locked
from ..deps import UnknownVersion
from ..models import Session
from ..timeline import BadCursor
from . import ingest, problems, read  # noqa: F401 — the routes register themselves
from .problems import Problem
from .router import router

logger = logging.getLogger("sessions.api")

_LIMITS = [
    ("body_bytes", "bytes of a body"),
    ("batch_items", "items of a batch"),
    ("operations", "operations of an update"),
    ("event_bytes", "bytes of an event's data"),
    ("key_characters", "characters of a deps key"),
    ("name_characters", "characters of a type, a name, an id or a label"),
    ("page_items", "rows of a page"),
]

api = NinjaAPI(
    title="nousweb",
    version="1",
    description=(
        "Post what your agents did, and read it back. Every error is a problem document "
        "(RFC 9457, `application/problem+json`). A 2xx comes after the commit, never before. "
        "An item with an `id`, a request with an `Idempotency-Key` and an event with its `seq` "
        "may be sent again: the first answer comes again.\n\n"
        "Limits: " + "; ".join(f"{what} {settings.LIMITS[name]:,}" for name, what in _LIMITS) + "; "
        f"nesting {MAX_DEPTH}; session key 200 of `A–Z a–z 0–9 . _ : -`. What is larger is "
        "refused: 413 for the body and the number of items, 422 for the rest."
    ),
    docs_decorator=staff_member_required,
    urls_namespace="api",
)
api.add_router("", router)


@api.exception_handler(Problem)
def _problem(request: HttpRequest, error: Problem) -> HttpResponse:
    return problems.response(error.document, error.headers)


@api.exception_handler(ValidationError)
def _invalid(request: HttpRequest, error: ValidationError) -> HttpResponse:
    """A path or query parameter that ninja refuses."""
    faults = [
        {
            "field": str(fault["loc"][-1]),
            "rule": str(fault["type"]),
            "detail": str(fault["msg"]).removeprefix("Value error, "),
        }
        for fault in error.errors
    ]
    first = faults[0]
    doc = problems.document(
        422, first["rule"], "A parameter is not right", f"{first['field']}: {first['detail']}.",
        field=first["field"], errors=faults,
    )  # fmt: skip
    return problems.response(doc)


@api.exception_handler(Session.DoesNotExist)
def _no_session(request: HttpRequest, error: Exception) -> HttpResponse:
    doc = problems.document(
        404, "session_not_found", "No such session", "There is no session with this key."
    )
    return problems.response(doc)


@api.exception_handler(UnknownVersion)
def _no_version(request: HttpRequest, error: UnknownVersion) -> HttpResponse:
    doc = problems.document(
        404, "version_not_found", "No such version", str(error), head=error.head, field="version"
    )
    return problems.response(doc)


@api.exception_handler(BadCursor)
def _bad_cursor(request: HttpRequest, error: BadCursor) -> HttpResponse:
    doc = problems.document(
        422, "bad_cursor", "A parameter is not right",
        "after: this is no cursor that a page gave as `next`.", field="after",
    )  # fmt: skip
    return problems.response(doc)


@api.exception_handler(Http404)
def _not_found(request: HttpRequest, error: Exception) -> HttpResponse:
    return problems.response(problems.of_status(404))


@api.exception_handler(HttpError)
def _http_error(request: HttpRequest, error: HttpError) -> HttpResponse:
    return problems.response(problems.of_status(error.status_code))


@api.exception_handler(Locked)
@api.exception_handler(OperationalError)
def _busy(request: HttpRequest, error: Exception) -> HttpResponse:
    logger.warning("database busy: %s", error)
    problem = problems.unavailable()
    return problems.response(problem.document, problem.headers)


@api.exception_handler(Exception)
def _failed(request: HttpRequest, error: Exception) -> HttpResponse:
    logger.error("%s %s failed", request.method, request.path, exc_info=error)
    return problems.response(problems.of_status(500))


def openapi_schema() -> dict[str, Any]:
    """The OpenAPI document, as /api/v1/openapi.json gives it."""
    return api.get_openapi_schema()
