"""People at the pages, and the API to fill them."""

from __future__ import annotations

import re
from typing import Any

import html5lib
import pytest
from django.test import Client

from sessions.tokens import create_token
from tests.api.conftest import Api


class Person:
    """Someone who signed in: `get` gives a page's text."""

    def __init__(self, user: Any) -> None:
        self.client = Client(SERVER_NAME="localhost")
        self.client.force_login(user)

    def get(self, path: str, status: int = 200) -> str:
        response = self.client.get(path)
        assert response.status_code == status, (path, response.status_code)
        return response.content.decode()

    def words(self, path: str) -> str:
        """The page's text without its tags, on one line."""
        text = re.sub(r"<[^>]+>", " ", self.get(path))
        return re.sub(r"\s+", " ", text)


@pytest.fixture
def api(db) -> Api:
    """A client whose token may post and read."""
    return Api(create_token("tests", ["ingest", "read"])[1])


@pytest.fixture
def alice(db, django_user_model) -> Person:
    """Someone without special rights."""
    return Person(django_user_model.objects.create_user("alice", password="x"))


@pytest.fixture
def staff(db, django_user_model) -> Person:
    return Person(django_user_model.objects.create_superuser("root", password="x"))


def parse(text: str) -> Any:
    """The page as a tree; fails on anything that is no valid HTML."""
    parser = html5lib.HTMLParser(strict=True)
    if text.lstrip().lower().startswith("<!doctype"):
        return parser.parse(text)
    return parser.parseFragment(text)


def attributes(tree: Any) -> list[tuple[str, str, str]]:
    """Every (tag, attribute, value) of a tree."""
    found = []
    for node in tree.iter():
        if isinstance(node.tag, str):
            tag = node.tag.rsplit("}", 1)[-1]
            found += [(tag, str(name), value) for name, value in node.attrib.items()]
            found.append((tag, "", ""))
    return found


def ordinals(text: str) -> list[int]:
    """The ordinals of the entries that a page shows, in its order."""
    return [int(number) for number in re.findall(r'<article[^>]* id="o(\d+)"', text)]


def run(api: Any, key: str, turns: int = 1, steps: int = 2) -> None:
    """A session with turns and steps, an update with a logged event in each step."""
    rows: list[dict[str, Any]] = []
    for turn in range(1, turns + 1):
        rows.append({"type": "user_message", "data": {"content": f"question {turn}"}})
        rows.append({"type": "turn_start", "data": {"turn": turn}})
        for step in range(1, steps + 1):
            rows.append({"type": "step_start", "data": {"turn": turn, "step": step}})
            rows.append({"type": "assistant_message", "data": {"content": f"{turn}.{step}"}})
            rows.append({"operations": [["set", "at", f"{turn}.{step}"]]})
            rows.append({"type": "step_end", "data": {"outcome": "ok"}})
        rows.append({"type": "turn_end", "data": {"turn": turn, "reason": "complete"}})
    for start in range(0, len(rows), 4000):
        items = [{"session": key, **row} for row in rows[start : start + 4000]]
        assert api.post("ingest", items).status == 201
