"""Bearer tokens with scopes."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja.security import HttpBearer

from ..models import Token
from ..tokens import find_token, mark_used
from .problems import Problem


class TokenAuth(HttpBearer):
    """A valid token with the scope; it becomes `request.auth`. 401 without one, 403 without
    the scope."""

    def __init__(self, scope: str) -> None:
        super().__init__()
        self.scope = scope

    def __call__(self, request: HttpRequest) -> Any:
        header = request.headers.get("Authorization", "")
        kind, _, secret = header.partition(" ")
        token = find_token(secret.strip()) if kind.lower() == "bearer" and secret else None
        if token is None:
            raise Problem(
                401, "not_authenticated", "No valid token",
                "Send the header Authorization: Bearer <token> with a token that is valid and "
                "not revoked.", headers={"WWW-Authenticate": 'Bearer realm="nousweb"'},
            )  # fmt: skip
        if not getattr(token, f"can_{self.scope}"):
            raise Problem(
                403, "scope_missing", "The token lacks a scope",
                f"This needs a token with the scope {self.scope!r}.", scope=self.scope,
            )  # fmt: skip
        mark_used(token)
        return token

    def authenticate(self, request: HttpRequest, token: str) -> Token | None:
        """Not called: `__call__` answers itself, with problem documents."""
        return find_token(token)


ingest_auth = TokenAuth("ingest")
read_auth = TokenAuth("read")
