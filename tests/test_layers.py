"""Imports point downwards only, as the design says."""

import ast
from pathlib import Path

import pytest

APP = Path(__file__).parent.parent / "sessions"

# From the bottom up; a module may import those of lower layers and of its own.
LAYERS = [
    {"core"},
    {"models"},
    {"database", "statements", "workspaces"},
    {"deps"},
    {"ingest", "audit", "tokens"},
    {"shown", "entries", "timeline", "reading", "history", "search"},
    {"api", "views", "forms", "admin", "templatetags", "urls", "example"},
    {"management", "apps", "checks", "migrations"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
# reading never writes, and ingest never reads for pages
FORBIDDEN = {("timeline", "ingest"), ("reading", "ingest"), ("timeline", "api"),
             ("views", "api"), ("api", "views"), ("forms", "ingest")}  # fmt: skip


def modules():
    files = [p for p in APP.rglob("*.py") if "migrations" not in p.parts]
    return [pytest.param(path, id=str(path.relative_to(APP))) for path in files]


def imported(path: Path) -> set[str]:
    """Top-level names of our app that a module imports, hidden imports included."""
    package = ("sessions", *path.relative_to(APP).parts[:-1])
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            start = ".".join(part for part in (base, node.module or "") if part)
            names = [f"{start}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "sessions" and len(parts) > 1 and parts[1] in RANK:
                found.add(parts[1])
    return found


@pytest.mark.parametrize("path", modules())
def test_imports_point_downwards(path):
    own = path.relative_to(APP).parts[0].removesuffix(".py")
    if own == "__init__":
        return
    assert own in RANK, f"{own} has no place among the layers"
    for other in imported(path) - {own}:
        assert RANK[other] <= RANK[own], f"{own} imports {other}, which lies above it"
        assert (own, other) not in FORBIDDEN


@pytest.mark.parametrize("path", [p for p in modules() if "core" in p.values[0].parts])
def test_the_core_imports_the_standard_library_only(path):
    import sys

    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 1, "the core imports nothing from above"
            continue
        else:
            continue
        for name in names:
            assert name.split(".")[0] in sys.stdlib_module_names, name
