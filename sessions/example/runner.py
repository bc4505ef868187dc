"""A small agent loop that behaves as a Nous runner does, as far as anyone outside can see.

It keeps deps and a session log that is numbered from 0, asks a (scripted) model, runs the tools
it calls, applies the updates they return, and tells an observer everything it commits.

One thing is simpler than life: a tool says itself which path its update takes, so that all
three can be seen. The loop of today's Nous versions uses `runner` for every tool.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from ..core.events import Disposition
from ..core.reducer import (
    OperationRefused,
    Path,
    apply_operations,
    copy_json,
    copy_operations,
    judge_events,
    parse_operations,
)

Json = dict[str, Any]
WireOperation = list[Any]


# -- what runs through the loop ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One committed event, as the runner broadcasts it."""

    seq: int
    type: str
    time: str
    data: Json


@dataclass(frozen=True, slots=True)
class Update:
    """What a tool call returned: operations in wire form, and how they were applied.

    `first_seq`: the seq of the first event it put into the log. `refused`: the reducer
    refused it, so nothing of it was applied.
    """

    call_id: str
    tool: str
    path: Path
    operations: list[WireOperation]
    time: str
    first_seq: int | None
    refused: bool


class Observer(Protocol):
    """Told of everything, in the order in which it happens."""

    def event(self, event: LogEvent) -> None:
        """An event was committed to the log."""

    def update(self, update: Update) -> None:
        """A tool returned an update. Its events come as events too, before or after."""

    def went_back(self, to_seq: int, reason: str) -> None:
        """The runner goes on from an older context, whose log has `to_seq` events."""

    def usage(self, usage: Mapping[str, int]) -> None:
        """The token counters of the session so far, after a run."""


class ToolError(Exception):
    """A tool failed; the model reads the message as its result."""


class RunFailed(Exception):
    """The model could not be asked: the run ends without its `turn_end`."""


class Killed(Exception):
    """The runner's process is gone, in the middle of a step."""


class ContextUpdate:
    """Operations in the order in which they were added, in wire form; built like upstream's."""

    def __init__(self) -> None:
        self.operations: list[WireOperation] = []

    def set(self, key: str, value: Any) -> ContextUpdate:
        return self._add("set", key, value)

    def merge(self, key: str, value: Json) -> ContextUpdate:
        return self._add("merge", key, value)

    def append(self, key: str, item: Any) -> ContextUpdate:
        return self._add("append", key, item)

    def delete(self, key: str) -> ContextUpdate:
        return self._add("delete", key)

    def log_event(self, event_type: str, data: Json) -> ContextUpdate:
        return self._add("log_event", event_type, data)

    def _add(self, *operation: Any) -> ContextUpdate:
        self.operations.append(list(operation))
        return self


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a tool gives back: a text for the model, and an update."""

    result: str
    update: ContextUpdate | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of the model, as the tool sees it: its id, and the deps (a copy)."""

    id: str
    deps: Json


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool. `reports_late`: its update reaches the observer after its events do."""

    name: str
    function: Callable[..., Outcome]
    path: Path = Path.RUNNER
    seconds: float = 0.4
    reports_late: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """What the scripted model answers to one request; `calls` are names and arguments.

    `injected` is put before the step, as `(source, text)`. `killed`: the process dies when the
    first tool has run, before its result is in the log and before the next tool starts.
    """

    content: str
    calls: Sequence[tuple[str, Json]] = ()
    reasoning: str | None = None
    seconds: float = 4.0
    tokens: tuple[int, int, int] = (1800, 120, 0)
    injected: Sequence[tuple[str, str]] = ()
    killed: bool = False


def call(name: str, **arguments: Any) -> tuple[str, Json]:
    """A tool call in a `Reply`."""
    return name, arguments


@dataclass(frozen=True, slots=True)
class ModelError:
    """The model could not be asked."""

    message: str
    seconds: float = 30.0


class Clock:
    """The runner's clock: it moves only when something takes time."""

    def __init__(self, start: datetime) -> None:
        self.now = start

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def text(self) -> str:
        """ISO 8601 in UTC with milliseconds, as `2026-03-01T09:00:00.000Z`."""
        return self.now.strftime("%Y-%m-%dT%H:%M:%S.") + f"{self.now.microsecond // 1000:03d}Z"


@dataclass(slots=True)
class Context:
    """Agent.Context: deps, the log, and the usage so far."""

    deps: Json = field(default_factory=dict)
    log: list[LogEvent] = field(default_factory=list)
    usage: dict[str, int] = field(default_factory=dict)
    turns: int = 0

    def copy(self) -> Context:
        return Context(copy_json(self.deps), list(self.log), dict(self.usage), self.turns)


# -- the loop ------------------------------------------------------------------------------


