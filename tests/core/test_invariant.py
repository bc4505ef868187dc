"""Orphaned tool results are found, and a request is compared with its log, as upstream does."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.core.reducer import copy_json, same_json
from sessions.core.transcript import (
    LogEvent,
    Mismatch,
    MismatchKind,
    Orphan,
    compare_request,
    orphans_of,
    transcript_of,
)
from tests.core.logs import calls, log_of, logs, make_log, result, says, vectors


def orphan_outcome(messages: list[dict[str, Any]]) -> Any:
    orphans = orphans_of(messages)
    if not orphans:
        return "ok"
    return {"kind": "orphaned_tool_result", "tool_call_id": orphans[0].tool_call_id}


def mismatch_outcome(mismatch: Mismatch | None) -> Any:
    if mismatch is None:
        return "ok"
    return {
        "kind": mismatch.kind.value,
        "index": mismatch.index,
        "extra": mismatch.extra,
        "missing": mismatch.missing,
        "log_length": mismatch.log_length,
        "request_length": mismatch.request_length,
    }


@pytest.mark.parametrize("vector", vectors("invariant"))
def test_invariant_vector(vector: dict[str, Any]) -> None:
    messages = transcript_of(log_of(vector["events"])).messages
    if "request" in vector:
        found = mismatch_outcome(compare_request(vector["request"], messages))
    else:
        found = orphan_outcome(messages)
    assert same_json(found, vector["result"])


# -- orphans -------------------------------------------------------------------------------


def orphans(*events: tuple[str, dict[str, Any]]) -> list[Orphan]:
    return orphans_of(transcript_of(make_log(*events)).messages)


def test_every_orphan_is_found_in_order() -> None:
    found = orphans(result("x"), calls("a"), result("a"), result("y"))
    assert found == [Orphan(0, "x"), Orphan(3, "y")]


@pytest.mark.parametrize("other", ["5", 5.0, True, None, [5], {"a": 5}])
def test_ids_of_another_json_type_do_not_pair(other: Any) -> None:
    assert orphans(calls(5), result(other)) == [Orphan(1, other)]
    assert orphans(calls(other), result(5)) == [Orphan(1, 5)]


def test_a_call_without_id_pairs_with_a_result_without_id() -> None:
    assert orphans(calls(None), result(None)) == []


def test_ids_that_are_containers_pair_with_their_equals() -> None:
    assert orphans(calls({"a": 1, "b": [2]}), result({"b": [2], "a": 1})) == []


def test_odd_tool_calls_call_nothing() -> None:
    odd = ("assistant_message", {"content": "", "tool_calls": ["a", 5, None]})
    assert orphans(odd, result("a")) == [Orphan(1, "a")]


# -- requests ------------------------------------------------------------------------------

LOG = transcript_of(make_log(says("q"), calls("a"), result("a"), says("thanks"))).messages


def compared(*changes: tuple[int, str, Any]) -> Mismatch | None:
    request = copy_json(LOG)
    for index, name, value in changes:
        request[index][name] = value
    return compare_request(request, LOG)


@given(logs())
def test_what_the_log_projects_to_may_be_sent(events: list[LogEvent]) -> None:
    messages = transcript_of(events).messages
    assert compare_request(copy_json(messages), messages) is None


@given(logs(), st.data())
def test_leaving_a_message_out_never_goes_unseen(events: list[LogEvent], data: Any) -> None:
    prompt = {"role": "system", "content": "You are terse."}
    messages = [prompt, *transcript_of(events).messages]
    index = data.draw(st.integers(1, len(messages)))
    mismatch = compare_request(messages[:index] + messages[index + 1 :], messages)
    if index == len(messages):
        assert mismatch is None
    else:
        assert mismatch is not None
        assert mismatch.kind is MismatchKind.MISSING_MESSAGE
        assert [m["role"] for m in mismatch.missing] == [messages[index]["role"]]


def test_a_leading_system_message_counts_as_the_prompt_where_the_log_starts_with_none() -> None:
    request = [{"role": "system", "content": "You are terse."}, *LOG[1:]]
    mismatch = compare_request(request, LOG)
    assert mismatch is not None
    assert (mismatch.kind, mismatch.index) == (MismatchKind.MISSING_MESSAGE, 0)
    assert mismatch.request_length == len(LOG) - 1


def test_what_the_model_does_not_get_is_not_compared() -> None:
    assert compared((0, "metadata", {"z": 1}), (0, "created_at", None)) is None
    assert compared((0, "tool_calls", None), (0, "reasoning_content", "r")) is None


def test_a_changed_message_is_shown_on_both_sides() -> None:
    mismatch = compared((3, "content", "thanks!"))
    assert mismatch is not None
    assert mismatch.kind is MismatchKind.CHANGED_MESSAGE
    assert mismatch.index == 3
    assert [m["preview"] for m in mismatch.extra] == ["thanks!"]
    assert [m["preview"] for m in mismatch.missing] == ["thanks"]


def test_one_and_true_are_two_contents() -> None:
    messages = transcript_of(make_log(("user_message", {"content": 1}))).messages
    assert compare_request([{**messages[0], "content": 1.0}], messages) is not None
    assert compare_request([{**messages[0], "content": True}], messages) is not None


def test_another_order_is_a_mismatch_with_nothing_extra_or_missing() -> None:
    mismatch = compare_request([LOG[3], *LOG[1:3], LOG[0]], LOG)
    assert mismatch is not None
    assert (mismatch.kind, mismatch.index) == (MismatchKind.CHANGED_ORDER, 0)
    assert mismatch.extra == mismatch.missing == []


def test_a_long_message_is_quoted_in_part() -> None:
    mismatch = compare_request([*LOG, {"role": "user", "content": "x" * 500}], LOG)
    assert mismatch is not None
    assert mismatch.kind is MismatchKind.EXTRA_MESSAGE
    assert mismatch.extra[0]["preview"] == "x" * 79 + "…"


def test_content_in_parts_is_quoted_as_json() -> None:
    parts = [{"type": "text", "text": "hi"}]
    mismatch = compare_request([*LOG, {"role": "user", "content": parts}], LOG)
    assert mismatch is not None
    assert mismatch.extra[0]["preview"] == '[{"text":"hi","type":"text"}]'
