"""The pages: what they show, in which order, at what cost, and to whom."""

from __future__ import annotations

import re

import pytest
from django.urls import URLPattern, get_resolver, reverse

from sessions.models import EventQuerySet, Step
from sessions.shown import shown

from .conftest import attributes, ordinals, parse, run

EVENTS = ["log_event", "tool_call", {"id": "a", "name": "read_file"}]


def every_address(key: str, step: int) -> list[str]:
    return [
        "/", "/lost/", "/changed/?since=2020-01-01T00:00:00Z", f"/sessions/{key}/",
        f"/sessions/{key}/?lost=1", f"/sessions/{key}/?at=end", f"/sessions/{key}/?at=3",
        f"/sessions/{key}/more/?after=0", f"/sessions/{key}/summary/",
        f"/sessions/{key}/poll/?after=0", f"/sessions/{key}/steps/{step}/",
        f"/sessions/{key}/steps/{step}/entries/", f"/sessions/{key}/entries/2/",
        f"/sessions/{key}/entries/1/raw/", f"/sessions/{key}/deps/",
        f"/sessions/{key}/deps/?key=at", f"/sessions/{key}/deps/panel/", f"/sessions/{key}/log/",
        f"/sessions/{key}/log/?at=end", f"/sessions/{key}/log/?before=5",
        f"/sessions/{key}/refusals/", f"/sessions/{key}/rail/", f"/sessions/{key}/news/?after=0",
        f"/sessions/{key}/steps/{step}/head/", f"/sessions/{key}/steps/{step}/turn/",
        f"/sessions/{key}/steps/{step}/slice/",
        f"/sessions/{key}/steps/{step}/?before=9", f"/sessions/{key}/steps/{step}/?lost=1",
    ]  # fmt: skip


def test_every_page_is_in_the_table_of_these_tests():
    table = every_address("k", 1)
    own = next(p for p in get_resolver().url_patterns if str(p.pattern) == "")
    for pattern in own.url_patterns:
        assert isinstance(pattern, URLPattern)
        arguments = {"key": "k", "pk": 1, "ordinal": 2}
        wanted = {name: arguments[name] for name in pattern.pattern.converters}
        address = reverse(pattern.name, kwargs=wanted).replace("/2/raw/", "/1/raw/")
        assert any(row.partition("?")[0] == address for row in table), address


def test_every_page_asks_for_a_sign_in_and_is_kept_by_no_cache(api, client, staff):
    run(api, "s")
    for address in every_address("s", Step.objects.all()[0].pk):
        answer = client.get(address)
        assert answer.status_code == 302, address
        assert "sign-in" in answer["Location"] or "login" in answer["Location"]
        answer = staff.client.get(address)
        assert answer.status_code == 200, address
        assert "no-store" in answer["Cache-Control"], address
        assert "private" in answer["Cache-Control"], address


def test_every_page_is_valid_html_and_holds_nothing_inline(api, staff):
    run(api, "s")
    api.update("s", EVENTS, path="run_context")
    api.rewind("s", 3, reason="why not")
    api.update("s", ["set", "k", 1])
    for address in every_address("s", Step.objects.all()[0].pk):
        if address.endswith("/raw/"):
            continue
        for tag, name, value in attributes(parse(staff.get(address))):
            assert tag != "style", address
            assert name != "style", address
            assert not name.startswith("on"), address
            assert not name.startswith("hx-on"), address
            if tag == "script" and name == "src":
                assert value.startswith("/static/")
            if name in ("href", "src", "action", "hx-get"):
                assert value.startswith(("/", "#", "?")) or value == "", (address, value)


