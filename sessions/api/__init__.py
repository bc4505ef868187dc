"""The API: what machines call. `api.urls` is its table of contents."""

from .app import api

__all__ = ["api"]
