"""The timeline's finer points: what belongs together, where one is, how to get elsewhere."""

from __future__ import annotations

import re

import pytest

from sessions import timeline
from sessions.models import Session, Step
from sessions.views import key_from, key_query

from .conftest import ordinals, run

LOST = ["log_event", "tool_call", {"id": "a", "name": "read_file"}]


def links(text: str, words: str) -> list[str]:
    return [
        address.replace("&amp;", "&")
        for address in re.findall(rf'href="([^"]+)"[^>]*>(?:<[^>]+>)*{words}', text)
    ]


def test_a_call_and_its_result_lead_to_each_other(api, staff):
    call = {"id": "c1", "name": "search", "arguments": {}}
    api.events(
        "s", ("turn_start", {}), ("step_start", {}),
        ("assistant_message", {"content": "", "tool_calls": [call]}),
    )  # fmt: skip
    api.update("s", ["set", "a", 1], tool_call={"id": "c1", "name": "search"})
    api.event("s", "tool_call", {"id": "c1:code:0", "name": "grep", "source": "code_mode"})
    api.event("s", "tool_result", {"tool_call_id": "c1", "name": "search", "content": "x"})
    text = staff.get("/sessions/s/")
    assert links(text, "answered below") == ["#o6"]
    assert links(text, r"called in #3") == ["#o3", "#o3", "#o3"]


def test_calls_are_joined_within_their_step_only(api, staff):
    for _ in range(2):
        api.events(
            "s", ("turn_start", {}), ("step_start", {}),
            ("assistant_message", {"content": "", "tool_calls": [{"id": "same", "name": "t"}]}),
            ("tool_result", {"tool_call_id": "same", "content": ""}),
            ("step_end", {}), ("turn_end", {}),
        )  # fmt: skip
    assert links(staff.get("/sessions/s/"), "answered below") == ["#o4", "#o10"]


def test_entries_stand_in_their_total_order_each_below_its_step(api, staff):
    run(api, "s", turns=3)
    api.update("s", LOST, path="run_context")
    text = staff.get("/sessions/s/")
    assert ordinals(text) == list(range(1, 36))
    ends = text[text.index("Turn 1 · outside any step", text.index("Step 1.2")) :]
    assert ordinals(ends)[0] == 11, "the end of the turn stands at its end"
    assert ordinals(staff.get("/sessions/s/?at=end")) == list(range(1, 36))


def test_the_end_shows_what_came_last_wherever_it_belongs(api, staff):
    api.event("s", "turn_start")
    for _ in range(50):
        api.events("s", ("step_start", {}), ("step_end", {}))
    api.event("s", "assistant_message", {"content": "between the steps"})
    assert "between the steps" in staff.get("/sessions/s/?at=end")
    assert "between the steps" in staff.get("/sessions/s/?at=102")


def test_the_page_of_a_step_says_what_lies_between_its_entries(api, staff):
    run(api, "s", turns=1)
    api.update("s", LOST, path="run_context")
    step = Step.objects.get(turn__number=1, number=0).pk
    text = staff.get(f"/sessions/s/steps/{step}/")
    assert ordinals(text) == [1, 2, 11]
    assert links(text, "8 entries of other steps came between") == ["/sessions/s/?at=3#o3"]
    assert "came between" not in staff.get(f"/sessions/s/steps/{step}/?lost=1")


def test_a_lost_event_leads_to_its_update(api, staff):
    run(api, "s")
    api.update("s", ["set", "a", 1], LOST, path="run_context")
    text = staff.get("/sessions/s/?lost=1")
    assert links(text, "From update 3") == ["/sessions/s/?at=12#o12"]
    assert ordinals(text) == [13]


def test_a_key_that_some_runners_protect_is_marked(api, staff):
    api.update("s", ["set", "workspace_root", "/"], ["set", "other", 1])
    assert staff.get("/sessions/s/").count("protected key") == 1


