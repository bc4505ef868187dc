"""Tokens: what is stored of them, their scopes, and revocation."""

import hashlib

import pytest

from sessions.models import AuditRecord, Token
from sessions.tokens import create_token, find_token, revoke_token

from .conftest import Api

pytestmark = pytest.mark.django_db


def test_only_a_prefix_and_the_hash_are_stored():
    _token, secret = create_token("runner", ["ingest"])
    stored = Token.objects.get()
    assert bytes(stored.digest) == hashlib.sha256(secret.encode()).digest()
    assert secret.startswith(stored.prefix)
    assert len(stored.prefix) <= 10
    assert secret not in str(stored.__dict__)


def test_a_secret_has_256_random_bits():
    secrets = {create_token("r", ["read"])[1] for _ in range(20)}
    assert len(secrets) == 20
    assert all(len(secret.removeprefix("nous_")) >= 43 for secret in secrets)


def test_a_read_token_may_not_post():
    answer = Api(create_token("r", ["read"])[1]).update("s", ["set", "a", 1])
    assert answer.status == 403
    assert answer.problem["scope"] == "ingest"


def test_an_ingest_token_may_not_read():
    api = Api(create_token("r", ["ingest"])[1])
    assert api.update("s", ["set", "a", 1]).status == 201
    assert api.get("sessions/s").status == 403
    assert api.get("sessions").status == 403


def test_a_revoked_token_is_refused_from_the_next_request_on():
    token, secret = create_token("r", ["ingest"])
    api = Api(secret)
    assert api.update("s", ["set", "a", 1]).status == 201
    revoke_token(token, actor="admin")
    assert api.update("s", ["set", "a", 1]).status == 401


def test_last_use_is_noted():
    token, secret = create_token("r", ["ingest"])
    assert token.last_used_at is None
    Api(secret).update("s", ["set", "a", 1])
    token.refresh_from_db()
    assert token.last_used_at is not None


def test_making_and_revoking_is_written_down():
    token, _ = create_token("r", ["ingest"], actor="alice")
    revoke_token(token, actor="bob")
    revoke_token(token, actor="bob")
    found = AuditRecord.objects.order_by("id").values_list("actor", "action", "target")
    assert list(found) == [("alice", "token_created", "r"), ("bob", "token_revoked", "r")]


@pytest.mark.parametrize("scopes", [[], ["write"], ["ingest", "admin"]])
def test_unknown_scopes_are_refused(scopes):
    with pytest.raises(ValueError, match="scopes"):
        create_token("r", scopes)


@pytest.mark.parametrize("secret", ["", " ", " x", "é"])
def test_a_given_secret_must_fit_a_header(secret):
    with pytest.raises(ValueError, match="token"):
        create_token("r", ["read"], secret)


def test_a_given_secret_works():
    token, _ = create_token("r", ["read"], "a-secret-of-mine")
    assert find_token("a-secret-of-mine") == token
