"""Context blobs are read and written as both upstream readers do, and nothing lost goes unsaid."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.core.blob import (
    COUNTERS,
    BlobFault,
    BlobRefused,
    Context,
    NoteKind,
    ReadBlob,
    Reader,
    read_blob,
    serialize_deps,
    write_blob,
)
from sessions.core.reducer import copy_json, same_json
from sessions.core.transcript import LogEvent
from tests.core.logs import logs, make_log, says, vectors

NOW = "$now"


def outcome(blob: Any, reader: Reader, version: int) -> dict[str, Any]:
    """What a vector's `expect` says, for our reader; `version` is the one to write again."""
    try:
        read = read_blob(blob, now=NOW, reader=reader)
    except BlobRefused as refused:
        return {
            "ok": False,
            "error": refused.fault.value,
            "reason": refused.reason,
            "warnings": [note.as_json() for note in refused.notes],
        }
    context, transcript = read.context, read.context.transcript
    return {
        "ok": True,
        "events": [
            {"seq": e.seq, "type": e.type, "time": e.time, "data": e.data} for e in context.events
        ],
        "next_seq": context.next_seq,
        "surface_seqs": transcript.surface_seqs,
        "messages": transcript.messages,
        "deps": context.deps,
        "system_prompt": context.system_prompt,
        "tool_calls": context.tool_calls,
        "usage": context.usage,
        "needs_response": context.needs_response,
        "iteration": context.iteration,
        "max_iterations": context.max_iterations,
        "started_at": context.started_at,
        "agent_name": context.agent_name,
        "warnings": [note.as_json() for note in read.notes],
        "reserialized": write_blob(context, version),
    }


def as_version_3(expected: dict[str, Any]) -> dict[str, Any]:
    """What the later reader is expected to write, where both readers agree."""
    if not expected["ok"]:
        return expected
    written = {**expected["reserialized"], "version": 3}
    del written["messages"]
    return {**expected, "reserialized": written}


@pytest.mark.parametrize("vector", vectors("context_blob"))
def test_version_2_reader_vector(vector: dict[str, Any]) -> None:
    blob = copy_json(vector["blob"])
    assert same_json(outcome(blob, Reader.V2, 2), vector["expect"])
    assert same_json(blob, vector["blob"]), "reading changes no blob"


@pytest.mark.parametrize("vector", vectors("context_blob"))
def test_later_reader_vector(vector: dict[str, Any]) -> None:
    expected = vector.get("expect_later") or as_version_3(vector["expect"])
    assert same_json(outcome(vector["blob"], Reader.LATER, 3), expected)


@pytest.mark.parametrize("vector", vectors("context_v3"))
def test_version_3_vector(vector: dict[str, Any]) -> None:
    assert same_json(outcome(vector["blob"], Reader.LATER, 3), vector["expect"])


@pytest.mark.parametrize("vector", vectors("serialize_deps"))
def test_serialize_deps_vector(vector: dict[str, Any]) -> None:
    assert same_json(serialize_deps(vector["deps"]), vector["serialized_deps"])


# -- there and back ------------------------------------------------------------------------

_scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5)
)
_values = st.recursive(
    _scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)
_counters = st.integers(0, 10**12)


def contexts(gaps: bool) -> st.SearchStrategy[Context]:
    return st.builds(
        Context,
        events=logs(gaps=gaps),
        deps=st.dictionaries(st.sampled_from(["a", "b", "notes", "api-key"]), _values),
        system_prompt=st.none() | st.text(max_size=5),
        tool_calls=st.lists(st.just({"id": "a"}), max_size=2),
        usage=st.fixed_dictionaries(dict.fromkeys(COUNTERS, _counters)),
        needs_response=st.booleans(),
        iteration=st.integers(0, 99),
        max_iterations=st.integers(1, 99),
        started_at=st.sampled_from([None, "2026-03-01T09:00:00.120Z"]),
        agent_name=st.none() | st.text(max_size=5),
    )


def as_json(context: Context, notes: list[Any]) -> list[Any]:
    return [write_blob(context, 3), context.next_seq, notes]


