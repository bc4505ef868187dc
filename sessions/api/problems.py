"""Problem documents (RFC 9457), and the one place where each error meets its own.

Members: `type` (a relative reference that ends in the rule), `title`, `status`, `detail`; and
where they apply `item` (place in the batch), `session`, `field` (path into the item), `rule`,
`errors` (each with item, field, rule, detail) and what the rule adds, such as `expected_seq`.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.http import HttpResponse

from ..core.strict_json import StrictJSONError, dumps
from ..ingest import (
    BadRewind,
    EventRefused,
    IdempotencyMismatch,
    IngestError,
    SequenceConflict,
    SequenceGap,
    UpdateRefused,
    VersionConflict,
)

CONTENT_TYPE = "application/problem+json"

_STATUS: dict[type[IngestError], int] = {
    UpdateRefused: 422,
    EventRefused: 422,
    IdempotencyMismatch: 422,
    SequenceGap: 409,
    SequenceConflict: 409,
    VersionConflict: 409,
    BadRewind: 409,
}

_TITLE = {
    UpdateRefused: "The reducer refuses an operation",
    EventRefused: "No log would take this event",
    IdempotencyMismatch: "Used before with another body",
    SequenceGap: "A gap in the sequence",
    SequenceConflict: "The log holds another event at this seq",
    VersionConflict: "The session is at another version",
    BadRewind: "The log was never that long",
}


class Problem(Exception):
    """Answered as a problem document. `extra` are further members, `headers` go with it."""

    def __init__(
        self, status: int, rule: str, title: str, detail: str, *,
        headers: dict[str, str] | None = None, **extra: Any,
    ) -> None:  # fmt: skip
        super().__init__(detail)
        self.status, self.rule, self.headers = status, rule, headers or {}
        self.document = document(status, rule, title, detail, **extra)


def document(status: int, rule: str, title: str, detail: str, **extra: Any) -> dict[str, Any]:
    """A problem document; members that are None are left out."""
    given = {name: value for name, value in extra.items() if value is not None}
    return {
        "type": f"/problems/{rule}",
        "title": title,
        "status": status,
        "detail": detail,
        "rule": rule,
        **given,
    }


def response(doc: dict[str, Any], headers: dict[str, str] | None = None) -> HttpResponse:
    """The document as a response with its own status."""
    return HttpResponse(
        dumps(doc), status=doc["status"], content_type=CONTENT_TYPE, headers=headers
    )


def of_ingest(error: IngestError, session: str | None, item: int | None) -> dict[str, Any]:
    """The document of an ingest error. `item` is its place in the request, None for one that
    stood alone."""
    kind = type(error)
    return document(
        _STATUS[kind], error.rule, _TITLE[kind], error.message,
        session=session, item=item, field=error.field, **error.extra,
    )  # fmt: skip


def of_json(error: StrictJSONError, line_offset: int = 0) -> Problem:
    """A body that is no strict JSON. `line_offset` is added to the line (NDJSON)."""
    line = error.line + line_offset
    at = f" at {error.path}" if error.path else ""
    return Problem(
        400, f"json_{error.rule}", "The body is not strict JSON",
        f"{error.reason} (line {line} column {error.column}{at}).",
        line=line, column=error.column, pointer=error.path or None,
    )  # fmt: skip


def too_large(what: str, limit: int, unit: str, status: int = 413, **extra: Any) -> Problem:
    """More than a limit takes."""
    return Problem(
        status, "too_large", "Too large", f"{what}: at most {limit:,} {unit}.",
        limit=limit, **extra,
    )  # fmt: skip


def body_too_large() -> Problem:
    limit = settings.LIMITS["body_bytes"]
    return too_large("The body is too large", limit, "bytes")


def unavailable() -> Problem:
    """The database stayed locked, or could not be reached: nothing was stored."""
    return Problem(
        503, "database_busy", "The database is busy",
        "Nothing was stored. Send the same request again after a moment.",
        headers={"Retry-After": "1"},
    )  # fmt: skip


def of_status(status: int) -> dict[str, Any]:
    """The document of a bare HTTP status."""
    phrase = HTTPStatus(status).phrase
    details = {
        400: "The request can't be read.",
        404: "There is nothing at this address.",
        405: "This address does not take that method; the Allow header names those it takes.",
        413: "The body is too large.",
        500: "Something went wrong here; nothing that was not answered with 2xx is stored.",
    }
    rule = phrase.lower().replace(" ", "_").replace("-", "_")
    return document(status, rule, phrase, details.get(status, phrase))