def test_earlier_entries_of_a_long_step_can_be_reached_page_by_page(api, staff):
    items = [{"session": "s", "type": "tool_call", "data": {}} for _ in range(350)]
    api.post("ingest", items)
    text = staff.get("/sessions/s/?at=end")
    found = ordinals(text)
    while earlier := re.search(r'hx-get="([^"]+\?before=\d+[^"]*)"', text):
        text = staff.get(earlier[1].replace("&amp;", "&"))
        found = ordinals(text) + found
    assert found == list(range(1, 351))
    step = Step.objects.get().pk
    page = staff.get(f"/sessions/s/steps/{step}/?before=101")
    assert ordinals(page) == list(range(1, 101))
    assert links(page, "Later entries") == ["?after=100"]
    assert ordinals(staff.get(f"/sessions/s/steps/{step}/?after=100"))[0] == 101


def test_only_the_first_of_two_pages_leads_back(api, staff):
    items = [{"session": "s", "type": "tool_call", "data": {}} for _ in range(350)]
    api.post("ingest", items)
    step = Step.objects.get().pk
    text = staff.get(f"/sessions/s/steps/{step}/entries/?after=100")
    assert "Earlier entries" not in text


@pytest.mark.parametrize("query", ["", "?at=end", "?at=900", "?lost=1", "?lost=1&at=end"])
def test_every_way_in_costs_the_same(api, staff, django_assert_max_num_queries, query):
    run(api, "s", turns=90, steps=3)
    api.update("s", LOST, path="run_context")
    with django_assert_max_num_queries(12):
        text = staff.get(f"/sessions/s/{query}")
    assert len(ordinals(text)) <= 100
    assert len(text) < 200_000


def test_a_page_from_the_end_shows_only_the_rewinds_of_its_steps(api, staff):
    run(api, "s", turns=3)
    api.rewind("s", 20, reason="gone astray")
    run(api, "s", turns=40)
    assert "gone astray" not in staff.get("/sessions/s/?at=end")
    assert "gone astray" in staff.get("/sessions/s/")


def test_the_log_goes_forwards_and_backwards(api, staff):
    run(api, "s", turns=40)
    last = api.session("s")["next_ordinal"] - 1
    text = staff.get("/sessions/s/log/?at=end")
    found = [int(n) for n in re.findall(r'<tr class="[^"]*" id="o(\d+)"', text)]
    assert found == list(range(last - 99, last + 1))
    before = links(text, "Earlier")[0]
    earlier = staff.get(f"/sessions/s/log/{before}")
    assert f'id="o{last - 100}"' in earlier
    assert links(earlier, "Later") != []


@pytest.mark.parametrize("name", ["", "a b&c=d", "0", "\x00", "\ud800", "ключ", 'quo"te\\', "%"])
def test_a_key_of_the_deps_keeps_its_address(api, staff, name):
    api.update("s", ["set", name, "x" * 3000], ["set", "zz", 1])
    assert key_from(key_query(name)) == name
    address = links(staff.get("/sessions/s/deps/"), "whole value")[0]
    assert "x" * 3000 in staff.get(address)


@pytest.mark.parametrize("query", ['"', '","b', "\\", "\\ud8", "\n"])
def test_a_text_that_is_no_key_is_none(query):
    assert key_from(query) is None


def test_a_page_of_deps_stays_small(api, staff):
    api.update("s", *[["set", f"k{n:03d}", "v" * 5000] for n in range(150)])
    text = staff.get("/sessions/s/deps/")
    assert len(text) < 120_000
    assert text.count("whole value") == 100


def test_the_span_is_told_by_the_runners_clock(api):
    api.event("s", "user_message", {"content": ""}, time="2026-01-01T10:00:00Z")
    api.event("s", "user_message", {"content": ""}, time="2026-01-01T10:20:30Z")
    span = timeline.span_of(Session.objects.get())
    assert span.started.isoformat() == "2026-01-01T10:00:00+00:00"
    assert span.lasted is not None
    assert span.lasted.total_seconds() == 1230
