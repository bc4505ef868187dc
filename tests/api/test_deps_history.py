"""Deps at any version, whatever was cached, checkpointed and rewound in between."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from sessions import deps as deps_module
from sessions.core.reducer import (
    OperationRefused,
    Path,
    apply_operations,
    copy_json,
    parse_operations,
    same_json,
)
from sessions.ingest.places import forget_kept_rows
from sessions.models import Checkpoint, Session
from tests.core.test_reducer import JSON, KEYS, MAPS

_names = (f"prop-{n}" for n in itertools.count())

OPERATION = st.one_of(
    st.tuples(st.just("set"), KEYS, JSON),
    st.tuples(st.just("merge"), KEYS, MAPS),
    st.tuples(st.just("append"), KEYS, JSON),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("log_event"), st.just("tool_call"), MAPS),
).map(list)
ACTION = st.one_of(
    st.tuples(st.just("update"), st.lists(OPERATION, max_size=4), st.sampled_from(list(Path))),
    st.tuples(st.just("event"), MAPS),
    st.tuples(st.just("rewind"), st.floats(0, 1)),
    st.tuples(st.just("forget")),
)


@dataclass
class Model:
    """What the session should hold: the state after each moment of the live log."""

    deps: dict[str, Any] = field(default_factory=dict)
    versions: list[dict[str, Any]] = field(default_factory=lambda: [{}])
    # deps when the log became n events long, by n
    moments: list[dict[str, Any]] = field(default_factory=lambda: [{}])

    def logged(self, count: int) -> None:
        self.moments += [copy_json(self.deps) for _ in range(count)]


@pytest.mark.parametrize("least", [1, 32 * 1024])
@hypothesis_settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(actions=st.lists(ACTION, max_size=14))
def test_deps_at_every_version_follow_the_rules(api, monkeypatch, least, actions):
    monkeypatch.setattr(deps_module, "LEAST_CHECKPOINT_BYTES", least)
    key, model = next(_names), Model()
    for kind, *arguments in actions:
        if kind == "update":
            _update(api, key, model, *arguments)
        elif kind == "event":
            assert (
                api.event(key, "tool_call", arguments[0], seq=len(model.moments) - 1).status == 201
            )
            model.logged(1)
        elif kind == "rewind" and len(model.moments) > 1:
            to_seq = int(arguments[0] * (len(model.moments) - 1))
            assert api.rewind(key, to_seq).status in (200, 201)
            del model.moments[to_seq + 1 :]
            model.deps = copy_json(model.moments[to_seq])
        else:
            deps_module.heads.drop()
            forget_kept_rows()
    if len(model.versions) == 1 and len(model.moments) == 1:
        return
    if not Session.objects.filter(key=key).exists():
        return
    assert same_json(api.deps(key), model.deps)
    for version, expected in enumerate(model.versions):
        assert same_json(api.deps(key, version), expected), version


def _update(api, key: str, model: Model, operations: list[Any], path: Path) -> None:
    answer = api.update(key, *operations, path=path.value)
    deps = copy_json(model.deps)
    try:
        apply_operations(parse_operations(copy_json(operations)), deps, path)
    except OperationRefused:
        assert answer.status == 422
        return
    assert answer.status == 201, answer
    model.deps = deps
    model.versions.append(copy_json(deps))
    model.logged(sum(event["disposition"] == "logged" for event in answer.json["events"]))


def test_checkpoints_stay_in_proportion_to_what_was_received(api):
    received = 0
    for n in range(300):
        body = {"operations": [["set", f"k{n % 50}", "x" * 2000]]}
        received += 2000
        api.post("sessions/s/updates", body)
    sizes = [len(row.deps) for row in Checkpoint.objects.all()]
    assert len(sizes) >= 3
    assert sum(sizes) <= 3 * received
    assert api.deps("s") == {f"k{n}": "x" * 2000 for n in range(50)}
    assert len(api.deps("s", 150)) == 50


def test_reading_a_version_folds_no_more_than_one_checkpoint_weighs(
    api, django_assert_max_num_queries
):
    for n in range(200):
        api.update("s", ["append", "l", f"{n}" * 300])
    with django_assert_max_num_queries(7):
        assert len(api.deps("s", 120)["l"]) == 120


def test_versions_out_of_range_are_named(api):
    api.update("s", ["set", "a", 1])
    assert api.deps("s", 0) == {}
    answer = api.get("sessions/s/deps?version=2")
    assert answer.status == 404
    assert answer.problem["head"] == 1
    for bad in ("-1", "x", "1.5", "99999999999999999999"):
        assert api.get(f"sessions/s/deps?version={bad}").status == 422


def test_another_process_that_writes_is_caught_up_with(api):
    api.update("s", ["append", "l", 1])
    session = Session.objects.get()
    mine = deps_module.heads.take(session)
    api.update("s", ["append", "l", 2])  # stands for another process: it folds from the rows
    deps_module.heads.drop()
    deps_module.heads.give_back(session.pk, mine, 100)  # still at version 1
    api.update("s", ["append", "l", 3])
    assert api.deps("s") == {"l": [1, 2, 3]}


def test_the_head_cache_keeps_within_its_bytes(api, monkeypatch):
    cache = deps_module.HeadCache(10_000)
    for n in range(20):
        cache.give_back(n, deps_module.Head(0, 0, {}), 2000)
    assert cache._bytes <= 10_000
    assert len(cache._heads) == 3
