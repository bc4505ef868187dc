"""Example sessions, so that a first visit shows everything the product can show.

They aren't canned rows: a small agent loop (`runner`) runs a scripted model and tools that
work on made-up data (`incident`, `others`), and a bridge (`bridge`) posts what happens through
the HTTP API (`client`), as the bridge of a real runner does. `load` starts it all.
"""

from .load import load_examples

__all__ = ["load_examples"]
