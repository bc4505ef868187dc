"""The only writer of the log: updates, events, rewinds, and what a runner says of a session."""

from .errors import (
    BadRewind,
    EventRefused,
    IdempotencyMismatch,
    IngestError,
    SequenceConflict,
    SequenceGap,
    UpdateRefused,
    VersionConflict,
)
from .items import EventItem, Item, UpdateItem
from .service import (
    RequestKey,
    Stored,
    change_session,
    record_refusal,
    rewind_session,
    store_items,
)

__all__ = [
    "BadRewind",
    "EventItem",
    "EventRefused",
    "IdempotencyMismatch",
    "IngestError",
    "Item",
    "RequestKey",
    "SequenceConflict",
    "SequenceGap",
    "Stored",
    "UpdateItem",
    "UpdateRefused",
    "VersionConflict",
    "change_session",
    "record_refusal",
    "rewind_session",
    "store_items",
]
