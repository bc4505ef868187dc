"""Two starts at the same moment on the same folder and port."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

from tests.served import ROOT


def test_two_starts_at_once_make_everything_once_and_one_of_them_serves(own_server):
    environ = {k: v for k, v in own_server.environ.items() if k != "NOUSWEB_TOKEN"}
    logs = [own_server.folder / "output-a", own_server.folder / "output-b"]
    starts = []
    for log in logs:
        with log.open("wb") as output:
            starts.append(
                subprocess.Popen(
                    [sys.executable, "manage.py", "up"], cwd=ROOT, env=environ, stdout=output,
                    stderr=output, stdin=subprocess.DEVNULL, start_new_session=True,
                )
            )  # fmt: skip
    try:
        for _ in range(600):
            if any(start.poll() is not None for start in starts):
                break
            time.sleep(0.1)
        texts = [log.read_text() for log in logs]
        assert sorted(start.poll() is None for start in starts) == [False, True], texts
        [loser] = [start for start in starts if start.poll() is not None]
        assert loser.returncode == 1
        assert "can't be used" in texts[starts.index(loser)]
        assert "".join(texts).count("Token: ") == 1
        assert own_server.request("GET", "/healthz")[0] == 200
    finally:
        for start in starts:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(start.pid, signal.SIGKILL)
            start.wait()