def test_pages_come_with_a_strict_policy(staff):
    policy = staff.client.get("/")["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_only_get_is_answered(api, staff):
    run(api, "s")
    assert staff.client.post("/sessions/s/").status_code == 405
    assert staff.client.get("/sign-out/").status_code == 405


@pytest.mark.parametrize("key", ["nope", "..", "a b", "%00", "x" * 201, "a%2Fb"])
def test_a_session_that_there_is_not_is_404(staff, key):
    text = staff.get(f"/sessions/{key}/", 404)
    assert "<!doctype html>" in text


def test_an_entry_or_step_of_another_session_is_404(api, staff):
    run(api, "a")
    run(api, "b")
    step = Step.objects.filter(session__key="b")[0].pk
    staff.get(f"/sessions/a/steps/{step}/", 404)
    staff.get(f"/sessions/a/steps/{10**17}/", 404)
    staff.get(f"/sessions/a/entries/{10**17}/", 404)


@pytest.mark.parametrize(
    "query", ["after=x", "after=-1", "after=99999999999999999999", "at=x", "before=a", "lost=maybe",
              "at=99999999999999999"],
)  # fmt: skip
def test_a_query_that_makes_no_sense_is_a_page_all_the_same(api, staff, query):
    run(api, "s")
    staff.get(f"/sessions/s/?{query}")
    staff.get(f"/sessions/s/log/?{query}")
    assert staff.client.get(f"/sessions/s/poll/?{query}&after=0").status_code in (200, 204)


# -- the list ------------------------------------------------------------------------------


def test_the_list_shows_the_newest_activity_first_from_counters_on_the_row(
    api, staff, django_assert_max_num_queries
):
    for n in range(5):
        run(api, f"s{n}")
    api.update("s2", EVENTS, path="run_context")
    with django_assert_max_num_queries(4):
        text = staff.get("/")
    assert re.findall(r'/sessions/(s\d)/">', text) == ["s2", "s4", "s3", "s1", "s0"]
    assert "1 lost" in text


def test_the_list_pages_and_filters(api, staff):
    for n in range(60):
        api.update(f"s{n:02d}", ["set", "a", 1])
    first = staff.get("/")
    older = re.search(r'href="(\?after=[^"]+)"', first)
    assert older is not None
    rest = staff.get(f"/{older[1]}")
    assert len(re.findall(r"<th scope=\"row\">", first)) == 50
    assert len(re.findall(r"<th scope=\"row\">", rest)) == 10
    assert "s07" in staff.get("/?q=s07")
    assert "s08" not in staff.get("/?q=s07")
    assert "No session matches" in staff.get("/?q=S07"), "keys are case-sensitive everywhere"
    staff.get("/?q=%00&agent=%00")
    assert "No session matches" in staff.get("/?status=ended")
    staff.get("/?after=nonsense", 400)


def test_an_empty_list_says_how_to_send_the_first_update(staff):
    text = staff.words("/")
    assert "No session yet" in text
    assert "curl http" in text


# -- the timeline --------------------------------------------------------------------------


def test_entries_stand_in_ordinal_order_within_their_step(api, staff):
    run(api, "s", turns=2)
    text = staff.get("/sessions/s/")
    for section in re.split(r"<section class=\"step", text)[1:]:
        assert ordinals(section) == sorted(ordinals(section))
    assert sorted(ordinals(text)) == list(range(1, 23))


def test_dropped_refused_and_invalid_events_stand_in_their_place(api, staff):
    api.events("s", ("turn_start", {}), ("step_start", {}))
    api.update("s", EVENTS, ["log_event", "request_header", {}], path="run_context")
    api.update("s", ["log_event", "user_message", {}], ["log_event", "thought", {}])
    api.events("s", ("assistant_message", {"content": "done"}))
    text = staff.get("/sessions/s/")
    step = text[text.index("Step 1.1") :]
    assert ordinals(step) == [2, 3, 4, 5, 6, 7, 8, 9]
    for word, count in (("DROPPED", 2), ("REFUSED", 1), ("INVALID", 1)):
        assert len(re.findall(f"</span> {word}</strong>", text)) == count
    words = staff.words("/sessions/s/")
    assert words.count("Never reached the session log") == 4
    assert "no session log. What would have kept it: Run the tool through Nous.AgentRunner" in words
    assert "4 lost" in words
    assert "From update 1, operation 2" in words


def test_only_lost_shows_lost_events_and_no_other(api, staff):
    run(api, "s", turns=3)
    api.update("s", EVENTS, path="run_context")
    text = staff.get("/sessions/s/?lost=1")
    assert len(ordinals(text)) == 1
    assert "DROPPED" in text


def test_what_a_rewind_abandoned_is_marked_and_the_rewind_is_shown(api, staff):
    run(api, "s", turns=2)
    api.rewind("s", 9, reason="the model failed")
    run(api, "s", turns=1)
    text = staff.get("/sessions/s/")
    assert "The runner went back" in text
    assert "the model failed" in text
    abandoned = [
        int(n) for n in re.findall(r'<article class="[^"]*abandoned[^"]*" id="o(\d+)"', text)
    ]
    assert sorted(abandoned) == list(range(12, 23))
    assert text.index("The runner went back") > text.index('id="o22"')


def test_a_disagreement_of_numbers_is_shown(api, staff):
    api.events("s", ("turn_start", {"turn": 9}), ("step_start", {"turn": 9, "step": 4}))
    words = staff.words("/sessions/s/")
    assert "the runner calls it 9" in words
    assert "the runner calls it turn 9; the runner calls it step 4" in words


def test_where_the_runner_path_differs_is_said(api, staff):
    api.update("s", ["set", "l", [1]])
    api.update("s", ["append", "l", 2], path="runner")
    assert "left other values than context would have for l" in staff.words("/sessions/s/")


def test_an_update_that_touches_a_protected_key_is_marked(api, staff):
    api.update("s", ["set", "workspace_root", "/tmp"], ["set", "free", 1])
    assert "workspace_root protected key" in staff.words("/sessions/s/")
    [update] = api.get("sessions/s/updates").json["updates"]
    assert update["protected_keys"] == ["workspace_root"]
    api.update("t", ["set", "free", 1])
    assert "protected" not in staff.words("/sessions/t/")


def test_messages_read_as_messages(api, staff):
    api.events(
        "s",
        ("user_message", {"content": [{"type": "text", "text": "part one"}, {"type": "image"}]}),
        ("assistant_message", {
            "content": None, "reasoning_content": "let me think",
            "tool_calls": [{"id": "c1", "name": "search", "arguments": {"q": "étoile ✓"}}],
        }),
        ("tool_result", {"tool_call_id": "c1", "name": "search", "content": "nothing",
                         "metadata": {"error": "timeout"}}),
        ("user_message", {"content": "from memory", "source": "memory"}),
        ("user_message", {"content": 5, "tool_calls": "odd", "name": ["x"]}),
    )  # fmt: skip
    words = staff.words("/sessions/s/")
    for part in ("part one", "let me think", "→ search", "étoile ✓", "answered below", "nothing",
                 "injected: memory"):  # fmt: skip
        assert part in words
    assert "entry tool_result failed" in staff.get("/sessions/s/")


@pytest.mark.parametrize("data", [{"content": {"a": [1]}}, {"content": True}, {"tool_calls": [1]},
                                  {"tool_calls": {"id": {}, "name": [], "arguments": "\ud800"}},
                                  {"content": "\x00\ud800\u202e\x1b[31m"}, {"metadata": 1},
                                  {"content": [None, 1, {"text": 5}, []]}])  # fmt: skip
@pytest.mark.parametrize(
    "event_type", ["assistant_message", "tool_result", "tool_call", "turn_start", "step_end"]
)
def test_odd_data_never_fails_a_page(api, staff, event_type, data):
    api.event("s", event_type, data)
    api.event("s", "unheard_of", data, seq=1)
    for address in ("/sessions/s/", "/sessions/s/log/", "/sessions/s/entries/1/"):
        parse(staff.get(address))


def test_values_of_any_kind_never_fail_a_page(api, staff):
    digits = "9" * 6000
    body = (
        f'{{"operations":[["set","big",{digits}],["set","\\u0000\\ud800",{{"\\udfff":1}}],'
        '["set","",-0.0],["set","deep",' + "[" * 61 + "]" * 61 + "]]}"
    )
    assert api.post("sessions/s/updates", body).status == 201
    for address in ("/sessions/s/", "/sessions/s/deps/", "/sessions/s/deps/?key=",
                    "/sessions/s/deps/?key=%5Cu0000%5Cud800", "/sessions/s/deps/panel/",
                    "/sessions/s/log/", "/sessions/s/entries/1/",
                    "/sessions/s/entries/1/raw/"):  # fmt: skip
        staff.get(address)


@pytest.mark.parametrize(
    "time", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "0000-01-01T00:00:00Z"]
)
def test_times_at_the_ends_of_the_calendar_never_fail_a_page(api, staff, time):
    for event_type in ("turn_start", "step_start", "step_end", "turn_end"):
        api.event("s", event_type, {}, time=time)
    api.update("s", ["set", "a", 1], occurred_at=time)
    for address in ("/", "/sessions/s/", "/sessions/s/log/", "/sessions/s/entries/1/"):
        staff.get(address)


