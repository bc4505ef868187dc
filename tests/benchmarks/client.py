"""A client that costs little: raw sockets, kept alive, one thread, no waiting for one another."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

Request = Callable[[int, int], bytes]
"""The bytes of a request, given the number of the connection and of the request on it."""


@dataclass(slots=True)
class Measured:
    """What a run gave. `busy`: the share of the time that this client itself computed."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    busy: float = 0.0

    @property
    def rate(self) -> float:
        """Requests a second."""
        return len(self.latencies) / self.seconds

    @property
    def failed(self) -> dict[int, int]:
        """How many answers had another status than 201, by status."""
        return {status: count for status, count in self.statuses.items() if status != 201}


def http_request(path: str, body: bytes, token: str) -> bytes:
    """A POST of JSON as bytes."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def run(port: int, connections: int, seconds: float, request: Request) -> Measured:
    """Keep `connections` requests under way for so long; the last ones are waited for."""
    measured = Measured()
    with selectors.DefaultSelector() as selector:
        open_ = [_Connection(number, port, request) for number in range(connections)]
        cpu, start = time.process_time(), time.perf_counter()
        for connection in open_:
            selector.register(connection.socket, selectors.EVENT_READ, connection)
            connection.send()
        under_way = connections
        while under_way:
            ready = selector.select(timeout=60)
            if not ready:
                raise TimeoutError("no answer for 60 seconds")
            for key, _ in ready:
                status = key.data.receive()
                if status is None:
                    continue
                now = time.perf_counter()
                measured.latencies.append(now - key.data.sent_at)
                measured.statuses[status] = measured.statuses.get(status, 0) + 1
                if now - start < seconds:
                    key.data.send()
                else:
                    under_way -= 1
        measured.seconds = time.perf_counter() - start
        measured.busy = (time.process_time() - cpu) / measured.seconds
        for connection in open_:
            connection.socket.close()
    return measured


class _Connection:
    def __init__(self, number: int, port: int, request: Request) -> None:
        self.number, self.request, self.count = number, request, 0
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sent_at = 0.0
        self._received = b""
        self._wanted = -1

    def send(self) -> None:
        data = self.request(self.number, self.count)
        self.count += 1
        self._received, self._wanted = b"", -1
        self.sent_at = time.perf_counter()
        self.socket.sendall(data)

    def receive(self) -> int | None:
        """Read what is there; the status once the answer is complete."""
        chunk = self.socket.recv(262_144)
        if not chunk:
            raise ConnectionError("the server closed the connection")
        self._received += chunk
        if self._wanted < 0:
            head, end, _ = self._received.partition(b"\r\n\r\n")
            if not end:
                return None
            self._wanted = len(head) + 4 + _content_length(head)
        if len(self._received) < self._wanted:
            return None
        return int(self._received[9:12])


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    raise ValueError("an answer without Content-Length")
