"""Bodies: read once, checked for type, size and form, their parts kept as the text received."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, UnreadablePostError
from pydantic import BaseModel, ValidationError

from ..core import strict_json
from ..core.reducer import Operation, OperationRefused, Path, parse_operation
from ..core.strict_json import Node, Shape, StrictJSONError
from ..ingest import EventItem, Item, UpdateItem, UpdateRefused
from ..models import SESSION_KEY_PATTERN
from .problems import Problem, body_too_large, of_json, too_large
from .schemas import EventIn, UpdateIn

Model = TypeVar("Model", bound=BaseModel)

JSON = "application/json"
NDJSON = ("application/x-ndjson", "application/ndjson", "application/jsonl")
_KEY = re.compile(SESSION_KEY_PATTERN)
_OPERATION = Shape(members={})
_ITEM = Shape(members={"operations": Shape(item=_OPERATION)})
_ITEMS = Shape(item=_ITEM, members=_ITEM.members)
_FLAT = Shape(members={})


@dataclass(frozen=True, slots=True)
class Body:
    """A body as text, the node of its document, and the digest of its bytes."""

    text: str
    node: Node
    digest: bytes


@dataclass(frozen=True, slots=True)
class Piece:
    """One item of a batch: its node, and the text that the node's places refer to."""

    text: str
    node: Node

    @property
    def raw(self) -> str:
        return self.text[self.node.start : self.node.end]


class ItemProblem(Exception):
    """An item that has not the right form; `problem` says why, without the item's place."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


# -- bodies --------------------------------------------------------------------------------


def check_session_key(key: str) -> str:
    """The key, or a 422: 1–200 of A–Z a–z 0–9 . _ : - and not `.` or `..`, which no URL keeps."""
    if _KEY.fullmatch(key) is None or key in (".", ".."):
        raise Problem(
            422, "session_key", "Not a session key",
            "A session key is 1–200 of the characters A–Z a–z 0–9 . _ : - (and neither . nor ..).",
            field="session",
        )  # fmt: skip
    return key


def read_body(request: HttpRequest) -> bytes:
    """The body's bytes. 413 for too many, 415 for an encoding, 400 for a body that broke off."""
    encoding = request.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        raise Problem(
            415, "content_encoding", "Unsupported encoding",
            f"Content-Encoding {encoding[:40]!r} is not taken: send the body as it is.",
            headers={"Accept-Encoding": "identity"},
        )  # fmt: skip
    try:
        body = request.body
    except RequestDataTooBig:
        raise body_too_large() from None
    except UnreadablePostError:
        raise _truncated() from None
    if len(body) > settings.LIMITS["body_bytes"]:
        raise body_too_large()
    declared = request.META.get("CONTENT_LENGTH") or ""
    if declared.isdecimal() and int(declared) != len(body):
        raise _truncated()
    return body


def _truncated() -> Problem:
    return Problem(
        400, "truncated_body", "The body broke off",
        "Fewer bytes came than Content-Length says; nothing was stored.",
    )  # fmt: skip


def content_type(request: HttpRequest, *allowed: str) -> str:
    """The request's media type, or a 415 that names those allowed."""
    kind, _, parameters = request.headers.get("Content-Type", "").partition(";")
    kind = kind.strip().lower()
    charset = re.search(r"charset\s*=\s*\"?([\w-]+)", parameters, re.IGNORECASE)
    if kind in allowed and (charset is None or charset[1].lower() in ("utf-8", "utf8")):
        return kind
    raise Problem(
        415, "content_type", "Unsupported content type",
        f"Send Content-Type: {' or '.join(allowed[:2])} in UTF-8.",
        headers={"Accept": ", ".join(allowed)},
    )  # fmt: skip


def json_body(request: HttpRequest, shape: Shape = _FLAT) -> Body:
    """A JSON body of the request; 415, 413 or 400 when it is none."""
    content_type(request, JSON)
    raw = read_body(request)
    try:
        text = strict_json.decode(raw)
        return Body(text, strict_json.read(text, shape), hashlib.sha256(raw).digest())
    except StrictJSONError as error:
        raise of_json(error) from None


