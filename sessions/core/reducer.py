"""The one reducer: what each operation of an update means, decided here and nowhere else.

Source: `Nous.Tool.ContextUpdate`; vectors `reducer.json` and `apply.json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from .events import SURFACE_TYPES, Disposition, Reason, fault_of

OPERATION_NAMES = ("set", "merge", "append", "delete", "log_event")
Deps = dict[str, Any]

PROTECTED_KEYS = frozenset(
    {
        "approval_handler",
        "hook_registry",
        "workspace_root",
        "sub_agent_shared_deps",
        "sub_agent_templates",
        "sub_agent_workspace_root",
        "file_read_max_bytes",
        "web_fetch_max_bytes",
    }
)
"""Deps keys that some versions of Nous protect: there an operation of a tool's update on one is
dropped with a warning. We fold it all the same, and mark the update."""


class Path(StrEnum):
    """The way an update was applied, as `nous.md` calls them."""

    CONTEXT = "context"
    RUN_CONTEXT = "run_context"
    RUNNER = "runner"


class Operation(NamedTuple):
    """One operation. For `log_event`, `key` is the event's type and `value` its data."""

    name: str
    key: str
    value: Any = None


class OperationRefused(Exception):
    """The reducer refuses an operation; nothing of its update may be applied.

    `index` is its place in the update, `rule` a short name, `field` what is at fault
    (`op`, `key`, `value`, `type` or `data`).
    """

    def __init__(self, index: int, field: str, rule: str, message: str) -> None:
        super().__init__(message)
        self.index, self.field, self.rule, self.message = index, field, rule, message


_ABSENT: Any = object()
_OBJECT_FIELDS = {
    "set": ("key", "value"),
    "merge": ("key", "value"),
    "append": ("key", "value"),
    "delete": ("key",),
    "log_event": ("type", "data"),
}


def parse_operation(raw: object, index: int) -> Operation:
    """An `Operation` from its wire form, the tuple as an array or the object with `op`.

    Raises OperationRefused for a name that is not known, for missing or extra fields, for a
    key or type that is no text, and for a `merge` or `log_event` whose argument is no map
    (upstream's builders guard those).
    """
    if isinstance(raw, list):
        name, arguments = _array_form(raw, index)
    elif isinstance(raw, dict):
        name, arguments = _object_form(raw, index)
    else:
        raise OperationRefused(
            index, "op", "operation_form", 'An operation is an array such as ["set", "key", 1] '
            'or an object such as {"op": "set", "key": "key", "value": 1}.'
        )  # fmt: skip
    key_field = _OBJECT_FIELDS[name][0]
    key = arguments[0]
    if not isinstance(key, str):
        raise OperationRefused(
            index, key_field, "text_required", f"The {key_field} of {name} must be text."
        )
    value = arguments[1] if len(arguments) == 2 else None
    if name in ("merge", "log_event") and not isinstance(value, dict):
        what = _OBJECT_FIELDS[name][1]
        raise OperationRefused(
            index, what, "map_required", f"The {what} of {name} must be a JSON object."
        )
    return Operation(name, key, value)


def _array_form(raw: list[Any], index: int) -> tuple[str, list[Any]]:
    name = _known_name(raw[0] if raw else None, index)
    wanted = len(_OBJECT_FIELDS[name])
    if len(raw) != wanted + 1:
        form = ", ".join([f'"{name}"', *_OBJECT_FIELDS[name]])
        raise OperationRefused(
            index,
            "op",
            "operation_arity",
            f"{name} takes {wanted} argument{'s' if wanted > 1 else ''}: [{form}]; "
            f"{len(raw) - 1} given.",
        )
    return name, raw[1:]


def _object_form(raw: dict[str, Any], index: int) -> tuple[str, list[Any]]:
    name = _known_name(raw.get("op"), index)
    wanted = _OBJECT_FIELDS[name]
    for field in raw:
        if field != "op" and field not in wanted:
            raise OperationRefused(
                index, field, "unknown_field", f"{name} has no field {field!r}; it takes "
                f"{' and '.join(wanted)}."
            )  # fmt: skip
    for field in wanted:
        if field not in raw:
            raise OperationRefused(
                index, field, "missing_field", f"{name} needs the field {field!r}."
            )
    return name, [raw[field] for field in wanted]


