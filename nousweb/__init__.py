"""The nousweb project."""

from .sqlite_driver import use_newer_sqlite

# Before Django loads its SQLite backend: many Pythons link an SQLite that can lose commits.
use_newer_sqlite()
