"""The blob in which a runner saves its context: versions 1 to 3 read, 2 and 3 written.

A blob is a JSON object, already parsed. Nothing that is dropped, renumbered or replaced on
the way in goes unsaid: each such thing is a `Note` of the report.

Source: `Nous.Agent.Context` serialization; vectors `context_blob.json`, `context_v3.json` and
`serialize_deps.json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from .events import KNOWN_TYPES, fault_of, is_integer
from .transcript import LogEvent, Transcript, message_of, transcript_of, utc_text

COUNTERS = (
    "requests",
    "tool_calls",
    "input_tokens",
    "output_tokens",
    "total_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
)
"""The counters of `usage`; a blob holds these and no others."""

CREDENTIAL_WORDS = (
    "api_key",
    "apikey",
    "token",
    "secret",
    "password",
    "passwd",
    "authorization",
    "credential",
    "private_key",
    "access_key",
    "auth_token",
    "bearer",
)
"""A deps key that holds one of these, in any case, is never written."""

DEFAULT_MAX_ITERATIONS = 10

_TYPE_OF_ROLE = {
    "system": "system_message",
    "user": "user_message",
    "assistant": "assistant_message",
    "tool": "tool_result",
}
_WRITTEN_FIELDS = ("role", "content", "name", "metadata", "tool_calls", "tool_call_id")


class Reader(StrEnum):
    """Two readers live in the field. `V2` numbers events anew and knows no version 3;
    `LATER` keeps the seqs, gaps included, and drops an event that stands behind the head."""

    V2 = "v2"
    LATER = "later"


class NoteKind(StrEnum):
    """What a reader had to change or leave out."""

    EVENTS_NOT_A_LIST = "events_not_a_list"
    UNKNOWN_EVENT_TYPE = "unknown_event_type"
    UNREADABLE_TIME = "unreadable_time"
    UNREADABLE_SURFACE_OP = "unreadable_surface_op"
    SEQ_MISMATCH = "seq_mismatch"
    SEQ_BEHIND_HEAD = "seq_behind_head"
    EVENT_REJECTED_RETRYING = "event_rejected_retrying"
    EVENT_DROPPED = "event_dropped"
    UNKNOWN_ROLE = "unknown_role"


_ERROR_KINDS = frozenset({NoteKind.EVENT_REJECTED_RETRYING, NoteKind.EVENT_DROPPED})


@dataclass(frozen=True, slots=True)
class Note:
    """One item of a report. `index`: the place of the event or message in its list, None when
    the note is about the blob. `fields`: what belongs to the kind, as upstream reports it."""

    kind: NoteKind
    index: int | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def level(self) -> str:
        """`error` when an event was lost that could be read, else `warning`."""
        return "error" if self.kind in _ERROR_KINDS else "warning"

    def as_json(self) -> dict[str, Any]:
        """`{kind, level, …fields}`, the form of the vectors."""
        return {"kind": self.kind.value, "level": self.level, **self.fields}


class BlobFault(StrEnum):
    """Why a blob can't be read."""

    MISSING_VERSION = "missing_version"
    UNSUPPORTED_VERSION = "unsupported_version"
    MALFORMED = "malformed"


class BlobRefused(ValueError):
    """A blob that can't be read; nothing of it may be used.

    `reason` names the fault of a malformed one, else it is None; `notes` are those made before
    the fault was found.
    """

    def __init__(self, fault: BlobFault, reason: str | None = None) -> None:
        super().__init__(f"{fault.value}: {reason}" if reason else fault.value)
        self.fault, self.reason = fault, reason
        self.notes: list[Note] = []


@dataclass(frozen=True, slots=True)
class Context:
    """A runner's saved state. `events` ascend in seq, their times in UTC; `started_at` is UTC
    text or None. Fields that upstream doesn't check are as the blob had them."""

    events: list[LogEvent]
    deps: Any = field(default_factory=dict)
    system_prompt: Any = None
    tool_calls: Any = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))
    needs_response: Any = False
    iteration: Any = 0
    max_iterations: Any = DEFAULT_MAX_ITERATIONS
    started_at: str | None = None
    agent_name: Any = None

    @property
    def next_seq(self) -> int:
        """The seq of the event to come."""
        return self.events[-1].seq + 1 if self.events else 0

    @property
    def transcript(self) -> Transcript:
        """The transcript of the events. Computed at each call."""
        return transcript_of(self.events)


@dataclass(frozen=True, slots=True)
class ReadBlob:
    """A context, the version it was written in, and the report of reading it, in order."""

    context: Context
    version: int
    notes: list[Note]


# -- reading -------------------------------------------------------------------------------


