"""Rewinds: a runner that goes back is followed, and what it abandoned stays."""

import pytest

from sessions.models import Checkpoint, Epoch, Event, Step


def five_events(api, key="s"):
    """Two events, an update, and three more events: seqs 0–4, with deps a=1 after seq 1."""
    api.event(key, "user_message", {"content": "0"}, seq=0)
    api.update(key, ["set", "a", 1], ["log_event", "tool_call", {"n": 1}], first_seq=1)
    api.event(key, "tool_call", {"n": 2}, seq=2)
    api.update(key, ["set", "a", 2], ["append", "l", 1], ["log_event", "tool_call", {"n": 3}])
    api.event(key, "tool_call", {"n": 4}, seq=4)


def test_log_and_deps_are_again_what_they_were(api):
    five_events(api)
    answer = api.rewind("s", 2, reason="the run failed")
    assert answer.status == 201
    assert answer.json["epoch"] == 1
    assert answer.json["next_seq"] == 2
    assert answer.json["version"] == 2
    assert api.deps("s") == {"a": 1}
    assert api.event("s", "tool_call", {"n": "again"}, seq=2).status == 201


def test_what_came_after_stays_marked_and_counted(api):
    five_events(api)
    api.rewind("s", 2)
    events = api.timeline("s")
    assert len(events) == 5
    session = api.session("s")
    assert session["abandoned"] == 4  # seq 2, the second update and its event, seq 4
    assert Step.objects.get().abandoned_from == 4
    assert session["events"] == 5


def test_the_newest_version_still_says_what_its_update_left(api):
    five_events(api)
    api.rewind("s", 2)
    assert api.deps("s", 2) == {"a": 2, "l": [1]}
    assert api.deps("s", 1) == {"a": 1}
    assert api.deps("s") == {"a": 1}


def test_updates_after_a_rewind_fold_into_what_it_went_back_to(api):
    five_events(api)
    api.rewind("s", 2)
    assert api.update("s", ["append", "l", 9]).json["version"] == 3
    assert api.deps("s") == {"a": 1, "l": [9]}
    assert api.deps("s", 3) == {"a": 1, "l": [9]}


def test_a_rewind_to_zero_is_a_clean_slate(api):
    five_events(api)
    api.rewind("s", 0, reason="history cleared")
    assert api.deps("s") == {}
    assert api.session("s")["next_seq"] == 0
    assert api.session("s")["abandoned"] == 7
    assert api.event("s", "user_message", {"content": "0"}, seq=0).json["epoch"] == 1


def test_a_rewind_writes_a_checkpoint_that_no_fold_crosses(api):
    five_events(api)
    api.rewind("s", 2)
    checkpoint = Checkpoint.objects.get()
    assert (checkpoint.version, checkpoint.epoch, checkpoint.deps) == (2, 1, '{"a":1}')


def test_the_same_seqs_come_again_with_other_content(api):
    five_events(api)
    api.rewind("s", 2)
    for n in (2, 3, 4):
        assert api.event("s", "tool_call", {"other": n}, seq=n).status == 201
    live = api.get("sessions/s/events?after_seq=0").json["events"]
    assert [(e["seq"], e["epoch"]) for e in live] == [(1, 0), (2, 1), (3, 1), (4, 1)]
    assert Event.objects.filter(seq=3).count() == 2
    # what is held now is what counts
    assert api.event("s", "tool_call", {"other": 3}, seq=3).json["duplicate"] is True
    assert api.event("s", "tool_call", {"n": 3}, seq=3).status == 409


def test_rewinds_may_go_back_again_and_again(api):
    five_events(api)
    api.rewind("s", 4)
    api.event("s", "tool_call", {"e": 1}, seq=4)
    api.rewind("s", 4)
    api.event("s", "tool_call", {"e": 2}, seq=4)
    api.rewind("s", 1)
    assert api.deps("s") == {}
    api.update("s", ["set", "b", 1], ["log_event", "tool_call", {}])
    api.rewind("s", 2)
    assert api.deps("s") == {"b": 1}
    assert api.session("s")["epoch"] == 4
    held = api.get("sessions/s/events?after_seq=0").json["events"]
    assert [(e["seq"], e["epoch"]) for e in held] == [(1, 3)]
    # all rows but the first event and the last update with its event
    assert api.session("s")["abandoned"] == api.session("s")["next_ordinal"] - 1 - 3


def test_an_event_behind_the_head_may_ask_for_the_rewind(api):
    five_events(api)
    answer = api.event("s", "user_message", {"content": "other"}, seq=2, rewind=True)
    assert answer.status == 201
    assert answer.json["epoch"] == 1
    assert answer.json["seq"] == 2
    assert api.deps("s") == {"a": 1}
    assert Epoch.objects.get().by_event


