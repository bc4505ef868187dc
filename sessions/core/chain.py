"""The hash chain: one link per entry of a session, in the order of the ordinals."""

from __future__ import annotations

import hashlib

Part = str | int | None


def link(key: bytes, previous: bytes, parts: tuple[Part, ...]) -> bytes:
    """The digest of an entry: 32 bytes, keyed, over the one before and the entry's parts.

    Each part carries its kind and length, so that no two tuples give the same bytes.
    """
    state = hashlib.blake2b(previous, key=key, digest_size=32)
    for part in parts:
        if part is None:
            state.update(b"n;")
        elif isinstance(part, int):
            state.update(b"i%d;" % part)
        else:
            raw = part.encode("utf-8", "surrogatepass")
            state.update(b"t%d:" % len(raw))
            state.update(raw)
    return state.digest()