def read_blob(blob: object, *, now: str, reader: Reader = Reader.LATER) -> ReadBlob:
    """The context that a blob holds. `now`: time text for events that have none of their own.

    Linear in the events; data are shared with `blob`. Deps are not filtered.
    Raises BlobRefused. Source: vectors `context_blob.json` and `context_v3.json`.
    """
    if not isinstance(blob, dict):
        raise BlobRefused(BlobFault.MALFORMED, "blob_not_an_object")
    version = _version(blob, reader)
    reading = _Reading(now, reader)
    try:
        reading.take_log(blob, version)
        context = _context(blob, reading.events)
    except BlobRefused as refused:
        refused.notes = reading.notes
        raise
    return ReadBlob(context, version, reading.notes)


def _version(blob: Mapping[str, Any], reader: Reader) -> int:
    version = blob.get("version")
    if version is None:
        raise BlobRefused(BlobFault.MISSING_VERSION)
    newest = 2 if reader is Reader.V2 else 3
    if not isinstance(version, int) or not is_integer(version) or not 1 <= version <= newest:
        raise BlobRefused(BlobFault.UNSUPPORTED_VERSION)
    return version


def _context(blob: Mapping[str, Any], events: list[LogEvent]) -> Context:
    return Context(
        events=events,
        deps=_given(blob, "deps", {}),
        system_prompt=blob.get("system_prompt"),
        tool_calls=_given(blob, "tool_calls", []),
        usage=_usage(blob),
        needs_response=_given(blob, "needs_response", False),
        iteration=_given(blob, "iteration", 0),
        max_iterations=_given(blob, "max_iterations", DEFAULT_MAX_ITERATIONS),
        started_at=_started_at(blob),
        agent_name=blob.get("agent_name"),
    )


def _given(source: Mapping[str, Any], key: str, default: Any) -> Any:
    """The value, or the default when it is missing, null or false."""
    value = source.get(key)
    return default if value is None or value is False else value


def _usage(blob: Mapping[str, Any]) -> dict[str, Any]:
    usage = _given(blob, "usage", {})
    if not isinstance(usage, dict):
        raise BlobRefused(BlobFault.MALFORMED, "usage_not_an_object")
    return {counter: _given(usage, counter, 0) for counter in COUNTERS}


def _started_at(blob: Mapping[str, Any]) -> str | None:
    started_at = blob.get("started_at")
    if started_at is None:
        return None
    if not isinstance(started_at, str):
        raise BlobRefused(BlobFault.MALFORMED, "started_at_not_text")
    return utc_text(started_at)


class _Reading:
    """The events read so far, and the notes made on the way."""

    def __init__(self, now: str, reader: Reader) -> None:
        self.now, self.reader = now, reader
        self.events: list[LogEvent] = []
        self.notes: list[Note] = []
        self.head = 0  # the seq of the event to come

    def note(self, kind: NoteKind, index: int | None = None, **fields: Any) -> None:
        self.notes.append(Note(kind, index, fields))

    def append(self, event_type: str, data: dict[str, Any], time: str, seq: int) -> None:
        self.events.append(LogEvent(seq, event_type, data, time))
        self.head = seq + 1

    def take_log(self, blob: Mapping[str, Any], version: int) -> None:
        raw = blob.get("events")
        if version > 1 and isinstance(raw, list):
            for index, item in enumerate(raw):
                self.take_event(index, item)
            return
        if version > 2:
            raise BlobRefused(BlobFault.MALFORMED, "events_not_a_list")
        if version == 2:
            self.note(NoteKind.EVENTS_NOT_A_LIST)
        for index, message in enumerate(_messages(blob)):
            self.seed(index, message)

    def take_event(self, index: int, item: object) -> None:
        if not isinstance(item, dict):
            raise BlobRefused(BlobFault.MALFORMED, "event_not_an_object")
        event_type = item.get("type")
        if not isinstance(event_type, str) or event_type not in KNOWN_TYPES:
            self.note(NoteKind.UNKNOWN_EVENT_TYPE, index)
            return
        time = self.time_of(index, item.get("time"))
        data = self.data_of(index, item.get("data"))
        seq = self.seq_of(item.get("seq"))
        if self.reader is Reader.LATER and seq < self.head:
            self.note(NoteKind.SEQ_BEHIND_HEAD, index, seq=seq, head=self.head)
            return
        reason = fault_of(event_type, data)
        if reason is not None:
            self.note(NoteKind.EVENT_REJECTED_RETRYING, index, type=event_type, reason=reason.value)
            self.note(NoteKind.EVENT_DROPPED, index, type=event_type)
            return
        if self.reader is Reader.V2 and seq != self.head:
            self.note(NoteKind.SEQ_MISMATCH, index, seq=seq, expected=self.head)
            seq = self.head
        self.append(event_type, data, time, seq)

    def seq_of(self, seq: object) -> int:
        """The seq an event came with, or the next one."""
        return seq if isinstance(seq, int) and is_integer(seq) else self.head

    def time_of(self, index: int, time: object) -> str:
        if not isinstance(time, str):
            return self.now
        read = utc_text(time)
        if read is None:
            self.note(NoteKind.UNREADABLE_TIME, index)
            return self.now
        return read

    def data_of(self, index: int, data: object) -> dict[str, Any]:
        if not isinstance(data, dict):
            return {}
        if "surface_op" not in data or _readable(data["surface_op"]):
            return data
        self.note(NoteKind.UNREADABLE_SURFACE_OP, index)
        return {key: value for key, value in data.items() if key != "surface_op"}

    def seed(self, index: int, message: object) -> None:
        """One surface event for a message of a blob that has no events."""
        if not isinstance(message, dict):
            raise BlobRefused(BlobFault.MALFORMED, "message_not_an_object")
        role = message.get("role")
        if not isinstance(role, str) or role not in _TYPE_OF_ROLE:
            self.note(NoteKind.UNKNOWN_ROLE, index)
            role = "user"
        if not _is_valid(message, role):
            raise BlobRefused(BlobFault.MALFORMED, "invalid_message")
        data: dict[str, Any] = {
            "content": message.get("content"),
            "name": message.get("name"),
            "metadata": _given(message, "metadata", {}),
        }
        if role == "assistant":
            data["tool_calls"] = _given(message, "tool_calls", [])
        if role == "tool":
            data["tool_call_id"] = message["tool_call_id"]
        self.append(_TYPE_OF_ROLE[role], data, self.now, self.head)