# -- cost ----------------------------------------------------------------------------------


def test_a_session_of_many_steps_opens_with_a_bounded_number_of_queries_and_rows(
    api, staff, django_assert_max_num_queries
):
    run(api, "small", turns=1)
    run(api, "huge", turns=150, steps=4)
    sizes = {}
    for key in ("small", "huge"):
        with django_assert_max_num_queries(12):
            text = staff.get(f"/sessions/{key}/")
        sizes[key] = len(ordinals(text))
    assert sizes["huge"] <= 100


def test_a_step_of_many_entries_is_paged_by_ordinal(api, staff, django_assert_max_num_queries):
    items = [{"session": "s", "type": "assistant_message", "data": {"content": f"{n}"}}
             for n in range(350)]  # fmt: skip
    api.post("ingest", items)
    found: list[int] = []
    address = "/sessions/s/"
    while address:
        with django_assert_max_num_queries(12):
            text = staff.get(address)
        found += ordinals(text)
        following = re.search(r'hx-get="(/sessions/s/steps/\d+/slice/\?after=[^"]+)"', text)
        address = following[1].replace("&amp;", "&") if following else ""
    assert found == list(range(1, 351))


def test_a_page_can_begin_at_any_entry(api, staff):
    run(api, "s", turns=40)
    text = staff.get("/sessions/s/?at=200")
    assert 200 in ordinals(text)
    items = [{"session": "long", "type": "tool_call", "data": {}} for _ in range(500)]
    api.post("ingest", items)
    text = staff.get("/sessions/long/?at=321")
    assert 321 in ordinals(text)
    assert len(ordinals(text)) <= 100
    assert re.search(r'<article class="[^"]*marked" id="o321"', text)
    assert "Earlier entries of this step" in text
    text = staff.get("/sessions/long/?at=end")
    assert ordinals(text) == list(range(401, 501))
    assert "Earlier entries of this step" in text
    assert "Following" in text


