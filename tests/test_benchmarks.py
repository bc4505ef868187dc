"""The benchmarks still work: what they post is taken, what they measure can be read."""

import pytest
from django.test import Client

from sessions.tokens import create_token
from sessions.workspaces import default_workspace
from tests.benchmarks import client, flat, servers
from tests.benchmarks.__main__ import BATCH, requests
from tests.benchmarks.tables import percentile, table


@pytest.mark.parametrize(("kind", "updates"), [("single", 1), ("batch", BATCH)])
def test_what_they_post_is_taken(db, kind, updates):
    create_token("benchmark", ["ingest"], servers.TOKEN)
    head, body = requests(kind, "test")(0, 0).split(b"\r\n\r\n", 1)
    method, path, _ = head.decode().split("\r\n")[0].split(" ")
    headers = {"Authorization": f"Bearer {servers.TOKEN}"}
    answer = Client().generic(method, path, body, content_type="application/json", headers=headers)
    assert answer.status_code == 201
    assert len(answer.json().get("results", [answer.json()])) == updates


def test_two_requests_are_never_the_same():
    make = requests("single", "test")
    assert len({make(connection, number) for connection in (0, 1) for number in (0, 1)}) == 4


def test_the_cost_of_an_update_is_measured_at_three_ages(db, monkeypatch):
    monkeypatch.setattr(flat, "MIDDLE", 30)
    found = flat.measure(default_workspace(), 2048, last=60, rounds=10)
    assert found["version"] == 65
    assert min(found["first"], found["middle"], found["last"], found["amortised"]) > 0


def test_a_request_says_its_length():
    request = client.http_request("/x", "ü".encode(), "secret")
    assert b"Content-Length: 2\r\n" in request
    assert request.endswith(b"\r\n\r\n\xc3\xbc")


def test_a_table_is_aligned():
    assert table("T", ("a", "long"), [("row", "1")]).splitlines() == [
        "T", "a    long", "---  ----", "row     1",
    ]  # fmt: skip


def test_a_percentile_is_one_of_the_values():
    assert percentile([3.0, 1.0, 2.0], 0.99) == 3.0
