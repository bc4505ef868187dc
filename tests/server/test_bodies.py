"""Bodies that come in pieces, break off, stall or are too large, at the real server."""

from __future__ import annotations

import json
import socket
import time
import uuid

import pytest
from django.conf import settings

from tests.served import TOKEN

UPDATE = json.dumps({"operations": [["set", "k", "é"]]}).encode()


@pytest.fixture
def key() -> str:
    return f"body-{uuid.uuid4().hex}"


def head(key: str, *lines: str) -> bytes:
    fixed = [
        f"POST /api/v1/sessions/{key}/updates HTTP/1.1", "Host: 127.0.0.1",
        f"Authorization: Bearer {TOKEN}", "Content-Type: application/json",
    ]  # fmt: skip
    return "\r\n".join([*fixed, *lines, "", ""]).encode()


def send(server, raw: bytes, *, end: bool = False, timeout: float = 10) -> bytes:
    """Send raw bytes (and end the sending side); what comes back within the time."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=timeout) as connection:
        connection.sendall(raw)
        if end:
            connection.shutdown(socket.SHUT_WR)
        found = b""
        try:
            while chunk := connection.recv(65536):
                found += chunk
                if b"\r\n\r\n" in found and not end:
                    body = found.partition(b"\r\n\r\n")[2]
                    if found.startswith(b"HTTP/1.1 100"):
                        continue
                    if body.endswith(b"}"):
                        break
        except TimeoutError:
            pass
        return found


def version(server, key: str) -> int:
    status, answer = server.request("GET", f"/api/v1/sessions/{key}")
    return answer["version"] if status == 200 else 0


def chunks(body: bytes, size: int = 7) -> bytes:
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)


def test_a_chunked_body_arrives_whole(server, key):
    raw = head(key, "Transfer-Encoding: chunked") + chunks(UPDATE) + b"0\r\n\r\n"
    answer = send(server, raw)
    assert answer.startswith(b"HTTP/1.1 201")
    assert server.request("GET", f"/api/v1/sessions/{key}/deps")[1]["deps"] == {"k": "é"}


def test_a_body_that_is_shorter_than_it_says_is_refused_and_nothing_is_stored(server, key):
    raw = head(key, f"Content-Length: {len(UPDATE) + 10}") + UPDATE
    answer = send(server, raw, end=True)
    assert answer.startswith(b"HTTP/1.1 400")
    assert version(server, key) == 0


@pytest.mark.parametrize("rest", [b"", b"ff\r\n{", b"zz\r\n"])
def test_chunks_that_break_off_are_refused_and_nothing_is_stored(server, key, rest):
    raw = head(key, "Transfer-Encoding: chunked") + chunks(UPDATE) + rest
    answer = send(server, raw, end=True)
    assert answer.startswith(b"HTTP/1.1 400")
    assert version(server, key) == 0


def test_two_lengths_are_refused(server, key):
    raw = head(key, "Content-Length: 2", f"Content-Length: {len(UPDATE)}") + UPDATE
    assert send(server, raw, end=True).startswith(b"HTTP/1.1 400")
    assert version(server, key) == 0


def test_a_length_beside_chunks_smuggles_nothing(server, key):
    smuggled = head("smuggled", f"Content-Length: {len(UPDATE)}") + UPDATE
    raw = (
        head(key, f"Content-Length: {len(UPDATE)}", "Transfer-Encoding: chunked")
        + chunks(UPDATE)
        + b"0\r\n\r\n"
        + smuggled
    )
    answer = send(server, raw, end=True)
    assert answer.count(b"HTTP/1.1") <= 1
    assert version(server, "smuggled") == 0


def test_a_body_over_the_limit_is_413_before_it_is_read(server, key):
    limit = settings.LIMITS["body_bytes"]
    answer = send(server, head(key, f"Content-Length: {limit + 1}") + b"{")
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"application/problem+json" in answer
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["rule"] == "too_large"


def test_an_expectation_is_met(server, key):
    raw = head(key, f"Content-Length: {len(UPDATE)}", "Expect: 100-continue")
    answer = send(server, raw + UPDATE)
    assert answer.startswith(b"HTTP/1.1 100")
    assert b"HTTP/1.1 201" in answer


def test_an_encoded_body_is_415(server, key):
    status, answer = server.request(
        "POST", f"/api/v1/sessions/{key}/updates", b"\x1f\x8b\x08", Content_Encoding="gzip"
    )
    assert status == 415
    assert answer["rule"] == "content_encoding"


def test_eight_stalled_uploads_do_not_stop_the_service(server, key):
    stalled = []
    try:
        for _ in range(8):
            connection = socket.create_connection(("127.0.0.1", server.port))
            connection.sendall(head(key, "Content-Length: 1000") + b'{"operations":')
            stalled.append(connection)
        began = time.monotonic()
        for _ in range(5):
            status, _ = server.request(
                "POST", f"/api/v1/sessions/{key}/updates", {"operations": []}, timeout=5
            )
            assert status == 201
        assert server.request("GET", "/healthz", timeout=5)[0] == 200
        assert time.monotonic() - began < 5
    finally:
        for connection in stalled:
            connection.close()


@pytest.mark.parametrize(
    "path",
    ["/%00", "/sessions/%00/", "/api/v1/sessions/%00", "/%ff%fe", "/sessions/..%2f/", "//", "/%",
     "/api/v1/sessions/a%2Fb/updates", "/static/../manage.py", "/static/%2e%2e/manage.py"],
)  # fmt: skip
def test_an_odd_address_is_no_fault_of_ours(server, path):
    status, answer = server.request("GET", path)
    assert 300 <= status < 500
    assert "secret" not in str(answer)


def test_a_head_request_has_no_body(server):
    status, answer = server.request("HEAD", "/sign-in/")
    assert (status, answer) == (200, "")


def test_static_files_are_kept_for_ever_and_compressed(server):
    import http.client
    import re

    status, page = server.request("GET", "/sign-in/")
    assert status == 200
    sheet = re.search(r'href="(/static/nousweb\.[0-9a-f]+\.css)"', page)
    assert sheet is not None
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request("GET", sheet[1], headers={"Accept-Encoding": "gzip"})
    response = connection.getresponse()
    response.read()
    assert response.getheader("Content-Encoding") == "gzip"
    assert "immutable" in (response.getheader("Cache-Control") or "")
    connection.close()
