"""What ingest takes: an update or an event, read and checked for form, its texts as received."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..core.reducer import Operation, Path


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateItem:
    """An update. `operations_text` is the JSON array as received; `data_texts` has, by the
    operation's index, the data of each `log_event` as received; `digest` (32 bytes) says
    whether two items with one `client_id` are the same. `text` is the whole item."""

    operations: list[Operation]
    operations_text: str
    data_texts: Mapping[int, str]
    text: str
    path: Path = Path.CONTEXT
    client_id: str | None = None
    digest: bytes | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    occurred_at: str | None = None
    first_seq: int | None = None
    expected_version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventItem:
    """A session event. `data_text` is its data as received, `time` the runner's clock."""

    type: str
    data: dict[str, Any]
    data_text: str
    time: str | None = None
    seq: int | None = None
    rewind: bool = False
    client_id: str | None = None
    digest: bytes | None = None
    text: str = field(default="")


Item = UpdateItem | EventItem
