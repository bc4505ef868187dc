"""All tests: `python -m tests`. Style, types and deployment checks first, then every test on
SQLite and on PostgreSQL, side by side. Further arguments go to pytest.

Ends with a line that counts both runs, and with status 1 when anything failed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.browser import executable
from tests.postgres import server

ROOT = Path(__file__).resolve().parent.parent
PYTHON = sys.executable
CHECKS = {
    "style": [PYTHON, "-m", "ruff", "check", "."],
    "format": [PYTHON, "-m", "ruff", "format", "--check", "."],
    "types": [PYTHON, "-m", "mypy", "sessions", "nousweb"],
    "migrations": [PYTHON, "manage.py", "makemigrations", "--check", "--dry-run"],
    "deployment": [PYTHON, "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
}


def run_checks(environ: dict[str, str]) -> list[str]:
    """The names of the checks that failed."""
    failed = []
    for name, command in CHECKS.items():
        print(f"== {name}", flush=True)
        if subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode:
            failed.append(name)
    return failed


def run_tests(arguments: list[str], postgres: str) -> tuple[int, int, int]:
    """Run pytest on both databases at once. How many passed and failed, and the worst status."""
    runs = {}
    for database in ("sqlite", "postgresql"):
        environ = {
            **os.environ,
            "NOUSWEB_TEST_DATABASE": database,
            "NOUSWEB_TEST_POSTGRES": postgres,
        }
        output = tempfile.TemporaryFile("w+")  # noqa: SIM115 — read below
        command = [PYTHON, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
        runs[database] = (
            subprocess.Popen(
                command, cwd=ROOT, env=environ, stdout=output, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            ),
            output,
        )  # fmt: skip
    passed = failed = worst = 0
    for database, (process, output) in runs.items():
        worst = max(worst, abs(process.wait()))
        output.seek(0)
        text = output.read()
        print(f"== tests on {database}\n{text}", flush=True)
        passed += _counted(text, "passed")
        failed += _counted(text, "failed") + _counted(text, "errors?")
    return passed, failed, worst


def _counted(text: str, what: str) -> int:
    found = re.findall(rf"(\d+) {what}\b", text[-2000:])
    return int(found[-1]) if found else 0


def main() -> int:
    # asked to stop, as by Ctrl-C: what was started here is stopped first
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    print(f"== browser: {executable() or 'the one of Playwright'}", flush=True)
    with tempfile.TemporaryDirectory(prefix="nousweb-checks-") as folder:
        environ = {
            **os.environ, "NOUSWEB_DATA": folder, "NOUSWEB_HTTPS": "1",
            "NOUSWEB_ALLOWED_HOSTS": "nousweb.example",
        }  # fmt: skip
        failed_checks = run_checks(environ)
    with server() as postgres:
        passed, failed, worst = run_tests(sys.argv[1:], postgres)
    if failed_checks:
        print(f"checks failed: {', '.join(failed_checks)}")
    print(f"{passed} passed, {failed + len(failed_checks)} failed")
    return 1 if failed_checks or failed or worst else 0


if __name__ == "__main__":
    sys.exit(main())