def _messages(blob: Mapping[str, Any]) -> list[object]:
    messages = _given(blob, "messages", [])
    if isinstance(messages, list):
        return messages
    if isinstance(messages, dict):  # upstream walks a map's pairs, and none of them is a message
        return list(messages.items())
    raise BlobRefused(BlobFault.MALFORMED, "messages_not_a_list")


def _readable(surface_op: object) -> bool:
    """`append`, or a replace with two integers; possible or not is for the log to judge."""
    if surface_op == "append":
        return True
    if not isinstance(surface_op, list) or len(surface_op) != 3 or surface_op[0] != "replace":
        return False
    return is_integer(surface_op[1]) and is_integer(surface_op[2])


def _is_valid(message: Mapping[str, Any], role: str) -> bool:
    name = message.get("name")
    if name is not None and not isinstance(name, str):
        return False
    if not isinstance(_given(message, "metadata", {}), dict):
        return False
    calls = _given(message, "tool_calls", [])
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        return False
    call_id = message.get("tool_call_id")
    if not (isinstance(call_id, str) if role == "tool" else call_id is None):
        return False
    content = message.get("content")
    if role == "assistant" and content is None:
        return True
    return isinstance(content, str) and (content != "" or role == "assistant")


# -- writing -------------------------------------------------------------------------------


def write_blob(context: Context, version: int) -> dict[str, Any]:
    """The context as a blob of version 2 or 3; deps that look like credentials stay out.

    Version 2 also carries the messages that the log projects to. A reader of version 2
    numbers events anew: written from a log with gaps, its replaces would then hide other
    events, so write those as version 3. Costs what the transcript costs; data are shared.
    Raises ValueError for another version. Source: the `reserialized` of the vectors.
    """
    if version not in (2, 3):
        raise ValueError(f"Blobs are written as version 2 or 3, not {version}.")
    blob: dict[str, Any] = {
        "version": version,
        "events": [
            {"seq": event.seq, "type": event.type, "time": event.time, "data": event.data}
            for event in context.events
        ],
    }
    if version == 2:
        blob["messages"] = [_written_message(event) for event in context.transcript.surface]
    return blob | {
        "tool_calls": context.tool_calls,
        "system_prompt": context.system_prompt,
        "deps": serialize_deps(context.deps),
        "usage": context.usage,
        "needs_response": context.needs_response,
        "iteration": context.iteration,
        "max_iterations": context.max_iterations,
        "started_at": context.started_at,
        "agent_name": context.agent_name,
    }


def _written_message(event: LogEvent) -> dict[str, Any]:
    message = message_of(event)
    return {name: message[name] for name in _WRITTEN_FIELDS}


def serialize_deps(deps: object) -> dict[str, Any]:
    """The deps that may be written: all but the top-level keys that look like credentials.

    Values and nested keys are not looked at. Deps that are no map are written as an empty one.
    Source: vectors `serialize_deps.json`.
    """
    if not isinstance(deps, dict):
        return {}
    return {key: value for key, value in deps.items() if not is_credential(key)}


def is_credential(key: str) -> bool:
    """Whether a deps key looks like a credential's: `max_tokens` does, `privateKey` doesn't."""
    lower = key.lower()
    return any(word in lower for word in CREDENTIAL_WORDS)