@given(contexts(gaps=True))
def test_version_3_gives_back_what_was_written(context: Context) -> None:
    read = read_blob(write_blob(context, 3), now=NOW)
    assert same_json(as_json(read.context, read.notes), as_json(context, []))
    assert read.version == 3


@given(contexts(gaps=False), st.sampled_from(Reader))
def test_version_2_without_gaps_gives_both_readers_what_was_written(
    context: Context, reader: Reader
) -> None:
    read = read_blob(write_blob(context, 2), now=NOW, reader=reader)
    assert same_json(as_json(read.context, read.notes), as_json(context, []))


def test_credentials_are_read_and_never_written() -> None:
    read = read_blob({"version": 3, "events": [], "deps": {"api_key": "sk", "a": 1}}, now=NOW)
    assert read.context.deps == {"api_key": "sk", "a": 1}
    assert write_blob(read.context, 3)["deps"] == {"a": 1}


def test_another_version_is_not_written() -> None:
    with pytest.raises(ValueError, match="version 2 or 3"):
        write_blob(Context([]), 1)


# -- the report ----------------------------------------------------------------------------


def read_events(*events: dict[str, Any], reader: Reader = Reader.LATER) -> ReadBlob:
    return read_blob({"version": 2, "events": list(events)}, now=NOW, reader=reader)


def event(**fields: Any) -> dict[str, Any]:
    return {"type": "user_message", "time": "2026-03-01T09:00:00Z", "data": {}, **fields}


def test_a_note_names_the_place_of_what_it_is_about() -> None:
    read = read_events(event(), event(type="nope"), event(time="soon"))
    assert [(note.kind, note.index) for note in read.notes] == [
        (NoteKind.UNKNOWN_EVENT_TYPE, 1),
        (NoteKind.UNREADABLE_TIME, 2),
    ]


def test_a_lost_event_is_an_error_and_takes_no_seq() -> None:
    bad = event(seq=4, data={"surface_op": ["replace", 3, 1]})
    read = read_events(event(seq=0), bad, event(seq=2))
    assert [e.seq for e in read.context.events] == [0, 2]
    assert [note.level for note in read.notes] == ["error", "error"]


def test_the_version_2_reader_says_which_seqs_it_changed() -> None:
    read = read_events(event(seq=3), event(), event(seq=7), reader=Reader.V2)
    assert [e.seq for e in read.context.events] == [0, 1, 2]
    assert [dict(note.fields) for note in read.notes] == [
        {"seq": 3, "expected": 0},
        {"seq": 7, "expected": 2},
    ]


def test_an_unreadable_surface_op_is_left_out_of_a_copy() -> None:
    data = {"content": "s", "surface_op": None}
    read = read_events(event(data=data))
    assert read.context.events == [
        LogEvent(0, "user_message", {"content": "s"}, "2026-03-01T09:00:00Z")
    ]
    assert data == {"content": "s", "surface_op": None}


def test_a_refusal_carries_what_was_noted_before() -> None:
    with pytest.raises(BlobRefused) as refused:
        read_events(event(type="nope"), [])  # type: ignore[arg-type]
    assert refused.value.reason == "event_not_an_object"
    assert [note.kind for note in refused.value.notes] == [NoteKind.UNKNOWN_EVENT_TYPE]


@pytest.mark.parametrize("blob", [None, [], "x", 2])
def test_what_is_no_object_is_no_blob(blob: Any) -> None:
    with pytest.raises(BlobRefused) as refused:
        read_blob(blob, now=NOW)
    assert refused.value.fault is BlobFault.MALFORMED


@pytest.mark.parametrize("version", [True, 2.0, "2", 0, [2]])
def test_a_version_is_a_real_integer(version: Any) -> None:
    with pytest.raises(BlobRefused) as refused:
        read_blob({"version": version, "events": []}, now=NOW)
    assert refused.value.fault is BlobFault.UNSUPPORTED_VERSION


def test_a_context_has_the_defaults_of_an_empty_blob() -> None:
    assert read_blob({"version": 3, "events": []}, now=NOW).context == Context([])


def test_the_next_seq_follows_the_last_event() -> None:
    assert Context([]).next_seq == 0
    assert Context(make_log(says("a"), says("b"))).next_seq == 2
