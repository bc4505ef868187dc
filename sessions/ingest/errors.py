"""What ingest refuses. Each error names the item, the field, the rule and the way out; the
API turns it into a problem document in one place."""

from __future__ import annotations

from typing import Any

from ..core.reducer import OperationRefused


class IngestError(Exception):
    """Nothing of the batch was stored. `item` is the place in the batch (0 for a single one),
    `field` a path into the item, `rule` a short name, `extra` further members."""

    rule = "refused"

    def __init__(self, item: int, field: str, message: str, **extra: Any) -> None:
        super().__init__(message)
        self.item, self.field, self.message, self.extra = item, field, message, extra


class UpdateRefused(IngestError):
    """The reducer refuses an operation."""

    def __init__(self, item: int, refused: OperationRefused) -> None:
        super().__init__(
            item,
            f"operations/{refused.index}/{refused.field}",
            refused.message,
            operation=refused.index,
        )
        self.rule = refused.rule


class EventRefused(IngestError):
    """The log would not take this event, and the runner can't have committed it."""

    def __init__(self, item: int, field: str, rule: str, message: str) -> None:
        super().__init__(item, field, message)
        self.rule = rule


class SequenceGap(IngestError):
    """A seq that is ahead of the log: something before it has not arrived."""

    rule = "sequence_gap"

    def __init__(self, item: int, field: str, seq: int, expected: int) -> None:
        super().__init__(
            item,
            field,
            f"seq {seq} is ahead of the log, which expects {expected}: post the events from "
            f"{expected} on first.",
            expected_seq=expected,
        )


class SequenceConflict(IngestError):
    """A seq that is held already, with other content."""

    rule = "sequence_conflict"

    def __init__(self, item: int, field: str, seq: int, expected: int, held: str) -> None:
        super().__init__(
            item,
            field,
            f"seq {seq} is already held, as a {held}, with other content. If the runner went "
            f'back to an older context, post /rewind with {{"to_seq": {seq}}} first, or send '
            'the event with "rewind": true.',
            expected_seq=expected,
            rewind={"to_seq": seq},
        )


class VersionConflict(IngestError):
    """`expected_version` is not the session's version."""

    rule = "version_conflict"

    def __init__(self, item: int, expected: int, version: int) -> None:
        super().__init__(
            item,
            "expected_version",
            f"The session is at version {version}, not {expected}.",
            version=version,
        )


class IdempotencyMismatch(IngestError):
    """An id, or an Idempotency-Key, that was used with another body."""

    rule = "idempotency_mismatch"


class BadRewind(IngestError):
    """A rewind to a point that the log has not reached."""

    rule = "rewind_out_of_range"