class Runner:
    """Runs one session. `context` is what the last successful run left; a run works on a copy
    of its own, `working`, so a run that fails leaves no trace in `context`."""

    def __init__(
        self, tools: Sequence[Tool], clock: Clock, observer: Observer, *, model: str, system: str
    ) -> None:
        self.tools = {tool.name: tool for tool in tools}
        self.clock, self.observer, self.model = clock, observer, model
        self.context = self.working = Context()
        self._calls = 0
        self.log("system_message", _message(system))

    def log(self, event_type: str, data: Json, time: str | None = None) -> LogEvent:
        """Commit an event to the log, and broadcast it."""
        log = self.working.log
        event = LogEvent(len(log), event_type, time or self.clock.text(), data)
        log.append(event)
        self.observer.event(event)
        return event

    def run(self, prompt: Any, script: Sequence[Reply | ModelError]) -> None:
        """One turn: the prompt, then a step for each entry of the script.

        Raises RunFailed and Killed; `context` is then as it was before.
        """
        self.working = work = self.context.copy()
        self.log("user_message", _message(prompt))
        work.turns += 1
        self.log("turn_start", {"turn": work.turns})
        for number, reply in enumerate(script, 1):
            self._step(work.turns, number, reply)
        self.log("turn_end", {"turn": work.turns, "steps": len(script), "reason": "complete"})
        self.context = work
        self.observer.usage(work.usage)

    def go_back(self, reason: str) -> None:
        """After a failed run: say that the next one goes on from the older context."""
        self.working = self.context
        self.observer.went_back(len(self.context.log), reason)

    def compact(self, first: int, last: int, summary: str) -> None:
        """Put a summary in the place of what the model sees between two seqs, inclusive.

        As upstream does it, the summary carries the time of the first event that it hides.
        """
        data = {**_message(summary), "surface_op": ["replace", first, last]}
        self.log("system_message", data, time=self.working.log[first].time)

    def _step(self, turn: int, number: int, reply: Reply | ModelError) -> None:
        if isinstance(reply, Reply):
            for source, text in reply.injected:
                self.log("system_message", {**_message(text), "source": source})
        self.clock.wait(0.02)
        self.log("step_start", {"turn": turn, "step": number})
        if turn == number == 1:  # it doesn't change later
            self.log("request_header", {"model": self.model, "tools": sorted(self.tools)})
        self.clock.wait(reply.seconds)
        if isinstance(reply, ModelError):
            self.log("step_end", {"turn": turn, "step": number, "outcome": "error"})
            raise RunFailed(reply.message)
        self._answer(reply)
        self.log("step_end", {"turn": turn, "step": number, "outcome": "ok"})

    def _answer(self, reply: Reply) -> None:
        calls = []
        for name, arguments in reply.calls:
            self._calls += 1
            calls.append({"id": f"call_{self._calls:03d}", "name": name, "arguments": arguments})
        self._count(reply)
        data: Json = {
            "content": reply.content,
            "tool_calls": calls,
            "reasoning_content": reply.reasoning,
            "name": None,
            "metadata": {},
        }
        self.log("assistant_message", data)
        results = []
        for asked in calls:
            results.append(self._call(asked))
            if reply.killed:
                raise Killed
        for asked, (text, metadata) in zip(calls, results, strict=True):
            answered = {"tool_call_id": asked["id"], "name": asked["name"]}
            self.log("tool_result", {"content": text, **answered, "metadata": metadata})

    def _count(self, reply: Reply) -> None:
        read, written, cached = reply.tokens
        counts = {
            "requests": 1,
            "tool_calls": len(reply.calls),
            "input_tokens": read,
            "output_tokens": written,
            "total_tokens": read + written,
            "cache_read_input_tokens": cached,
        }
        usage = self.working.usage
        for name, count in counts.items():
            usage[name] = usage.get(name, 0) + count

    # -- tools -----------------------------------------------------------------------------

    def _call(self, asked: Json) -> tuple[str, Json]:
        """Run a tool and apply its update. Returns the result's content and metadata."""
        tool = self.tools[asked["name"]]
        self.clock.wait(tool.seconds)
        try:
            seen = Call(asked["id"], copy_json(self.working.deps))
            outcome = tool.function(seen, **asked["arguments"])
            if outcome.update is not None:
                self._apply(tool, asked["id"], outcome.update.operations)
        except (ToolError, OperationRefused) as error:
            return f"Error: {error}", {"error": True}
        return outcome.result, {"duration_ms": round(tool.seconds * 1000)}

    def _apply(self, tool: Tool, call_id: str, wire: list[WireOperation]) -> None:
        operations = parse_operations(wire)
        judged = judge_events(operations, tool.path)
        logged = [event for event in judged if event.disposition is Disposition.LOGGED]
        refused: OperationRefused | None = None
        try:
            apply_operations(copy_operations(operations), self.working.deps, tool.path)
        except OperationRefused as error:
            refused, logged = error, []
        update = Update(
            call_id, tool.name, tool.path, wire, self.clock.text(),
            len(self.working.log) if logged else None, refused is not None,
        )  # fmt: skip
        if not tool.reports_late:
            self.observer.update(update)
        for event in logged:
            self.log(event.type, event.data)
        if tool.reports_late:
            self.observer.update(update)
        if refused is not None:
            raise refused


def _message(content: Any) -> Json:
    return {"content": content, "name": None, "metadata": {}}
