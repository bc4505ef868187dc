"""The browser of the tests: an installed Chromium, else Debian's package where it can be
installed, else Playwright's own."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
HOW = (
    "No browser to test with. Install Chromium (Debian: apt-get install chromium), or run "
    "`playwright install chromium` in the virtual environment."
)


@cache
def executable() -> str | None:
    """The path of a Chromium; None when Playwright's own is to be used. Installs what it may;
    raises RuntimeError that says what to do when there is none."""
    if found := _installed():
        return found
    if os.geteuid() == 0 and shutil.which("apt-get"):
        quiet = {"DEBIAN_FRONTEND": "noninteractive", **os.environ}
        for command in (
            ["apt-get", "update", "-qq"],
            ["apt-get", "install", "-y", "-qq", "chromium"],
        ):
            subprocess.run(command, env=quiet, capture_output=True, check=False, timeout=900)
        if found := _installed():
            return found
    command = [sys.executable, "-m", "playwright", "install", "chromium"]
    done = subprocess.run(command, capture_output=True, check=False, timeout=900)
    if done.returncode == 0:
        return None
    raise RuntimeError(HOW)


def _installed() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextlib.contextmanager
def launched() -> Iterator[Any]:
    """A running browser (Playwright's sync API)."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()
