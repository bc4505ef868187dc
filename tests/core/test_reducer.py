"""The one reducer agrees with upstream, vector by vector, and keeps its own promises."""

import json
from pathlib import Path as FilePath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.core.events import Disposition
from sessions.core.reducer import (
    Operation,
    OperationRefused,
    Path,
    apply_operations,
    copy_json,
    copy_operations,
    judge_events,
    parse_operations,
    same_json,
    take_back,
    to_deps,
)

VECTORS = FilePath(__file__).parent.parent / "conformance"


def vectors(name: str) -> list[Any]:
    rows = json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))
    return [pytest.param(row, id=row["name"]) for row in rows]


@pytest.mark.parametrize("vector", vectors("reducer"))
def test_reducer_vector(vector: dict[str, Any]) -> None:
    initial = copy_json(vector["initial"])
    if vector.get("raises") or vector.get("unrepresentable"):
        with pytest.raises(OperationRefused) as refused:
            to_deps(parse_operations(vector["operations"]), initial)
        assert same_json(initial, vector["initial"]), "nothing may be applied"
        if "index" in vector:
            assert refused.value.index == vector["index"]
        return
    operations = parse_operations(vector["operations"])
    events = [[event.type, event.data] for event in judge_events(operations, Path.CONTEXT)]
    assert same_json(events, vector["log_events"])
    fold = to_deps(operations, initial)
    assert same_json(fold.deps, vector["deps"])
    assert fold.keys == vector["keys"]
    assert len(fold.keys) == vector["keys_updated"]


@pytest.mark.parametrize("vector", vectors("apply"))
def test_apply_vector(vector: dict[str, Any]) -> None:
    path = Path(vector["path"])
    deps = copy_json(vector["initial_deps"])
    operations = parse_operations(vector["operations"])
    judged = judge_events(operations, path)
    found: dict[str, list[Any]] = {disposition.value: [] for disposition in Disposition}
    for event in judged:
        found[event.disposition].append([event.type, copy_json(event.data)])
    warnings = _warnings(judged)
    if vector.get("raises"):
        with pytest.raises(OperationRefused):
            apply_operations(operations, deps, path)
        assert same_json(deps, vector["initial_deps"])
        if path is not Path.RUN_CONTEXT:  # there the fold comes before the events
            found = {name: [] for name in found}
            warnings = []
    else:
        apply_operations(operations, deps, path)
        assert same_json(deps, vector["deps"])
        first = len(vector.get("initial_messages", []))
        logged_seqs = vector.get("logged_seqs", [])  # run_context has no log
        assert logged_seqs == list(range(first, first + len(found["logged"])))
    for disposition, events in found.items():
        assert same_json(events, vector[disposition]), disposition
    assert warnings == vector["warnings"]


def _warnings(judged: list[Any]) -> list[dict[str, Any]]:
    """The warnings of an update, from what was judged."""
    dropped = [event.type for event in judged if event.disposition is Disposition.DROPPED]
    found: list[dict[str, Any]] = []
    if dropped:
        found.append(
            {"count": len(dropped), "kind": "dropped_no_log", "level": "warning", "types": dropped}
        )
    for event in judged:
        if event.disposition is Disposition.REFUSED:
            found.append({"kind": "refused_surface_type", "level": "warning", "type": event.type})
        if event.disposition is Disposition.INVALID:
            found.append(
                {
                    "kind": "invalid_event",
                    "level": "warning",
                    "reason": event.reason.value,
                    "type": event.type,
                }
            )
    return found


# -- properties ----------------------------------------------------------------------------

KEYS = st.sampled_from(["a", "b", "items", "keys", "0", ""])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
MAPS = st.dictionaries(KEYS, JSON, max_size=4)
OPERATIONS = st.lists(
    st.one_of(
        st.builds(Operation, st.just("set"), KEYS, JSON),
        st.builds(Operation, st.just("merge"), KEYS, MAPS),
        st.builds(Operation, st.just("append"), KEYS, JSON),
        st.builds(Operation, st.just("delete"), KEYS, st.none()),
        st.builds(Operation, st.just("log_event"), st.just("tool_call"), MAPS),
    ),
    max_size=8,
)


def plain_fold(operations: list[Operation], deps: dict[str, Any]) -> dict[str, Any] | None:
    """The rules of `nous.md`, written down a second time without care for cost."""
    deps = copy_json(deps)
    for name, key, value in copy_operations(operations):
        if name == "set":
            deps[key] = value
        elif name == "merge":
            deps[key] = _plain_merge(deps.get(key, {}), value)
        elif name == "append":
            old = deps.get(key)
            if old is None or old is False or old == {}:
                old = []
            if not isinstance(old, list):
                return None
            deps[key] = [*old, value]
        elif name == "delete":
            deps.pop(key, None)
    return deps


def _plain_merge(old: Any, new: Any) -> Any:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return {
        key: _plain_merge(old[key], new[key]) if key in old and key in new
        else new.get(key, old.get(key))
        for key in {**old, **new}
    }  # fmt: skip