def test_a_rewinding_event_sent_again_is_a_duplicate(api):
    five_events(api)
    event = {"seq": 2, "rewind": True, "time": "2026-03-01T09:00:00Z"}
    api.event("s", "user_message", {"content": "other"}, **event)
    api.event("s", "tool_call", {}, seq=3)
    again = api.event("s", "user_message", {"content": "other"}, **event)
    assert again.status == 200
    assert again.json["duplicate"] is True
    assert Epoch.objects.count() == 1


def test_the_same_content_at_another_time_is_another_rewind(api):
    five_events(api)
    api.event("s", "user_message", {}, seq=2, rewind=True, time="2026-03-01T09:00:00Z")
    api.event("s", "user_message", {}, seq=2, rewind=True, time="2026-03-01T09:05:00Z")
    assert Epoch.objects.count() == 2


def test_rewind_at_the_head_of_the_log_is_no_rewind_for_an_event(api):
    five_events(api)
    answer = api.event("s", "tool_call", {}, seq=5, rewind=True)
    assert answer.status == 201
    assert answer.json["epoch"] == 0


def test_a_rewind_sent_again_with_nothing_since_is_the_same_one(api):
    five_events(api)
    first = api.rewind("s", 2, reason="x")
    again = api.rewind("s", 2, reason="x")
    assert (first.status, again.status) == (201, 200)
    assert first.json == again.json
    assert Epoch.objects.count() == 1


def test_a_rewind_ahead_of_the_log_is_refused(api):
    five_events(api)
    answer = api.rewind("s", 6)
    assert answer.status == 409
    assert answer.problem["rule"] == "rewind_out_of_range"


def test_a_rewind_of_an_unknown_session_is_not_found(api):
    assert api.rewind("nope", 0).status == 404


@pytest.mark.parametrize("to_seq", [-1, True, 1.0, "1", None])
def test_a_rewind_needs_a_real_seq(api, to_seq):
    five_events(api)
    answer = api.rewind("s", to_seq)
    assert answer.status == 422
    assert answer.problem["field"] == "to_seq"


def test_an_update_whose_event_came_first_by_broadcast_stays_with_it(api):
    api.event("s", "tool_call", {"id": "a"}, seq=0)
    api.update("s", ["set", "k", 1], ["log_event", "tool_call", {"id": "a"}], first_seq=0)
    api.event("s", "tool_call", {"id": "b"}, seq=1)
    api.rewind("s", 1)
    assert api.deps("s") == {"k": 1}


def test_an_array_may_rewind_in_its_middle(api):
    five_events(api)
    rows = [
        {"seq": 5, "type": "tool_call", "data": {"n": 5}},
        {"seq": 3, "type": "tool_call", "data": {"n": "new"}, "rewind": True},
        {"seq": 4, "type": "tool_call", "data": {"n": "newer"}},
    ]
    answer = api.post("sessions/s/events", rows)
    assert [(r["seq"], r["epoch"]) for r in answer.json["results"]] == [(5, 0), (3, 1), (4, 1)]
    assert api.session("s")["next_seq"] == 5
    again = api.post("sessions/s/events", rows[1:])
    assert again.status == 200


def test_turns_and_steps_go_on_where_they_were(api):
    api.events(
        "s",
        ("user_message", {}), ("turn_start", {"turn": 1}), ("step_start", {"turn": 1, "step": 1}),
        ("step_end", {"outcome": "ok"}), ("step_start", {"turn": 1, "step": 2}),
        ("assistant_message", {}), ("step_end", {"outcome": "ok"}), ("turn_end", {"turn": 1}),
        ("user_message", {}), ("turn_start", {"turn": 2}),
    )  # fmt: skip
    api.rewind("s", 6)  # inside step 2 of turn 1
    assert api.session("s")["status"] == "running"
    api.events(
        "s",
        ("tool_result", {}), ("step_end", {"outcome": "error"}),
        ("step_start", {"turn": 1, "step": 3}), ("step_end", {}), ("turn_end", {"turn": 1}),
        ("user_message", {}),
    )  # fmt: skip
    events = api.timeline("s")[-6:]
    assert [(e["epoch"], e["turn"], e["step"]) for e in events] == [
        (1, 1, 2), (1, 1, 2), (1, 1, 3), (1, 1, 3), (1, 1, 0), (1, 2, 0),
    ]  # fmt: skip
    assert api.session("s")["status"] == "idle"
