"""The main example: an agent finds out why a shop's checkout fails, and rolls a release back."""

from __future__ import annotations

from .runner import Clock, Killed, ModelError, Observer, Reply, RunFailed, Runner, call
from .tools import Tools
from .world import World, clock_time

MODEL = "anthropic:claude-sonnet-4-5"
_SYSTEM = """You triage production incidents for the shop's payments team.
Measure before you guess. Change nothing unless you are told to. Say how sure you are."""

_IMAGE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
    "AAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
_SEARCH = """timeouts, retries = parallel(
    search_logs(service="payments", text="PoolTimeout", minutes=10),
    search_logs(service="checkout", text="retry", minutes=10),
)
by_pod = count_by(service="payments", field="pod")
"""
_WATCH = """errors, pool = parallel(
    measure(service="checkout", metric="error_rate_percent"),
    measure(service="payments", metric="pool_in_use"),
)
load = measure(service="payments", metric="requests_per_second")
"""
_REMARK = "Charges made twice are refunded by tomorrow."


class Incident:
    """The session, from the alert to the moment when the runner's process dies."""

    agent = "incident-triage"
    labels = {"environment": "production", "team": "payments"}
    ended = False

    def __init__(self, clock: Clock, observer: Observer) -> None:
        self.world = World(clock)
        self.clock = clock
        tools = Tools(self.world).all()
        self.runner = Runner(tools, clock, observer, model=MODEL, system=_SYSTEM)

    def tell(self) -> None:
        """Run everything."""
        self.clock.wait(1.5)
        self._what_is_going_on()
        self.clock.wait(260)
        self._which_change()
        self.clock.wait(340)
        self._roll_back_and_fail()
        self.clock.wait(75)
        self._roll_back()
        self.clock.wait(150)
        self._all_clear()

    def _time(self, minutes: float) -> str:
        return clock_time(self.world.at(minutes))

    def _what_is_going_on(self) -> None:
        self.runner.run(
            f"Paged at {self._time(-4)}: INC-4127, checkout errors in eu-west-1. "
            "Find out what is going on. Don't change anything yet.",
            [
                Reply(
                    "I'll read the alert and see what was deployed.",
                    [
                        call("get_alert", alert="INC-4127"),
                        call("list_deploys", service="checkout", hours=6),
                    ],
                    injected=[
                        (
                            "memory",
                            "Remembered: checkout calls payments for every order; payments has "
                            "40 database connections.",
                        )
                    ],
                    seconds=3.2,
                    tokens=(1214, 96, 0),
                ),
                Reply(
                    "A release went to everybody shortly before. I'll measure both sides of the "
                    "call to payments.",
                    [
                        call("query_metrics", service="checkout", metric="error_rate_percent"),
                        call("query_metrics", service="payments", metric="pool_in_use"),
                    ],
                    reasoning="Release 412 reached 100 % one minute before errors began. At 10 % "
                    "nothing showed, so it is load, not a plain bug. The pool of payments is the "
                    "first thing that runs out under load.",
                    seconds=5.6,
                    tokens=(1502, 188, 1152),
                ),
                Reply(
                    "The pool is exhausted: 40 of 40. The logs should say who fills it.",
                    [call("run_code", code=_SEARCH)],
                    seconds=7.9,
                    tokens=(1733, 164, 1408),
                ),
                Reply(
                    "",
                    [
                        call(
                            "note_hypothesis",
                            cause="checkout 412 retries payments too eagerly",
                            confidence=0.7,
                        )
                    ],
                    reasoning="As many retries as timeouts, up to the fifth attempt. Retries that "
                    "follow at once keep the pool full: a retry storm.",
                    seconds=4.1,
                    tokens=(1988, 141, 1664),
                ),
                Reply(
                    "Payments has no free connections (40 of 40), and checkout is what fills "
                    f"them.\n\n- Checkout 412 went to 100 % at {self._time(-7)}; the first "
                    f"PoolTimeout is from {self._time(-6)}.\n- Checkout retries each failed "
                    "charge up to five times, and 7.4 % of orders fail.\n- Most likely (70 %): "
                    "release 412 changed the retries. I have changed nothing.",
                    seconds=6.4,
                    tokens=(2140, 203, 1920),
                ),
            ],
        )

    def _which_change(self) -> None:
        text = (
            "Here is the pool on our dashboard. Which change in 412 is it? Has this happened "
            "before? And draft a note for the status page."
        )
        note = (
            f"Since {self._time(-6)} some payments fail in Europe. We know the cause and are "
            "about to undo a change. Orders that were confirmed are safe."
        )
        self.runner.run(
            [
                {"type": "text", "content": text, "options": {}},
                {"type": "image_url", "content": _IMAGE, "options": {"filename": "pool.png"}},
            ],
            [
                Reply(
                    "I'll read the change to the payments client.",
                    [call("read_diff", commit="9f3c1aa")],
                    injected=[
                        (
                            "knowledge_base",
                            "Runbook P-7, pool exhaustion: find the caller, stop the caller, then "
                            "restart. Never raise the pool size during an incident.",
                        )
                    ],
                    seconds=3.8,
                    tokens=(2611, 61, 2176),
                ),
                Reply(
                    "I had the commit wrong. Again, and meanwhile I look for similar incidents.",
                    [
                        call("read_diff", commit="9f3c1ab"),
                        call("search_postmortems", query="payments pool exhausted, retries"),
                    ],
                    seconds=3.1,
                    tokens=(2706, 118, 2560),
                ),
                Reply(
                    "That is it: five attempts, 50 ms apart, without jitter. Now the note.",
                    [call("draft_status_note", text=note)],
                    reasoning="2 attempts at 500 ms became 5 at 50 ms: under errors up to five "
                    "times the load, all at once. INC-3968 had the same shape.",
                    seconds=5.2,
                    tokens=(2958, 177, 2688),
                ),
                Reply(
                    "One remark about refunds belongs to it.",
                    [call("add_remark", remark=_REMARK)],
                    seconds=2.4,
                    tokens=(3071, 58, 2944),
                ),
                Reply(
                    "Commit 9f3c1ab raised the attempts from 2 to 5 and took the pause and the "
                    "jitter away: one slow minute becomes a storm. It happened before (INC-3968), "
                    f"and a rollback ended it.\n\nThe draft:\n“{note}”\n\nMy remark could not "
                    f"be added to it; please append: “{_REMARK}”",
                    seconds=7.7,
                    tokens=(3160, 214, 3008),
                ),
            ],
        )

    def _roll_back_and_fail(self) -> None:
        try:
            self.runner.run(
                "Good work. Roll checkout back to 411 and tell me when it recovers.",
                [
                    Reply(
                        "Rolling checkout back to 411.",
                        [call("start_rollback", service="checkout", release=411)],
                        seconds=2.9,
                        tokens=(3514, 72, 3328),
                    ),
                    ModelError("the model provider answered 529 (overloaded) three times"),
                ],
            )
        except RunFailed as failed:
            self.runner.go_back(f"run failed: {failed}")

    def _roll_back(self) -> None:
        self.runner.run(
            "Your last run died half-way. Is checkout rolled back or not? Do it if not, and tell "
            "me when it recovers.",
            [
                Reply(
                    "I'd rather look before I do anything twice.",
                    [call("get_rollback", service="checkout")],
                    injected=[
                        ("memory", "Remembered: a second rollback would go to 410, not to 411.")
                    ],
                    reasoning="My own context says nothing of a rollback. That is no proof: what "
                    "the failed run did is done, I just don't remember it.",
                    seconds=4.4,
                    tokens=(3532, 133, 3328),
                ),
                Reply(
                    "It was started by the run that died. I'll watch for three minutes.",
                    [call("watch", code=_WATCH), call("close_questions")],
                    seconds=3.6,
                    tokens=(3702, 149, 3456),
                ),
                Reply(
                    "Checkout is on 411, rolled back by the run that died, and only once. "
                    "Errors are down to 0.2 %, payments uses 18 of 40 connections.",
                    seconds=4.9,
                    tokens=(3920, 88, 3712),
                ),
            ],
        )
        self.clock.wait(0.2)
        # Of a newer runner: nousweb doesn't know the type, and keeps it at its seq.
        events = len(self.runner.context.log)
        self.runner.log("checkpoint_saved", {"backend": "ets", "events": events})

    def _all_clear(self) -> None:
        log = self.runner.context.log
        first = next(event.seq for event in log if event.type == "user_message")
        ends = [event.seq for event in log if event.type == "turn_end"]
        self.runner.compact(
            first,
            ends[1],
            "Summary of turns 1 and 2: checkout 412 (commit 9f3c1ab) retried payments five times "
            "without a pause and used up its 40 connections. Similar: INC-3968. A status note is "
            "drafted in status_note; the remark about refunds is still to be added.",
        )
        try:
            self.runner.run(
                "Thanks. Check once more, and if it holds post the all-clear and page the owner "
                "of the retry change.",
                [
                    Reply(
                        "One more look.",
                        [call("query_metrics", service="checkout", metric="error_rate_percent")],
                        seconds=3.0,
                        tokens=(2288, 64, 640),
                    ),
                    Reply(
                        "It holds. Posting the all-clear, and paging the owner.",
                        [
                            call("post_status", text=f"Payments in Europe work again. {_REMARK}"),
                            call("page_owner", commit="9f3c1ab"),
                        ],
                        seconds=3.9,
                        tokens=(2391, 102, 2176),
                        killed=True,
                    ),
                ],
            )
        except Killed:
            return
