"""Production, as the tools of the main example find it."""

from __future__ import annotations

from datetime import datetime, timedelta

from .runner import Clock, ToolError


class World:
    """Production. It keeps what was done to it when the agent goes back to an older context.

    Release 412 of checkout reached everybody 7 minutes before the start; a minute later
    payments ran out of connections. A rollback helps after three minutes.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock, self.start = clock, clock.now
        self.rolled_back_at: datetime | None = None

    def at(self, minutes: float) -> datetime:
        """The moment so many minutes after the start (before it: negative)."""
        return self.start + timedelta(minutes=minutes)

    def ill(self, moment: datetime) -> bool:
        """Whether payments had no connections left at that moment."""
        if moment < self.at(-6):
            return False
        return self.rolled_back_at is None or moment < self.rolled_back_at + timedelta(minutes=3)

    def measure(self, service: str, metric: str) -> list[float]:
        """The last six minutes, the newest value last. Raises ToolError for what isn't there."""
        known = {
            ("checkout", "error_rate_percent"): (0.2, 7.4),
            ("payments", "pool_in_use"): (18, 40),
            ("payments", "requests_per_second"): (310, 1420),
        }
        if (service, metric) not in known:
            names = ", ".join(f"{service}/{name}" for service, name in sorted(known))
            raise ToolError(f"no metric {service}/{metric}; there are {names}")
        well, ill = known[service, metric]
        moments = [self.clock.now - timedelta(minutes=back) for back in range(5, -1, -1)]
        return [ill if self.ill(moment) else well for moment in moments]

    def log_lines(self, service: str) -> list[tuple[datetime, str, str]]:
        """Time, pod and text of a service's log lines of the last hour, the oldest first."""
        lines = []
        moment = self.at(-30)
        while moment <= self.clock.now:
            if self.ill(moment):
                second = int((moment - self.at(-30)).total_seconds())
                if service == "payments":
                    pod = ("payments-0", "payments-1", "payments-0")[second // 5 % 3]
                    lines.append((moment, pod, "PoolTimeout: no connection in 5000 ms, 40/40 used"))
                elif service == "checkout":
                    attempt = 2 + second // 5 % 4
                    lines.append((moment, "checkout-2", f"retry {attempt}/5 of POST /v1/charges"))
            moment += timedelta(seconds=5)
        return lines


def clock_time(moment: datetime) -> str:
    """`09:14`."""
    return moment.strftime("%H:%M")