def test_steps_go_on_from_page_to_page_without_a_gap(api, staff):
    run(api, "s", turns=30)
    found: list[str] = []
    turns: list[str] = []
    address = "/sessions/s/"
    while address:
        text = staff.get(address)
        found += re.findall(r'id="(step-\d+)"', text)
        turns += re.findall(r'<h2 class="turn">Turn (\d+)', text)
        following = re.search(r'hx-get="(/sessions/s/more/\?[^"]+)"', text)
        address = following[1].replace("&amp;", "&") if following else ""
    wanted = Step.objects.order_by("first_ordinal").values_list("pk", flat=True)
    assert found == [f"step-{pk}" for pk in wanted]
    assert turns == [str(number) for number in range(1, 31)], "each turn has one heading"
    assert len(found) == 90
    backwards: list[str] = []
    address = "/sessions/s/?at=end"
    while address:
        text = staff.get(address)
        backwards = re.findall(r'id="(step-\d+)"', text) + backwards
        before = re.search(r'href="(\?before=[^"]+)">Earlier', text)
        address = f"/sessions/s/{before[1].replace('&amp;', '&')}" if before else ""
    assert backwards == found


def test_large_values_are_cut_with_their_size(api, staff):
    api.update("s", ["set", "big", "x" * 300_000], ["set", "list", list(range(50_000))])
    api.event("s", "tool_call", {"arguments": "y" * 500_000})
    for address in ("/sessions/s/", "/sessions/s/deps/", "/sessions/s/deps/panel/"):
        text = staff.get(address)
        assert len(text) < 100_000, address
        assert "K characters" in text
    assert len(staff.get("/sessions/s/entries/1/")) < 400_000
    raw = staff.client.get("/sessions/s/entries/1/raw/")
    assert raw["Content-Disposition"].startswith("attachment")
    assert raw["Content-Type"] == "text/plain; charset=utf-8"
    assert len(raw.content) > 580_000


