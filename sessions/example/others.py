"""Three small sessions, so that the list shows more than one: ended, idle, and failed."""

from __future__ import annotations

from ..core.reducer import Path
from .runner import (
    Call,
    Clock,
    ContextUpdate,
    ModelError,
    Observer,
    Outcome,
    Reply,
    RunFailed,
    Runner,
    Tool,
    ToolError,
    call,
)

_COMMITS = {
    "4.2.0": ["Pay with vouchers", "Fix: totals off by a cent in JPY"],
    "4.3.0": ["Search understands typing errors", "Fix: basket emptied at sign-in"],
}
_PAGES = {
    "webhooks": "A webhook is sent up to 8 times within 24 hours. Each has the header "
    "Webhook-Signature: HMAC-SHA256 of the body.",
    "refunds": "A refund takes 2 to 5 working days. Refunds can't be undone.",
}


class ReleaseNotes:
    """Writes release notes; everything goes well, and the session is ended."""

    agent = "release-notes-writer"
    labels = {"environment": "staging", "team": "shop"}
    ended = True

    def __init__(self, clock: Clock, observer: Observer) -> None:
        self.runner = Runner(
            [
                Tool("list_commits", self._list_commits, Path.CONTEXT),
                Tool("write_notes", self._write_notes),
            ],
            clock, observer, model="openai:gpt-5-mini",
            system="You write release notes that customers understand.",
        )  # fmt: skip

    def _list_commits(self, seen: Call, release: str) -> Outcome:
        if release not in _COMMITS:
            raise ToolError(f"no release {release}")
        update = ContextUpdate()
        for subject in _COMMITS[release]:
            update.append("commits", subject)
        return Outcome("\n".join(_COMMITS[release]), update)

    def _write_notes(self, seen: Call, release: str) -> Outcome:
        lines = [subject.removeprefix("Fix: ") for subject in seen.deps["commits"]]
        text = "\n".join(f"- {line}" for line in lines)
        return Outcome(text, ContextUpdate().set("notes", {"release": release, "text": text}))

    def tell(self) -> None:
        """One turn of three steps."""
        self.runner.run(
            "Release notes for 4.3.0, please.",
            [
                Reply("", [call("list_commits", release="4.3.0")], seconds=1.9),
                Reply("", [call("write_notes", release="4.3.0")], seconds=2.2),
                Reply("Written: one feature and one fix. Both are visible to customers."),
            ],
        )


class DocsAnswer:
    """Answers from the documentation, and waits for the next question."""

    agent = "docs-helper"
    labels = {"environment": "production", "team": "support"}
    ended = False

    def __init__(self, clock: Clock, observer: Observer) -> None:
        self.clock = clock
        self.runner = Runner(
            [Tool("read_page", self._read_page, Path.RUN_CONTEXT)],
            clock, observer, model="openai:gpt-5-mini",
            system="Answer from the documentation, and name the page.",
        )  # fmt: skip

    def _read_page(self, seen: Call, page: str) -> Outcome:
        read = {"id": f"{seen.id}:read", "name": "read_page", "arguments": {"page": page}}
        return Outcome(
            _PAGES.get(page, "There is no such page."),
            ContextUpdate().append("pages_read", page).log_event("tool_call", read),
        )

    def tell(self) -> None:
        """Two turns; each page read is an event that is dropped."""
        self.runner.run(
            "How often is a webhook sent again?",
            [
                Reply(
                    "",
                    [call("read_page", page="webhooks")],
                    injected=[("knowledge_base", "Pages: webhooks, refunds.")],
                ),
                Reply("Up to 8 times within 24 hours (page webhooks)."),
            ],
        )
        self.clock.wait(95)
        self.runner.run(
            "And can I undo a refund?",
            [
                Reply("", [call("read_page", page="refunds")], seconds=2.0),
                Reply("No. A refund can't be undone (page refunds).", seconds=1.7),
            ],
        )


class NightlyReport:
    """Its model can't be reached: the step fails, the turn stays open, nobody came back."""

    agent = "nightly-report"
    labels = {"environment": "production", "team": "shop"}
    ended = False

    def __init__(self, clock: Clock, observer: Observer) -> None:
        self.runner = Runner(
            [Tool("count_orders", self._count_orders)], clock, observer,
            model="anthropic:claude-haiku-4-5", system="Report yesterday's numbers.",
        )  # fmt: skip

    def _count_orders(self, seen: Call, day: str) -> Outcome:
        return Outcome(f"{day}: 4,812 orders", ContextUpdate().merge("orders", {day: 4812}))

    def tell(self) -> None:
        """One turn: a step that went well, and one that failed."""
        try:
            self.runner.run(
                "The report for yesterday.",
                [
                    Reply("", [call("count_orders", day="yesterday")], seconds=2.6),
                    ModelError("no answer from the model provider in 60 seconds", seconds=60.0),
                ],
            )
        except RunFailed:
            return
