"""`manage.py up`: the first start, the second, and what a killed process has kept."""

from __future__ import annotations

import re
import socket
import threading
import time

import pytest

from tests.served import PASSWORD, TOKEN

EXAMPLE = "example-incident-4127"


def wait_for(text: str, server, seconds: float = 60) -> str:
    for _ in range(int(seconds * 10)):
        if text in server.output():
            return server.output()
        time.sleep(0.1)
    raise AssertionError(f"{text!r} is not in {server.output()}")


def test_a_first_start_makes_everything_and_a_second_makes_nothing_twice(own_server):
    server = own_server
    for name in ("NOUSWEB_TOKEN", "NOUSWEB_ADMIN_PASSWORD"):
        del server.environ[name]
    server.environ["NOUSWEB_EXAMPLE"] = "1"
    server.start()
    output = wait_for(f"{server.url}/sessions/{EXAMPLE}/", server)
    password = re.search(r"Password: +(\S+)", output)
    token = re.search(r"Token: +(\S+)", output)
    assert password is not None
    assert output.count(password[1]) == 1
    assert output.count(token[1] if token else "?") == 1
    assert token is not None
    bearer = {"Authorization": f"Bearer {token[1]}"}
    first = server.request("GET", "/api/v1/sessions", **bearer)[1]["sessions"]
    assert any(session["key"] == EXAMPLE for session in first)
    server.stop()

    server.start()
    again = server.output()[len(output) :]
    assert "Password" not in again
    assert "Token" not in again
    assert server.request("GET", "/api/v1/sessions", **bearer)[1]["sessions"] == first


def test_password_and_token_may_come_from_the_environment(own_server):
    server = own_server.start()
    assert PASSWORD not in server.output()
    assert TOKEN not in server.output()
    status, _ = server.request("POST", "/api/v1/sessions/s/updates", {"operations": []})
    assert status == 201
    assert server.request("GET", "/api/v1/sessions")[1]["sessions"][0]["key"] == "s"


def test_the_example_can_be_left_out(server):
    keys = [s["key"] for s in server.request("GET", "/api/v1/sessions?limit=1000")[1]["sessions"]]
    assert EXAMPLE not in keys


def test_a_later_start_does_not_load_what_the_first_left_out(own_server):
    server = own_server.start()
    server.stop()
    server.environ["NOUSWEB_EXAMPLE"] = "1"
    server.environ["NOUSWEB_TOKEN"] = "no token of this database"
    server.start()
    time.sleep(2)
    del server.environ["NOUSWEB_TOKEN"]
    assert server.request("GET", "/api/v1/sessions")[1]["sessions"] == []
    assert "NOUSWEB_TOKEN is no valid token" in server.output()


def test_a_port_that_is_taken_is_said(own_server):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", own_server.port))
        taken.listen()
        own_server.start(wait=False)
        assert own_server.process.wait(30) != 0
    assert "NOUSWEB_PORT" in own_server.output()


@pytest.mark.parametrize(
    ("name", "value"),
    [("NOUSWEB_EXAMPLE", "maybe"), ("NOUSWEB_PORT", "99999"), ("DATABASE_URL", "mysql://x/y")],
)
def test_a_setting_that_makes_no_sense_stops_the_start_and_is_named(own_server, name, value):
    own_server.environ[name] = value
    own_server.start(wait=False)
    assert own_server.process.wait(30) != 0
    assert name in own_server.output()


def test_no_acknowledged_update_is_lost_when_every_process_is_killed(own_server):
    server = own_server.start()
    acknowledged: dict[str, dict] = {}
    sent: list[str] = []

    def write(number: int) -> None:
        n = 0
        while not stop.is_set():
            body = {"id": f"{number}-{n}", "operations": [["append", "l", f"{number}-{n}"]]}
            sent.append(body["id"])
            try:
                status, answer = server.request("POST", "/api/v1/sessions/s/updates", body)
            except (OSError, ValueError):
                return
            except Exception:
                return
            if status in (200, 201):
                acknowledged[body["id"]] = answer
            n += 1

    stop = threading.Event()
    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    time.sleep(1.5)
    server.kill()
    stop.set()
    for writer in writers:
        writer.join()
    assert len(acknowledged) > 20

    server.start()
    # a retry of everything gets the first answer, or its first one now: never an error
    for name in sent:
        body = {"id": name, "operations": [["append", "l", name]]}
        status, answer = server.request("POST", "/api/v1/sessions/s/updates", body)
        assert status in (200, 201)
        if name in acknowledged:
            assert status == 200
            assert answer == acknowledged[name]
    kept = server.request("GET", "/api/v1/sessions/s/deps")[1]["deps"]["l"]
    assert sorted(kept) == sorted(sent)
    session = server.request("GET", "/api/v1/sessions/s")[1]
    assert session["version"] == len(sent)
