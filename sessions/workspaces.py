"""The workspace that owns what is stored. There is one until someone needs a second."""

from __future__ import annotations

from .models import Workspace


def default_workspace() -> Workspace:
    """The workspace called *default*; made by a migration, made again should it be missing."""
    found = Workspace.objects.filter(slug="default").first()
    if found is not None:
        return found
    return Workspace.objects.get_or_create(slug="default", defaults={"name": "default"})[0]
