"""Tables of plain text, and the statistics that go into them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median


def table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The rows under their heads: the first column to the left, the others to the right."""
    lines = [list(heads), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    text = [title]
    for number, line in enumerate(lines):
        cells = [
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        text.append("  ".join(cells).rstrip())
        if number == 0:
            text.append("  ".join("-" * width for width in widths))
    return "\n".join(text)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which so much of them lies (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.2f}" if seconds < 0.01 else f"{seconds * 1000:.1f}"


def spread(values: Sequence[float]) -> str:
    """The median, and in brackets the smallest and the largest."""
    return f"{median(values):,.0f} ({min(values):,.0f}–{max(values):,.0f})"