@given(OPERATIONS, MAPS)
def test_fold_is_the_plain_reading_of_the_rules(operations, deps):
    expected = plain_fold(operations, deps)
    folded = copy_json(deps)
    if expected is None:
        with pytest.raises(OperationRefused):
            to_deps(copy_operations(operations), folded)
        assert same_json(folded, deps)
    else:
        to_deps(copy_operations(operations), folded)
        assert same_json(folded, expected)


@given(OPERATIONS, MAPS, st.sampled_from(Path))
def test_an_update_can_be_taken_back(operations, deps, path):
    folded = copy_json(deps)
    try:
        applied = apply_operations(copy_operations(operations), folded, path)
    except OperationRefused:
        assert same_json(folded, deps)
        return
    take_back(applied.undo)
    assert same_json(folded, deps)


@given(OPERATIONS, OPERATIONS, MAPS)
def test_two_updates_fold_as_one(first, second, deps):
    expected = plain_fold(first + second, deps)
    if expected is None:
        return
    folded = copy_json(deps)
    to_deps(copy_operations(first), folded)
    to_deps(copy_operations(second), folded)
    assert same_json(folded, expected)


@given(OPERATIONS, MAPS)
def test_runner_lays_its_own_result_over_the_deps(operations, deps):
    alone = plain_fold(operations, {})
    folded = copy_json(deps)
    if alone is None:
        with pytest.raises(OperationRefused):
            apply_operations(copy_operations(operations), folded, Path.RUNNER)
        return
    apply_operations(copy_operations(operations), folded, Path.RUNNER)
    assert same_json(folded, {**deps, **alone})


@given(OPERATIONS, MAPS)
def test_runner_names_the_keys_where_context_differs(operations, deps):
    if plain_fold(operations, {}) is None:
        return
    folded = copy_json(deps)
    applied = apply_operations(copy_operations(operations), folded, Path.RUNNER)
    as_context = plain_fold(operations, deps)
    if as_context is None:
        assert applied.context_refuses is not None
        return
    missing = object()
    expected = {
        key
        for key in {*folded, *as_context}
        if (key in folded) != (key in as_context)
        or not same_json(folded.get(key, missing), as_context.get(key, missing))
    }
    assert set(applied.differs) == expected


def test_ten_thousand_appends_touch_each_item_once():
    deps: dict[str, Any] = {}
    fold = to_deps([Operation("append", "log", n) for n in range(10_000)], deps)
    assert deps["log"] == list(range(10_000))
    assert len(fold.undo) == 10_000, "one note an append, however long the list"


def test_a_key_may_be_set_deleted_and_appended_a_thousand_times():
    operations = [
        Operation("set", "k", []), Operation("delete", "k"), Operation("append", "k", 1),
    ] * 1000  # fmt: skip
    deps: dict[str, Any] = {}
    to_deps(operations, deps)
    assert deps == {"k": [1]}


@pytest.mark.parametrize(
    ("raw", "rule"),
    [
        (["increment", "k", 1], "unknown_operation"),
        (["SET", "k", 1], "unknown_operation"),
        ([], "unknown_operation"),
        ({"key": "k"}, "unknown_operation"),
        ({"op": ["set"], "key": "k"}, "unknown_operation"),
        ("set", "operation_form"),
        (["set", "k"], "operation_arity"),
        (["set", "k", 1, 2], "operation_arity"),
        (["delete", "k", 1], "operation_arity"),
        (["set", 1, 1], "text_required"),
        (["set", None, 1], "text_required"),
        (["merge", "k", [1]], "map_required"),
        (["log_event", "tool_call", "x"], "map_required"),
        (["log_event", 7, {}], "text_required"),
        ({"op": "set", "key": "k"}, "missing_field"),
        ({"op": "set", "key": "k", "value": 1, "extra": 2}, "unknown_field"),
        ({"op": "delete", "key": "k", "value": 1}, "unknown_field"),
        ({"op": "log_event", "key": "tool_call", "value": {}}, "unknown_field"),
    ],
)
def test_an_operation_that_cannot_be_built_is_refused_by_rule(raw, rule):
    with pytest.raises(OperationRefused) as refused:
        parse_operations([["set", "fine", 1], raw])
    assert refused.value.rule == rule
    assert refused.value.index == 1


def test_an_unknown_operation_fails_in_the_fold_as_well():
    deps = {"k": [1]}
    with pytest.raises(OperationRefused):
        to_deps([Operation("append", "k", 2), Operation("prepend", "k", 0)], deps)
    assert deps == {"k": [1]}


def test_both_forms_of_an_operation_are_the_same_operation():
    arrays = [["set", "k", 1], ["merge", "k", {}], ["delete", "k"], ["log_event", "t", {"a": 1}]]
    objects = [
        {"op": "set", "key": "k", "value": 1},
        {"op": "merge", "key": "k", "value": {}},
        {"op": "delete", "key": "k"},
        {"op": "log_event", "type": "t", "data": {"a": 1}},
    ]
    assert parse_operations(arrays) == parse_operations(objects)


@pytest.mark.parametrize(
    ("left", "right"), [(1, 1.0), (1, True), (0.0, -0.0), ("1", 1), ([], {}), (None, False)]
)
def test_values_that_look_alike_are_not_the_same_json(left, right):
    assert not same_json(left, right)
