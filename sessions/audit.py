"""The only writer of AuditRecord: who did what to the dashboard itself."""

from __future__ import annotations

from django.utils import timezone

from .core.strict_json import dumps
from .models import NAME_LENGTH, AuditRecord, Workspace


def record(
    action: str, *, actor: str, target: str = "", workspace: Workspace | None = None,
    **detail: object,
) -> AuditRecord:  # fmt: skip
    """Write down that `actor` (a user's name or a token's label) did `action` to `target`.

    Call it inside the transaction of the action itself, so that neither stands alone.
    """
    return AuditRecord.objects.create(
        workspace=workspace, at=timezone.now(), actor=actor[:NAME_LENGTH], action=action,
        target=target[:NAME_LENGTH], detail=dumps(detail),
    )  # fmt: skip
