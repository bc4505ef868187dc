"""The forms of what comes in and goes out: they check the one, and document both."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from django.conf import settings
from ninja import Schema
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema

from ..core.strict_json import storable
from ..core.times import is_time

_NAME = settings.LIMITS["name_characters"]
_MOST_INT = 2**63 - 1


def plain_text(text: str) -> str:
    """The text, if both databases take it as it is; else ValueError."""
    if not storable(text):
        raise ValueError("text without NUL and without lone surrogates is required")
    return text


def _time(text: str) -> str:
    if not is_time(text):
        raise ValueError(
            "a time with date, seconds and offset is required, such as 2026-03-01T09:00:00.000Z"
        )
    return text


Name = Annotated[str, Field(max_length=_NAME), AfterValidator(plain_text)]
Identifier = Annotated[str, Field(min_length=1, max_length=_NAME), AfterValidator(plain_text)]
Time = Annotated[
    str, AfterValidator(_time), WithJsonSchema({"type": "string", "format": "date-time"})
]
Count = Annotated[int, Field(ge=0, le=_MOST_INT)]
AnyJson = Annotated[Any, WithJsonSchema({})]
AnyObject = Annotated[Any, WithJsonSchema({"type": "object"})]
OperationForm = Annotated[
    Any,
    WithJsonSchema(
        {
            "oneOf": [
                {"type": "array", "examples": [["append", "notes", "x"]]},
                {
                    "type": "object",
                    "required": ["op"],
                    "properties": {
                        "op": {"enum": ["set", "merge", "append", "delete", "log_event"]},
                        "key": {"type": "string"},
                        "value": {},
                        "type": {"type": "string"},
                        "data": {"type": "object"},
                    },
                },
            ]
        }
    ),
]


class Strict(BaseModel):
    """Nothing is coerced, and a field that is not known is refused by name."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ToolCall(Strict):
    """The tool call that returned an update."""

    id: Identifier
    name: Name


class UpdateIn(Strict):
    """A context update: operations in order, and the path that they took."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [
                {
                    "id": "call_7",
                    "path": "context",
                    "operations": [
                        ["append", "notes", "disk full"],
                        {"op": "log_event", "type": "tool_call", "data": {"id": "call_7:code:0"}},
                    ],
                    "tool_call": {"id": "call_7", "name": "run_code"},
                    "occurred_at": "2026-03-01T09:00:00.000Z",
                    "first_seq": 12,
                }
            ]
        },
    )

    operations: list[OperationForm] = Field(max_length=settings.LIMITS["operations"])
    id: Identifier | None = None
    path: Literal["context", "run_context", "runner"] = "context"
    tool_call: ToolCall | None = None
    occurred_at: Time | None = None
    first_seq: Count | None = None
    expected_version: Count | None = None


class EventIn(Strict):
    """A session event, as the runner's log has it."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [
                {
                    "seq": 0,
                    "type": "user_message",
                    "time": "2026-03-01T09:00:00.000Z",
                    "data": {"content": "Why is the disk full?"},
                }
            ]
        },
    )

    type: Identifier
    data: AnyObject
    seq: Count | None = None
    time: Time | None = None
    rewind: bool = False
    id: Identifier | None = None


class RewindIn(Strict):
    """Back to when the log had `to_seq` events."""

    to_seq: Count
    reason: Annotated[str, Field(max_length=2000), AfterValidator(plain_text)] = ""


class UsageIn(Strict):
    """Token counters of the whole session so far."""

    requests: Count | None = None
    tool_calls: Count | None = None
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    total_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None


class SessionPatch(Strict):
    """What a runner says of its session."""

    agent_name: Name | None = None
    labels: Annotated[dict[Identifier, Name], Field(max_length=50)] | None = None
    usage: UsageIn | None = None
    status: Literal["ended"] | None = None


# -- out -----------------------------------------------------------------------------------


class ProblemOut(Schema):
    """RFC 9457."""

    type: str = Field(examples=["/problems/sequence_gap"])
    title: str
    status: int
    detail: str
    rule: str
    item: int | None = Field(None, description="Place in the batch, from 0.")
    field: str | None = Field(None, description="Path into the item.")
    expected_seq: int | None = None


class EventResult(Schema):
    """What became of an event."""

    type: str
    disposition: Literal["logged", "dropped", "refused", "invalid"]
    seq: int | None = Field(None, description="When logged.")
    reason: str | None = Field(None, description="When lost.")
    ordinal: int
    duplicate: bool | None = Field(None, description="It was there already.")


class UpdateResult(Schema):
    """What became of an update."""

    version: int = Field(examples=[17])
    ordinal: int
    epoch: int
    keys: list[str] = Field(description="Deps keys touched, in order of first touch.")
    events: list[EventResult]
    differs: list[str] | None = Field(
        None, description="Path runner: keys that context would have left otherwise."
    )
    context_refuses: str | None = None


class Results(Schema):
    """An array's results, in its order."""

    results: list[dict[str, AnyJson]]


class RewindResult(Schema):
    epoch: int
    to_seq: int
    next_seq: int
    version: int
    deps_version: int
    abandoned: int


class SessionOut(Schema):
    """A session, from the counters on its row."""

    key: str
    url: str
    agent_name: str
    labels: dict[str, str]
    usage: dict[str, int]
    status: Literal["running", "idle", "ended", "interrupted"]
    started_at: datetime
    last_activity_at: datetime
    ended_at: datetime | None
    parent: str | None
    seed_length: int | None
    version: int
    next_seq: int
    next_ordinal: int
    epoch: int
    turn: int | None = Field(description="The open turn's number.")
    step: int | None = Field(description="The open step's number.")
    turns: int
    steps: int
    updates: int
    events: int
    logged: int
    dropped: int
    refused: int
    invalid: int
    lost: int
    tool_calls: int
    errors: int
    abandoned: int
    refusals: int
    total_tokens: int


class SessionList(Schema):
    sessions: list[SessionOut]
    next: str | None = Field(description="Send as `after` for the next page; null at the end.")


class EventOut(Schema):
    ordinal: int
    epoch: int
    seq: int | None
    turn: int
    step: int
    type: str
    data: AnyObject
    time: str | None
    received_at: datetime
    disposition: Literal["logged", "dropped", "refused", "invalid"]
    reason: str | None
    update_version: int | None


class EventList(Schema):
    events: list[EventOut]
    next: int | None = Field(description="Send as `after_ordinal`; null when there are no more.")


class UpdateOut(Schema):
    version: int
    ordinal: int
    epoch: int
    turn: int
    step: int
    path: Literal["context", "run_context", "runner"]
    operations: list[OperationForm]
    keys: list[str]
    differs: list[str]
    protected_keys: list[str] = Field(
        description="Keys touched that some versions of Nous protect from tools."
    )
    events: list[EventResult]
    id: str | None
    tool_call: ToolCall | None
    occurred_at: str | None
    received_at: datetime


class UpdateList(Schema):
    updates: list[UpdateOut]
    next: int | None = Field(description="Send as `after_version`; null when there are no more.")


class DepsOut(Schema):
    version: int
    epoch: int
    deps: AnyObject