def pieces_of(request: HttpRequest) -> tuple[list[Piece], bool, bytes]:
    """The items of a body that is one object or an array of them; whether it was an array; and
    the digest of its bytes."""
    body = json_body(request, _ITEMS)
    if isinstance(body.node.value, list):
        return _limited([Piece(body.text, node) for node in body.node.parts]), True, body.digest
    return [Piece(body.text, body.node)], False, body.digest


def batch_pieces(request: HttpRequest) -> tuple[list[Piece], bytes]:
    """The items of a batch: a JSON array, or one JSON document a line."""
    kind = content_type(request, JSON, *NDJSON)
    if kind == JSON:
        pieces, is_array, digest = pieces_of(request)
        if not is_array:
            raise Problem(
                422, "array_required", "Not a batch",
                "A batch is a JSON array of items, or one item a line as application/x-ndjson.",
            )  # fmt: skip
        return pieces, digest
    raw = read_body(request)
    try:
        text = strict_json.decode(raw)
    except StrictJSONError as error:
        raise of_json(error) from None
    return _limited(list(_lines(text))), hashlib.sha256(raw).digest()


def _lines(text: str) -> Iterator[Piece]:
    for number, line in enumerate(text.split("\n")):
        if not line.strip(" \t\r"):
            continue
        try:
            yield Piece(line, strict_json.read(line, _ITEM))
        except StrictJSONError as error:
            raise of_json(error, number) from None


def _limited(pieces: list[Piece]) -> list[Piece]:
    limit = settings.LIMITS["batch_items"]
    if len(pieces) > limit:
        raise too_large("Too many items in one batch", limit, "items")
    return pieces


# -- items ---------------------------------------------------------------------------------


def validate(model: type[Model], value: Any) -> Model:
    """The value as a `model`. Raises ItemProblem naming every field that is wrong."""
    if not isinstance(value, dict):
        raise ItemProblem(
            Problem(422, "object_required", "Not an object", "A JSON object is required.")
        )
    try:
        return model.model_validate(value)
    except ValidationError as error:
        faults = [
            {
                "field": "/".join(str(part) for part in fault["loc"]),
                "rule": _RULES.get(fault["type"], fault["type"]),
                "detail": fault["msg"].removeprefix("Value error, "),
            }
            for fault in error.errors(include_url=False, include_input=False, include_context=False)
        ]
    first = faults[0]
    raise ItemProblem(
        Problem(
            422, str(first["rule"]), "A field is not right",
            f"{first['field']}: {first['detail']}.", field=first["field"],
            errors=faults[:20],
        )
    )  # fmt: skip


_RULES = {
    "extra_forbidden": "unknown_field",
    "missing": "missing_field",
    "string_too_long": "too_long",
    "too_long": "too_many",
    "value_error": "invalid_value",
    "string_unicode": "lone_surrogate",
}


def update_item(piece: Piece, index: int, value: dict[str, Any] | None = None) -> Item:
    """The update of a piece. `value` stands in for the node's value (without `session`).

    Raises ItemProblem for its form, UpdateRefused for an operation that can't be built.
    """
    form = validate(UpdateIn, piece.node.value if value is None else value)
    node: Node = piece.node.parts["operations"]
    operations: list[Operation] = []
    data_texts: dict[int, str] = {}
    for place, part in enumerate(node.parts):
        try:
            operation = parse_operation(part.value, place)
        except OperationRefused as refused:
            raise UpdateRefused(index, refused) from None
        _check_lengths(operation, place)
        if operation.name == "log_event":
            data = part.parts[2] if isinstance(part.parts, list) else part.parts["data"]
            data_texts[place] = _event_text(piece.text, data, f"operations/{place}/data")
        operations.append(operation)
    return UpdateItem(
        operations=operations,
        operations_text=piece.text[node.start : node.end],
        data_texts=data_texts,
        text=piece.raw,
        path=Path(form.path),
        client_id=form.id,
        digest=_digest(form.id, piece),
        tool_call_id=form.tool_call.id if form.tool_call else None,
        tool_name=form.tool_call.name if form.tool_call else None,
        occurred_at=form.occurred_at,
        first_seq=form.first_seq,
        expected_version=form.expected_version,
    )