def test_ten_thousand_keys_are_paged(api, staff):
    api.update("s", ["merge", "m", {}], *[["set", f"key{n:05d}", n] for n in range(9_000)])
    text = staff.get("/sessions/s/deps/")
    assert text.count("<dt><code>") == 100
    assert "More keys" in text
    assert len(staff.get("/sessions/s/deps/panel/")) < 60_000


def test_the_deps_can_be_seen_at_any_version(api, staff):
    for n in range(1, 4):
        api.update("s", ["set", "n", f"value {n}"], ["append", "l", n])
    assert "value 3" in staff.get("/sessions/s/deps/")
    text = staff.get("/sessions/s/deps/?at=2")
    assert "value 2" in text
    assert "After update 2 of 3" in text
    assert 'href="?at=1"' in text
    assert 'href="?at=3"' in text
    assert "no deps" in staff.get("/sessions/s/deps/?at=0")
    assert "value 2" in staff.get("/sessions/s/deps/?at=2&key=n")
    assert "no such key" in staff.get("/sessions/s/deps/?at=0&key=n")
    staff.get("/sessions/s/deps/?key=%22", 404)
    assert "/sessions/s/deps/?at=2" in staff.get("/sessions/s/")
    staff.get("/sessions/s/deps/?at=4", 404)


@pytest.mark.parametrize("query", ["at=x", "at=-1", "start=x", "at=1&start=99999"])
def test_a_query_of_the_deps_that_makes_no_sense_is_a_page(api, staff, query):
    api.update("s", ["set", "n", 1])
    staff.get(f"/sessions/s/deps/?{query}")


# -- following -----------------------------------------------------------------------------


def follow(staff, text: str) -> tuple[list[int], str]:
    """Poll as the page would until there is nothing new; the ordinals seen, the last text."""
    seen: list[int] = []
    while True:
        address = re.search(r'hx-get="(/sessions/s/poll/\?[^"]+)"', text)
        assert address is not None
        answer = staff.client.get(address[1].replace("&amp;", "&"))
        if answer.status_code == 204:
            return seen, text
        assert answer.status_code == 200
        text = answer.content.decode()
        parse(text)
        seen += ordinals(text)


def test_following_misses_no_row_and_doubles_none(api, staff):
    run(api, "s")
    text = staff.get("/sessions/s/")
    shown = ordinals(text)
    seen, text = follow(staff, text)
    assert seen == []
    for n in range(3):
        run(api, "s", turns=n + 1)
        api.update("s", EVENTS, path="run_context")
        more, text = follow(staff, text)
        seen += more
    last = api.session("s")["next_ordinal"]
    assert sorted(shown + seen) == list(range(1, last))


def test_a_row_that_is_committed_between_two_reads_is_not_skipped(api, staff, monkeypatch):
    run(api, "s")
    text = staff.get("/sessions/s/")
    shown = ordinals(text)
    original = EventQuerySet._fetch_all

    def commit_first(rows):
        monkeypatch.undo()  # once: the updates were read, the events are not yet
        api.update("s", EVENTS, path="run_context")
        original(rows)

    monkeypatch.setattr(EventQuerySet, "_fetch_all", commit_first)
    first, text = follow(staff, text)
    second, _ = follow(staff, text)
    assert sorted(shown + first + second) == list(range(1, 14))


def test_following_more_than_a_page_goes_on_at_once(api, staff):
    run(api, "s")
    text = staff.get("/sessions/s/")
    items = [{"session": "s", "type": "tool_call", "data": {}} for _ in range(350)]
    api.post("ingest", items)
    seen, _ = follow(staff, text)
    assert seen == list(range(12, 362))


def test_following_shows_a_rewind(api, staff):
    run(api, "s")
    text = staff.get("/sessions/s/")
    api.rewind("s", 2, reason="gone back")
    api.event("s", "user_message", {"content": "again"}, seq=2)
    _, text = follow(staff, text)
    assert "gone back" in text
    assert "again" in text


