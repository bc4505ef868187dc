"""Turn and step of every row follow from the log's own events, by stack."""

from sessions.models import Step, Turn


def places(api, key="s"):
    return [(event["turn"], event["step"]) for event in api.timeline(key)]


def test_an_ordinary_run_with_its_lead_in(api):
    api.events(
        "s",
        ("system_message", {}), ("user_message", {}),  # before the turn: its lead-in
        ("turn_start", {"turn": 1}),
        ("user_message", {"source": "memory"}),  # before the step
        ("step_start", {"turn": 1, "step": 1}), ("assistant_message", {}), ("tool_result", {}),
        ("step_end", {"turn": 1, "step": 1, "outcome": "ok"}),
        ("step_start", {"turn": 1, "step": 2}), ("assistant_message", {}),
        ("step_end", {"turn": 1, "step": 2, "outcome": "error"}),
        ("turn_end", {"turn": 1, "steps": 2, "reason": "complete"}),
        ("user_message", {}),  # between turns: the lead-in of the next one
        ("turn_start", {"turn": 2}),
    )  # fmt: skip
    assert places(api) == [
        (1, 0), (1, 0), (1, 0), (1, 0),
        (1, 1), (1, 1), (1, 1), (1, 1),
        (1, 2), (1, 2), (1, 2),
        (1, 0), (2, 0), (2, 0),
    ]  # fmt: skip
    assert Step.objects.get(turn__number=1, number=2).outcome == "error"
    assert Turn.objects.get(number=1).reason == "complete"
    session = api.session("s")
    assert (session["turns"], session["steps"], session["errors"]) == (2, 2, 1)
    assert (session["status"], session["turn"], session["step"]) == ("running", 2, None)


def test_updates_and_lost_events_stand_in_the_step_that_is_open(api):
    api.events("s", ("turn_start", {}), ("step_start", {}))
    api.update("s", ["set", "a", 1], ["log_event", "tool_call", {}], path="run_context")
    api.events("s", ("step_end", {}))
    api.update("s", ["log_event", "user_message", {}])
    steps = api.get("sessions/s/steps").json["steps"]
    found = {step["step"]: (step["updates"], step["dropped"], step["refused"]) for step in steps}
    assert found == {0: (1, 0, 1), 1: (1, 1, 0)}
    [update, _] = api.get("sessions/s/updates").json["updates"]
    assert (update["turn"], update["step"]) == (1, 1)


def test_a_run_without_turns_and_steps_is_one_lead_in(api):
    api.events("s", *[("user_message", {}), ("assistant_message", {})] * 3)
    assert set(places(api)) == {(1, 0)}
    assert api.session("s")["status"] == "idle"
    assert api.session("s")["turns"] == 0


def test_a_turn_opened_inside_a_turn_is_nested(api):
    api.events(
        "s",
        ("turn_start", {}), ("step_start", {}), ("turn_start", {}), ("step_start", {}),
        ("step_end", {}), ("turn_end", {}), ("assistant_message", {}), ("step_end", {}),
        ("turn_end", {}),
    )  # fmt: skip
    assert places(api) == [
        (1, 0), (1, 1), (2, 0), (2, 1), (2, 1), (2, 0), (1, 1), (1, 1), (1, 0),
    ]  # fmt: skip
    assert api.session("s")["status"] == "idle"


def test_ends_without_a_beginning_close_nothing(api):
    api.events("s", ("turn_end", {}), ("step_end", {}), ("turn_start", {}), ("turn_end", {}))
    assert places(api) == [(1, 0)] * 4
    assert Turn.objects.count() == 1


def test_a_step_left_open_takes_no_rows_of_a_later_turn(api):
    api.events(
        "s",
        ("turn_start", {}), ("step_start", {}), ("turn_end", {}),
        ("turn_start", {}), ("assistant_message", {}), ("step_end", {"outcome": "ok"}),
        ("step_start", {}), ("assistant_message", {}),
    )  # fmt: skip
    assert places(api) == [
        (1, 0), (1, 1), (1, 1), (2, 0), (2, 0), (2, 0), (2, 1), (2, 1),
    ]  # fmt: skip
    # as upstream pairs them: the step_end belongs to the step that was left open
    assert Step.objects.get(turn__number=1, number=1).outcome == "ok"


def test_numbers_in_the_data_are_advisory_and_a_disagreement_is_kept(api):
    api.events("s", ("turn_start", {"turn": 7}), ("step_start", {"turn": 7, "step": 3}),
               ("step_end", {}), ("step_start", {"step": 2}), ("step_end", {"step": 2}),
               ("turn_end", {}), ("turn_start", {"turn": "two"}))  # fmt: skip
    assert places(api)[:2] == [(1, 0), (1, 1)]
    assert Turn.objects.get(number=1).runner_number == "7"
    assert Turn.objects.get(number=2).runner_number == '"two"'
    assert Step.objects.get(turn__number=1, number=1).runner_number == "3"
    assert Step.objects.get(turn__number=1, number=2).runner_number is None


def test_an_interrupted_turn_shows_in_the_status(api):
    api.events("s", ("turn_start", {}))
    assert api.session("s")["status"] == "running"
    api.events("s", ("turn_end", {"turn": 1, "steps": 0, "reason": "interrupted"}))
    assert api.session("s")["status"] == "interrupted"
    api.events("s", ("turn_start", {}), ("turn_end", {"reason": "complete"}))
    assert api.session("s")["status"] == "idle"


def test_ended_is_what_the_runner_says_until_it_starts_a_turn(api):
    api.events("s", ("turn_start", {}))
    assert api.patch("sessions/s", {"status": "ended"}).json["status"] == "ended"
    api.update("s", ["set", "late", 1])
    assert api.session("s")["status"] == "ended"
    api.events("s", ("turn_start", {}))
    assert api.session("s")["status"] == "running"


def test_places_hold_from_one_request_to_the_next(api):
    for event_type in ("turn_start", "step_start", "assistant_message", "step_end", "turn_end"):
        api.event("s", event_type)
    assert places(api) == [(1, 0), (1, 1), (1, 1), (1, 1), (1, 0)]
    assert Step.objects.count() == 2


def test_hundreds_of_turns_left_open_cost_no_more_than_the_first(
    api, django_assert_max_num_queries
):
    for _ in range(300):
        api.event("s", "turn_start")
    with django_assert_max_num_queries(12):
        api.event("s", "turn_start")
    with django_assert_max_num_queries(12):
        api.event("s", "turn_end")


def test_tool_calls_and_errors_are_counted(api):
    calls = [{"id": "a", "name": "x"}, {"id": "b", "name": "y"}, "no map"]
    api.events(
        "s",
        ("assistant_message", {"tool_calls": calls}),
        ("assistant_message", {"tool_calls": {"id": "c"}}),
        ("assistant_message", {"tool_calls": None}),
        ("tool_call", {"id": "a:code:0"}),
        ("tool_result", {"metadata": {"error": "boom"}}),
        ("tool_result", {"metadata": {"is_error": False}}),
        ("step_end", {"outcome": "error"}),
    )
    session = api.session("s")
    assert (session["tool_calls"], session["errors"]) == (4, 2)
