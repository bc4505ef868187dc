"""The workspace that owns what is stored. There is one until someone needs a second."""

from __future__ import annotations

from .models import Workspace


def default_workspace() -> Workspace:
    """The workspace called *default*; made by a migration, made again should it be missing."""
    found = Workspace.objects.filter(slug="default").first()
    if found is not None:
        return found
    return Workspace.objects.get_or_create(slug="default", defaults={"name": "default"})[0]


_by_id: dict[int, Workspace] = {}


def workspace_by_id(pk: int) -> Workspace:
    """A workspace that a foreign key names. Kept in memory: its id is all that requests use."""
    if pk not in _by_id:
        _by_id[pk] = Workspace.objects.get(pk=pk)
    return _by_id[pk]


def forget() -> None:
    """Forget the workspaces kept in memory (tests)."""
    _by_id.clear()