def event_item(piece: Piece, value: dict[str, Any] | None = None) -> Item:
    """The event of a piece. Raises ItemProblem for its form."""
    form = validate(EventIn, piece.node.value if value is None else value)
    if not isinstance(form.data, dict):
        raise ItemProblem(
            Problem(
                422, "map_required", "A field is not right", "data: a JSON object is required.",
                field="data",
            )
        )  # fmt: skip
    if form.rewind and form.seq is None:
        raise ItemProblem(
            Problem(
                422, "rewind_needs_seq", "A field is not right",
                "rewind: only an event with a seq can take the log back to it.", field="rewind",
            )
        )  # fmt: skip
    return EventItem(
        type=form.type,
        data=form.data,
        data_text=_event_text(piece.text, piece.node.parts["data"], "data"),
        time=form.time,
        seq=form.seq,
        rewind=form.rewind,
        client_id=form.id,
        digest=_digest(form.id, piece),
        text=piece.raw,
    )


def batch_item(piece: Piece, index: int) -> tuple[str, Item]:
    """The session key and the item of a piece of a batch over many sessions: an update (it has
    `operations`) or an event (it has `type`), with `session` beside."""
    value = piece.node.value
    if not isinstance(value, dict):
        raise ItemProblem(
            Problem(422, "object_required", "Not an object", "An item is a JSON object.")
        )
    key = value.get("session")
    if not isinstance(key, str):
        rule = "missing_field" if key is None else "text_required"
        raise ItemProblem(
            Problem(
                422, rule, "A field is not right",
                "session: the key of the session is required, as text.", field="session",
            )
        )  # fmt: skip
    try:
        check_session_key(key)
    except Problem as problem:
        raise ItemProblem(problem) from None
    rest = {name: part for name, part in value.items() if name != "session"}
    if "operations" in rest and "type" not in rest:
        return key, update_item(piece, index, rest)
    if "type" in rest and "operations" not in rest:
        return key, event_item(piece, rest)
    raise ItemProblem(
        Problem(
            422, "item_kind", "Neither an update nor an event",
            "An item has either operations (an update) or type (an event).",
            field="operations",
        )
    )  # fmt: skip


def _digest(client_id: str | None, piece: Piece) -> bytes | None:
    """What two items with one id must have in common: the JSON value, session included."""
    if client_id is None:
        return None
    return hashlib.sha256(strict_json.canonical(piece.node.value).encode()).digest()


def _event_text(text: str, node: Node, field: str) -> str:
    raw = text[node.start : node.end]
    limit = settings.LIMITS["event_bytes"]
    if len(raw) > limit // 4 and len(raw.encode()) > limit:
        raise ItemProblem(
            too_large("The data of an event is too large", limit, "bytes", 422, field=field)
        )
    return raw


def _check_lengths(operation: Operation, place: int) -> None:
    if operation.name == "log_event":
        limit, what, name = settings.LIMITS["name_characters"], "type", "An event's type"
        if not strict_json.storable(operation.key):
            raise ItemProblem(
                Problem(
                    422, "plain_text_required", "A field is not right",
                    "The type of an event is text without NUL and without lone surrogates.",
                    field=f"operations/{place}/type",
                )
            )  # fmt: skip
    else:
        limit, what, name = settings.LIMITS["key_characters"], "key", "A deps key"
    if len(operation.key) > limit:
        field = f"operations/{place}/{what}"
        raise ItemProblem(too_large(f"{name} is too long", limit, "characters", 422, field=field))