def _known_name(name: object, index: int) -> str:
    if isinstance(name, str) and name in _OBJECT_FIELDS:
        return name
    shown = repr(name)[:80]
    raise OperationRefused(
        index, "op", "unknown_operation",
        f"{shown} is no known operation; known are {', '.join(OPERATION_NAMES)}.",
    )  # fmt: skip


def parse_operations(raw: Iterable[object]) -> list[Operation]:
    """All operations of an update, in order; raises OperationRefused for the first bad one."""
    return [parse_operation(item, index) for index, item in enumerate(raw)]


# -- the fold ------------------------------------------------------------------------------

Undo = list[tuple[Any, Any, Any]]
"""What it takes to take a fold back: (container, key or length, old value or absent)."""


@dataclass(frozen=True, slots=True)
class Fold:
    """The folded deps (the same object that went in) and the keys touched.

    `keys` holds each touched key once, in order of first touch; `undo` gives the fold back
    through `take_back`, at a cost that grows with the operations and not with the deps.
    """

    deps: Deps
    keys: list[str]
    undo: Undo


def to_deps(operations: Sequence[Operation], initial: Deps) -> Fold:
    """Fold the operations into `initial`, in place, in order.

    Values become part of the deps as they are: the caller gives them away. Linear in the
    operations; `log_event` touches no deps, deleting an absent key counts as touching it.
    Raises OperationRefused naming the index; `initial` is then as it was before.
    Source: `ContextUpdate.to_deps`; vectors `reducer.json`.
    """
    keys: dict[str, None] = {}
    undo: Undo = []
    for index, (name, key, value) in enumerate(operations):
        match name:
            case "set":
                _assign(initial, key, value, undo)
            case "merge":
                old = initial.get(key, _ABSENT)
                if isinstance(old, dict):
                    _merge(old, value, undo)
                else:
                    _assign(initial, key, value, undo)
            case "append":
                _append(initial, key, value, undo, index)
            case "delete":
                if key in initial:
                    undo.append((initial, key, initial.pop(key)))
            case "log_event":
                continue
            case _:
                take_back(undo)
                raise OperationRefused(
                    index, "op", "unknown_operation", f"{name!r} is no known operation."
                )
        keys[key] = None
    return Fold(initial, list(keys), undo)


def take_back(undo: Undo) -> None:
    """Undo a fold in place; only the order of keys inside a map may differ afterwards."""
    for container, key, old in reversed(undo):
        if isinstance(container, list):
            del container[key:]
        elif old is _ABSENT:
            del container[key]
        else:
            container[key] = old
    undo.clear()


def _assign(container: Deps, key: str, value: Any, undo: Undo) -> None:
    undo.append((container, key, container.get(key, _ABSENT)))
    container[key] = value


def _merge(old: Deps, new: Deps, undo: Undo) -> None:
    for key, value in new.items():
        inner = old.get(key)
        if isinstance(inner, dict) and isinstance(value, dict):
            _merge(inner, value, undo)
        else:
            _assign(old, key, value, undo)


def _append(deps: Deps, key: str, item: Any, undo: Undo, index: int) -> None:
    old = deps.get(key)
    if isinstance(old, list):
        undo.append((old, len(old), None))
        old.append(item)
    elif old is None or old is False or old == {}:
        _assign(deps, key, [item], undo)
    else:
        take_back(undo)
        what = "a non-empty map" if isinstance(old, dict) else _kind(old)
        raise OperationRefused(
            index,
            "key",
            "append_needs_list",
            f"append to {_shown(key)}: its value is {what}, and only a list, an empty map, "
            "null, false or a missing key can be appended to.",
        )


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "text"
    return "a number"


def _shown(key: str) -> str:
    """The key in quotes, escaped and cut, fit for a message."""
    text = (
        key.encode("unicode_escape", "surrogatepass").decode("ascii") if not key.isascii() else key
    )
    text = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return f'"{text[:80]}{"…" if len(text) > 80 else ""}"'