def test_following_ends_when_the_session_has_ended(api, staff):
    run(api, "s")
    last = api.session("s")["next_ordinal"] - 1
    assert staff.client.get(f"/sessions/s/poll/?after={last}").status_code == 204
    seen = re.search(r"summary/\?seen=(\w+)", staff.get("/sessions/s/"))
    assert seen is not None
    assert staff.client.get(f"/sessions/s/summary/?seen={seen[1]}").status_code == 204
    api.patch("sessions/s", {"status": "ended"})
    assert staff.client.get(f"/sessions/s/poll/?after={last}").status_code == 286
    changed = staff.client.get(f"/sessions/s/summary/?seen={seen[1]}")
    assert "session-changed" in changed["HX-Trigger"]
    assert "hx-get" not in changed.content.decode(), "an ended session is not asked again"
    assert 'hx-trigger="every' not in staff.get("/sessions/s/")


def test_the_list_says_how_many_sessions_changed(api, staff):
    text = staff.get("/")
    address = re.search(r'hx-get="(/changed/[^"]+)"', text)
    assert address is not None
    since = address[1].replace("&amp;", "&")
    assert staff.client.get(since).status_code == 204
    run(api, "a")
    run(api, "b")
    assert "2 sessions changed" in staff.get(since)
    staff.get("/changed/?since=x", 400)


# -- lost events, refusals -----------------------------------------------------------------


def test_lost_events_across_sessions_lead_to_their_place(api, staff):
    api.update("a", EVENTS, path="run_context")
    api.update("b", ["log_event", "user_message", {}])
    text = staff.get("/lost/")
    assert text.index("/sessions/b/?at=2#o2") < text.index("/sessions/a/?at=2#o2")
    assert "REFUSED" not in staff.get("/lost/?disposition=dropped")


def test_a_refused_update_can_be_read_by_staff_only(api, staff, alice):
    api.update("s", ["set", "k", "text"])
    api.update("s", ["append", "k", {"<b>": 1}])
    words = staff.words("/sessions/s/refusals/")
    assert "append_needs_list" in words
    assert "Refused updates 1" in staff.words("/sessions/s/")
    assert alice.client.get("/sessions/s/refusals/").status_code == 302
    assert "Refused updates" not in alice.words("/sessions/s/")


# -- hostile content -----------------------------------------------------------------------

HOSTILE = [
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{ 7|add:7 }}{% debug %}",
    "javascript:alert(1)", "<div hx-get='/' hx-trigger='load'>", "</pre></article><h1>gone</h1>",
    "\u202egnp.exe", "<style>*{display:none}</style>", "&lt;b&gt;", "'; DROP TABLE x; --",
]  # fmt: skip


@pytest.mark.parametrize("payload", HOSTILE)
def test_what_was_posted_is_shown_as_text_and_nothing_else(api, staff, payload):
    plain = "h" * (shown(payload).size - 2)  # as long, so that both are folded alike
    for key, text in (("plain", plain), ("hostile", payload)):
        api.update(
            key, ["set", text, {text: text}],
            ["log_event", "tool_call", {"id": text, "name": text}],
            ["log_event", text, {text: [text]}], tool_call={"id": text, "name": text}, id=text,
        )  # fmt: skip
        api.events(
            key,
            ("user_message", {"content": text, "name": text, "source": text}),
            ("assistant_message", {"content": [{"text": text}, {text: text}],
                                   "reasoning_content": text,
                                   "tool_calls": [{"id": text, "name": text, "arguments": text}]}),
            ("tool_result", {"content": text, "tool_call_id": text, "metadata": {"error": text}}),
            ("turn_start", {"turn": text}), ("step_start", {"step": text}),
            ("step_end", {"outcome": text}), ("turn_end", {"reason": text}),
        )  # fmt: skip
        api.update(key, ["append", text, text])
        api.rewind(key, 2, reason=text)
        api.patch(f"sessions/{key}", {"agent_name": text, "labels": {text: text}})
    pages = ("", "deps/", "log/", "refusals/", "entries/1/", "deps/panel/", "poll/?after=0")
    for page in pages:
        shapes = []
        for key in ("plain", "hostile"):
            tree = parse(staff.get(f"/sessions/{key}/{page}"))
            shapes.append([(tag, name) for tag, name, _ in attributes(tree)])
        assert shapes[0] == shapes[1], page
    for address in ("/", "/lost/"):
        assert payload not in staff.get(address) or "<" not in payload
