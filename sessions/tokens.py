"""Runner tokens: made, checked, revoked. A token's secret is shown once and never stored."""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Iterable
from datetime import timedelta

from django.db import OperationalError, transaction
from django.db.models import Q
from django.utils import timezone

from . import audit
from .models import Token, Workspace
from .statements import select_row
from .workspaces import default_workspace, workspace_by_id

logger = logging.getLogger(__name__)

SCOPES = ("ingest", "read")
_SEEN_EVERY = timedelta(minutes=1)
_BY_DIGEST = f"SELECT * FROM {Token._meta.db_table} WHERE digest = %s AND revoked_at IS NULL"  # noqa: S608


def digest_of(secret: str) -> bytes:
    """SHA-256 of the secret: enough for 256 random bits, and quick enough for each request."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def create_token(
    label: str, scopes: Iterable[str], secret: str | None = None, *,
    workspace: Workspace | None = None, actor: str = "setup",
) -> tuple[Token, str]:  # fmt: skip
    """A new token and its secret (256 random bits unless given), which is not kept.

    Raises ValueError for an unknown scope or an empty secret.
    """
    wanted = set(scopes)
    if not wanted or not wanted <= set(SCOPES):
        raise ValueError(f"scopes are {' and '.join(SCOPES)}")
    if secret is None:
        secret = f"nous_{secrets.token_urlsafe(32)}"
    if not secret.strip() or secret != secret.strip() or not secret.isascii():
        raise ValueError("a token is ASCII text without spaces around it")
    owner = workspace or default_workspace()
    # at most a quarter of a short secret may be seen
    prefix = secret[: min(10, len(secret) // 4)]
    with transaction.atomic():
        token = Token.objects.create(
            workspace=owner, label=label, prefix=prefix, digest=digest_of(secret),
            can_ingest="ingest" in wanted, can_read="read" in wanted, created_at=timezone.now(),
        )  # fmt: skip
        audit.record(
            "token_created", actor=actor, target=label, workspace=owner, scopes=sorted(wanted)
        )
    return token, secret


def revoke_token(token: Token, *, actor: str) -> None:
    """Refuse the token from the next request on. Doing it twice changes nothing."""
    with transaction.atomic():
        changed = Token.objects.filter(pk=token.pk, revoked_at=None).update(
            revoked_at=timezone.now()
        )
        if changed:
            audit.record(
                "token_revoked", actor=actor, target=token.label, workspace=token.workspace
            )


def find_token(secret: str) -> Token | None:
    """The valid token with this secret, its workspace loaded; None when there is none.

    One query. Asked on every request, so that a revocation holds at once.
    """
    token = select_row(Token, "digest = %s AND revoked_at IS NULL", [digest_of(secret)])
    if token is not None:
        token.workspace = workspace_by_id(token.workspace_id)
    return token


def mark_used(token: Token) -> None:
    """Note when the token was last used, to the minute. Never in the way of the request."""
    now = timezone.now()
    if token.last_used_at is not None and now - token.last_used_at < _SEEN_EVERY:
        return
    try:
        stale = Q(last_used_at=None) | Q(last_used_at__lt=now - _SEEN_EVERY)
        Token.objects.filter(stale, pk=token.pk).update(last_used_at=now)
    except OperationalError as error:
        logger.info("last use of token %s not noted: %s", token.prefix, error)