# -- the three paths -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JudgedEvent:
    """A `log_event` of an update and what becomes of it. `index`: its operation's place."""

    index: int
    type: str
    data: Deps
    disposition: Disposition
    reason: Reason | None


def judge_events(operations: Sequence[Operation], path: Path) -> list[JudgedEvent]:
    """The update's events in order, each with its disposition on that path.

    `run_context` has no log: every event is dropped, whatever its type. Elsewhere a surface
    type is refused; an unknown type or impossible data is invalid; the rest is logged.
    Source: vectors `apply.json`.
    """
    return [
        JudgedEvent(index, key, value, *_judge(key, value, path))
        for index, (name, key, value) in enumerate(operations)
        if name == "log_event"
    ]


def _judge(event_type: str, data: Deps, path: Path) -> tuple[Disposition, Reason | None]:
    if path is Path.RUN_CONTEXT:
        return Disposition.DROPPED, Reason.NO_LOG
    if event_type in SURFACE_TYPES:
        return Disposition.REFUSED, Reason.SURFACE_TYPE
    fault = fault_of(event_type, data)
    return (Disposition.LOGGED, None) if fault is None else (Disposition.INVALID, fault)


@dataclass(frozen=True, slots=True)
class Applied:
    """An update applied: `differs` are the keys where the `runner` path left something else
    than `context` would have; `context_refuses` says why `context` would have refused it."""

    keys: list[str]
    undo: Undo
    differs: list[str]
    context_refuses: OperationRefused | None = None


def apply_operations(
    operations: Sequence[Operation], deps: Deps, path: Path, *, explain: bool = True
) -> Applied:
    """Fold an update into `deps` in place, the way its path does.

    `context` and `run_context` fold into the deps. `runner` folds into an empty map and lays
    the result over the deps, key by key, without merging: an append replaces the list, a
    merge replaces the map, a delete of an existing key does nothing.
    Raises OperationRefused and leaves `deps` as it was. Costs what the operations weigh;
    without `explain` the comparison of `runner` with `context` is left out.
    Source: vectors `apply.json`.
    """
    if path is not Path.RUNNER:
        fold = to_deps(operations, deps)
        return Applied(fold.keys, fold.undo, [])
    overlay = to_deps(copy_operations(operations) if explain else operations, {})
    differs: list[str] = []
    refuses = None
    if explain:
        differs, refuses = _differs_from_context(operations, deps, overlay)
    undo: Undo = []
    for key, value in overlay.deps.items():
        _assign(deps, key, value, undo)
    return Applied(overlay.keys, undo, differs, refuses)


def _differs_from_context(
    operations: Sequence[Operation], deps: Deps, overlay: Fold
) -> tuple[list[str], OperationRefused | None]:
    before = {key: deps.get(key, _ABSENT) for key in overlay.keys}
    try:
        fold = to_deps(copy_operations(operations), deps)
    except OperationRefused as refused:
        return list(overlay.keys), refused
    differs = []
    for key in overlay.keys:
        if key in overlay.deps:
            same = key in deps and same_json(overlay.deps[key], deps[key])
        else:  # deleted last: `context` leaves nothing there, `runner` what was there before
            same = before[key] is _ABSENT
        if not same:
            differs.append(key)
    take_back(fold.undo)
    return differs, None


def copy_operations(operations: Sequence[Operation]) -> list[Operation]:
    """The operations with values of their own, so that a fold can't change these."""
    return [Operation(name, key, copy_json(value)) for name, key, value in operations]


def copy_json(value: Any) -> Any:
    """A deep copy of a JSON value (depth is bounded by the parser)."""
    if isinstance(value, dict):
        return {key: copy_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copy_json(item) for item in value]
    return value


def same_json(left: Any, right: Any) -> bool:
    """Equality of JSON values: 1, 1.0 and true are three, 0.0 and -0.0 two, key order means
    nothing. Stops at the first difference in size, so it costs what the smaller one weighs."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return len(left) == len(right) and all(
            key in right and same_json(item, right[key]) for key, item in left.items()
        )
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same_json, left, right))
    if isinstance(left, float):
        return left == right and str(left) == str(right)
    return bool(left == right)
