"""An open page follows its session: headings, sections and counters, without reload."""

from __future__ import annotations

import re

from .conftest import ordinals, parse, run

LOST = ["log_event", "tool_call", {"id": "a", "name": "read_file"}]


def address_of(text: str, name: str) -> str:
    """The address that the page's element asks for."""
    found = re.search(rf'hx-get="(/sessions/[^"]+/{name}/[^"]*)"', text)
    assert found is not None, name
    return found[1].replace("&amp;", "&")


def open_step(api, key: str = "s") -> None:
    api.events(key, ("user_message", {"content": "hi"}), ("turn_start", {}), ("step_start", {}))


def test_new_entries_of_the_step_shown_last_go_on_without_a_second_heading(api, staff):
    open_step(api)
    text = staff.get("/sessions/s/")
    api.event("s", "assistant_message", {"content": "more"})
    text = staff.get(address_of(text, "poll"))
    assert 'class="step new joins"' in text
    assert "step-head" not in text
    assert "<h2" not in text
    api.events("s", ("step_end", {"outcome": "ok"}), ("step_start", {}))
    text = staff.get(address_of(text, "poll"))
    assert re.findall(r'class="step new( joins)?"', text) == [" joins", ""]
    assert "Step 1.2" in text


def test_a_new_turn_gets_its_heading_once(api, staff):
    run(api, "s")
    text = staff.get("/sessions/s/")
    run(api, "s")
    text = staff.get(address_of(text, "poll"))
    assert len(re.findall(r'<h2 class="turn"', text)) == 1
    assert re.search(r'<h2 class="turn">Turn 2', text)
    assert len(re.findall(r'id="step-\d+"', text)) == 3
    parse(text)


def test_headings_that_changed_are_told_to_ask_for_themselves(api, staff):
    open_step(api)
    text = staff.get("/sessions/s/")
    heads = re.findall(r'hx-get="([^"]+/head/)" hx-trigger="(step-\d+) from:body"', text)
    address, trigger = heads[-1]
    assert " open " in staff.words(address)
    api.event("s", "step_end", {"outcome": "error"})
    answer = staff.client.get(address_of(text, "poll"))
    assert trigger in answer["HX-Trigger"]
    assert "turn-" in answer["HX-Trigger"]
    assert heads[0][1] not in answer["HX-Trigger"], "nothing came outside the step"
    assert " error " in staff.words(address)


def test_a_turn_that_ended_says_so_where_it_was_open(api, staff):
    open_step(api)
    text = staff.get("/sessions/s/")
    heading = re.search(r'<h2 class="turn" hx-get="([^"]+)"', text)
    assert heading is not None
    assert " open " in staff.words(heading[1])
    api.events("s", ("step_end", {}), ("turn_end", {"reason": "complete"}))
    assert "complete" in staff.words(heading[1])
    assert "hx-get" not in staff.get(heading[1])


def test_a_page_that_shows_not_the_end_tells_how_much_is_new(api, staff):
    run(api, "s", turns=30)
    text = staff.get("/sessions/s/")
    assert 'id="end"' not in text, "nothing is appended below steps that are not shown yet"
    news = address_of(text, "news")
    assert staff.client.get(news).status_code == 204
    run(api, "s")
    assert "11 new entries at the end" in staff.words(news)


def test_only_lost_follows_lost_events_only(api, staff):
    run(api, "s")
    text = staff.get("/sessions/s/?lost=1")
    run(api, "s")
    api.update("s", LOST, path="run_context")
    text = staff.get(address_of(text, "poll"))
    assert len(ordinals(text)) == 1
    assert "DROPPED" in text
    assert "lost=1" in address_of(text, "poll")


def test_the_counters_follow_what_is_no_entry_too(api, staff):
    run(api, "s")
    text = staff.get("/sessions/s/")
    seen = address_of(text, "summary")
    assert staff.client.get(seen).status_code == 204
    api.patch("sessions/s", {"usage": {"total_tokens": 4321}})
    answer = staff.client.get(seen)
    assert "4,321" in answer.content.decode()
    assert "session-changed" in answer["HX-Trigger"]


def test_a_reader_who_was_signed_out_is_asked_to_sign_in_again(api, client):
    run(api, "s")
    answer = client.get("/sessions/s/poll/?after=0", headers={"HX-Request": "true"})
    assert answer["HX-Refresh"] == "true"
    assert answer.content == b""


def test_the_rail_goes_on_and_follows(api, staff):
    run(api, "s", turns=60, steps=2)
    found: list[str] = []
    text = staff.get("/sessions/s/")
    while True:
        found += re.findall(r'class="rail-step[^"]*" href="[^"]+#step-(\d+)"', text)
        more = re.search(r'hx-get="(/sessions/s/rail/\?after=\d+)" hx-trigger="intersect', text)
        if more is None:
            break
        text = staff.get(more[1])
        parse(text)
    assert len(found) == len(set(found)) == 180
    last = address_of(text, "rail")
    run(api, "s")
    assert (
        len(re.findall('class="rail-step', staff.get(last)))
        == len(re.findall('class="rail-step', text)) + 3
    )
