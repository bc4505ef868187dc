"""What runners post."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from django.http import HttpRequest, HttpResponse

from ..core.strict_json import dumps
from ..ingest import (
    IngestError,
    Item,
    RequestKey,
    Stored,
    UpdateRefused,
    change_session,
    record_refusal,
    rewind_session,
    store_items,
)
from ..models import Token
from . import problems
from .auth import ingest_auth
from .openapi import batch_extra, body_extra
from .parser import (
    ItemProblem,
    Piece,
    batch_item,
    batch_pieces,
    check_session_key,
    event_item,
    json_body,
    pieces_of,
    update_item,
    validate,
)
from .problems import Problem
from .read import session_out
from .router import router
from .schemas import (
    EventIn,
    EventResult,
    ProblemOut,
    Results,
    RewindIn,
    RewindResult,
    SessionOut,
    SessionPatch,
    UpdateIn,
    UpdateResult,
)

_ERRORS: dict[Any, Any] = {
    400: ProblemOut, 401: ProblemOut, 403: ProblemOut, 409: ProblemOut, 413: ProblemOut,
    415: ProblemOut, 422: ProblemOut, 503: ProblemOut,
}  # fmt: skip


class Request(HttpRequest):
    """A request that a token let in."""

    auth: Token


@router.post(
    "/sessions/{key}/updates",
    auth=ingest_auth,
    tags=["ingest"],
    response={200: UpdateResult, 201: UpdateResult, **_ERRORS},
    openapi_extra=body_extra(UpdateIn, "an update, or an array of updates"),
    summary="Post updates",
)
def post_updates(request: Request, key: str) -> HttpResponse:
    """Store one update, or an array of them, all or none. The session is made by its first
    post. 201 when something was stored, 200 when all of it was there already."""
    return _post_to_session(request, key, "updates")


@router.post(
    "/sessions/{key}/events",
    auth=ingest_auth,
    tags=["ingest"],
    response={200: EventResult, 201: EventResult, **_ERRORS},
    openapi_extra=body_extra(EventIn, "an event, or an array of events"),
    summary="Post session events",
)
def post_events(request: Request, key: str) -> HttpResponse:
    """Store one session event, or an array of them, all or none. With `seq` the log is exact:
    an event that is held already is a duplicate, other content a conflict (409, which says how
    to rewind), a gap is a 409 that names the seq expected."""
    return _post_to_session(request, key, "events")


@router.post(
    "/sessions/{key}/rewind",
    auth=ingest_auth,
    tags=["ingest"],
    response={200: RewindResult, 201: RewindResult, 404: ProblemOut, **_ERRORS},
    openapi_extra=body_extra(RewindIn, "where to go back to", array=False),
    summary="Follow a runner that went back to an older context",
)
def post_rewind(request: Request, key: str) -> HttpResponse:
    """Begin a new epoch: log and deps are again what they were when the log had `to_seq`
    events. What came after stays in the timeline, marked abandoned."""
    check_session_key(key)
    body = json_body(request)
    form = _whole(RewindIn, body.node.value)
    try:
        stored = rewind_session(
            request.auth.workspace, key, form.to_seq, form.reason,
            _request_key(request, body.digest),
        )  # fmt: skip
    except IngestError as error:
        return problems.response(problems.of_ingest(error, key, None))
    return _answer(stored.answers[0], 201 if stored.created else 200)


@router.patch(
    "/sessions/{key}",
    auth=ingest_auth,
    tags=["ingest"],
    response={200: SessionOut, 404: ProblemOut, **_ERRORS},
    openapi_extra=body_extra(SessionPatch, "what to change", array=False),
    summary="Say something of a session",
)
def patch_session(request: Request, key: str) -> HttpResponse:
    """Set the agent's name, labels, token counters, or say that the session has ended. Only
    what is given changes."""
    check_session_key(key)
    form = _whole(SessionPatch, json_body(request).node.value)
    session = change_session(
        request.auth.workspace, key, agent_name=form.agent_name, labels=form.labels,
        usage=form.usage.model_dump(exclude_none=True) if form.usage else None,
        ended=form.status == "ended",
    )  # fmt: skip
    return _answer(session_out(session), 200)


@router.post(
    "/ingest",
    auth=ingest_auth,
    tags=["ingest"],
    response={200: Results, 201: Results, 207: Results, **_ERRORS},
    openapi_extra=batch_extra(),
    summary="Post a batch over many sessions",
)
def post_batch(request: Request) -> HttpResponse:
    """Store updates and events of many sessions: an array, or one item a line. Each item is an
    update or an event with `session` beside. All or none of each session's items are stored,
    in their order; `results` has one entry an item, with its own `status`.

    201 when all is stored (200: was there already). 207 when some sessions were refused:
    their items carry a `problem`. When every one was refused, a problem document with the
    status of the first, and `results`."""
    pieces, _ = batch_pieces(request)
    batch = _Batch(request, pieces)
    batch.read()
    batch.store()
    return batch.response()


# -- one session ---------------------------------------------------------------------------


def _post_to_session(request: Request, key: str, kind: str) -> HttpResponse:
    check_session_key(key)
    pieces, is_array, digest = pieces_of(request)
    index = 0
    try:
        items: list[Item] = []
        for index, piece in enumerate(pieces):
            items.append(update_item(piece, index) if kind == "updates" else event_item(piece))
        request_key = _request_key(request, digest, kind)
        stored = (
            store_items(request.auth.workspace, key, items, request_key)
            if items
            else Stored([], created=False)
        )
    except ItemProblem as wrong:
        doc = {**wrong.problem.document, "item": index} if is_array else wrong.problem.document
        return problems.response({**doc, "session": key})
    except IngestError as error:
        doc = problems.of_ingest(error, key, error.item if is_array else None)
        if isinstance(error, UpdateRefused):
            _keep_refusal(request, key, doc, pieces[error.item])
        return problems.response(doc)
    answer = {"results": stored.answers} if is_array else stored.answers[0]
    return _answer(answer, 201 if stored.created else 200)


def _keep_refusal(request: Request, key: str, doc: dict[str, Any], piece: Piece) -> None:
    record_refusal(request.auth.workspace, request.auth, key, doc, piece.raw)


def _whole(model: Any, value: Any) -> Any:
    try:
        return validate(model, value)
    except ItemProblem as wrong:
        raise wrong.problem from None


def _answer(answer: dict[str, Any], status: int) -> HttpResponse:
    return HttpResponse(dumps(answer), status=status, content_type="application/json")


def _request_key(request: Request, digest: bytes, scope: str = "") -> RequestKey | None:
    """The `Idempotency-Key` of a request. Two requests are the same when path and body are."""
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return None
    if not 1 <= len(key) <= 200 or not key.isascii() or not key.isprintable():
        raise Problem(
            422, "idempotency_key", "Not an Idempotency-Key",
            "An Idempotency-Key is 1–200 printable ASCII characters.", field="Idempotency-Key",
        )  # fmt: skip
    path = scope or request.path
    return RequestKey(key, hashlib.sha256(path.encode() + b"\0" + digest).digest())


# -- many sessions -------------------------------------------------------------------------


@dataclass(slots=True)
class _Group:
    """The items of one session, with their places in the batch."""

    places: list[int] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    digest: Any = field(default_factory=hashlib.sha256)
    problem: dict[str, Any] | None = None


class _Batch:
    """A batch over many sessions, from its pieces to its answer."""

    def __init__(self, request: Request, pieces: list[Piece]) -> None:
        self.request, self.pieces = request, pieces
        self.results: list[dict[str, Any]] = [{} for _ in pieces]
        self.groups: dict[str, _Group] = {}
        self.created = False

    def read(self) -> None:
        """Read every item; a bad one refuses its session, or stands alone when it names none."""
        for place, piece in enumerate(self.pieces):
            key = piece.node.value.get("session") if isinstance(piece.node.value, dict) else None
            group = self._group(key, place, piece)
            try:
                _, item = batch_item(piece, place)
            except ItemProblem as wrong:
                doc = {**wrong.problem.document, "item": place}
                if group is None:
                    self.results[place] = _refused(place, None, doc)
                elif group.problem is None:
                    group.problem = {**doc, "session": key}
                continue
            except UpdateRefused as refused:
                if group is not None and isinstance(key, str):
                    doc = problems.of_ingest(refused, key, place)
                    _keep_refusal(self.request, key, doc, piece)
                    group.problem = group.problem or doc
                continue
            if group is not None:
                group.items.append(item)

    def _group(self, key: object, place: int, piece: Piece) -> _Group | None:
        if not isinstance(key, str):
            return None
        try:
            check_session_key(key)
        except Problem:
            return None
        group = self.groups.setdefault(key, _Group())
        group.places.append(place)
        group.digest.update(piece.raw.encode("utf-8", "surrogatepass") + b"\0")
        return group

    def store(self) -> None:
        """Store each session's items in a transaction of its own."""
        for key, group in self.groups.items():
            if group.problem is None:
                self._store_group(key, group)
            if group.problem is not None:
                self._refuse_group(key, group)

    def _store_group(self, key: str, group: _Group) -> None:
        request_key = _request_key(self.request, group.digest.digest(), "ingest")
        try:
            stored = store_items(self.request.auth.workspace, key, group.items, request_key)
        except IngestError as error:
            place = group.places[error.item]
            group.problem = problems.of_ingest(error, key, place)
            if isinstance(error, UpdateRefused):
                _keep_refusal(self.request, key, group.problem, self.pieces[place])
            return
        self.created = self.created or stored.created
        status = 201 if stored.created else 200
        for place, answer in zip(group.places, stored.answers, strict=True):
            self.results[place] = {"item": place, "session": key, "status": status, **answer}

    def _refuse_group(self, key: str, group: _Group) -> None:
        problem = group.problem or {}
        at = problem.get("item")
        for place in group.places:
            if place == at:
                self.results[place] = _refused(place, key, problem)
                continue
            doc = problems.document(
                424, "batch_refused", "Refused with its batch",
                f"Nothing of this session's items was stored, because item {at} was refused.",
                item=place, session=key, because=at,
            )  # fmt: skip
            self.results[place] = _refused(place, key, doc)

    def response(self) -> HttpResponse:
        refused = [result["problem"] for result in self.results if "problem" in result]
        if not refused:
            return _answer({"results": self.results}, 201 if self.created else 200)
        if len(refused) < len(self.results):
            return _answer({"results": self.results, "refused": len(refused)}, 207)
        first = next((doc for doc in refused if doc["rule"] != "batch_refused"), refused[0])
        return problems.response({**first, "results": self.results})


def _refused(place: int, key: str | None, problem: dict[str, Any]) -> dict[str, Any]:
    return {"item": place, "session": key, "status": problem["status"], "problem": problem}
