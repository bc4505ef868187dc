"""The pages in a real browser, from a real server."""

from __future__ import annotations

import uuid

import pytest

from tests.served import PASSWORD

PAUSE = 8000  # ms: at most this long until something is seen


@pytest.fixture(scope="module")
def signed_in(browser, server):
    """Where the browser keeps that `admin` signed in."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{server.url}/")
    page.fill("#id_username", "admin")
    page.fill("#id_password", PASSWORD)
    page.click("button.primary")
    page.wait_for_url(f"{server.url}/")
    state = context.storage_state()
    context.close()
    return state


@pytest.fixture
def page(browser, signed_in):
    """A page of someone who signed in; anything that the console complains of fails the test."""
    context = browser.new_context(storage_state=signed_in, viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.set_default_timeout(PAUSE)
    complaints: list[str] = []
    page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    context.close()
    assert complaints == []


@pytest.fixture
def key() -> str:
    return f"browser-{uuid.uuid4().hex}"


def post(server, key: str, *rows: dict) -> None:
    items = [{"session": key, **row} for row in rows]
    status, answer = server.request("POST", "/api/v1/ingest", items)
    assert status in (200, 201), answer


def event(event_type: str, **data) -> dict:
    return {"type": event_type, "data": data}


def steps(count: int, entries: int = 6) -> list[dict]:
    rows = [event("turn_start", turn=1)]
    for number in range(1, count + 1):
        rows.append(event("step_start", step=number))
        rows += [
            event("assistant_message", content=f"step {number} says {n}") for n in range(entries)
        ]
        rows.append(event("step_end", outcome="ok"))
    return rows


def test_steps_load_as_they_come_into_view(page, server, key):
    post(server, key, *steps(60))
    page.goto(f"{server.url}/sessions/{key}/")
    assert page.get_by_text("step 1 says 0", exact=True).is_visible()
    assert page.get_by_text("step 60 says 5", exact=True).count() == 0
    for _ in range(80):
        if page.get_by_text("step 60 says 5", exact=True).count():
            break
        page.mouse.wheel(0, 4000)
        page.wait_for_timeout(100)
    assert page.get_by_text("step 60 says 5", exact=True).count() == 1
    shown = page.locator("article.entry").evaluate_all("rows => rows.map(row => row.id)")
    assert len(shown) == len(set(shown)), "no entry twice"


def test_an_open_page_follows_a_running_session_and_misses_nothing(page, server, key):
    post(server, key, *steps(1))
    page.goto(f"{server.url}/sessions/{key}/")
    for n in range(3):
        lost = {"operations": [["log_event", "tool_call", {"n": n}]], "path": "run_context"}
        post(server, key, event("assistant_message", content=f"news {n}"), lost)
        page.get_by_text(f"news {n}", exact=True).wait_for()
    page.locator("article.lost").nth(2).wait_for()
    shown = page.locator("article.entry").evaluate_all("rows => rows.map(row => row.id)")
    assert sorted(int(name[1:]) for name in shown) == list(range(1, 19))
    page.locator("#summary .badge.lost", has_text="3 lost").wait_for()


def test_following_stops_when_the_session_has_ended(page, server, key):
    post(server, key, *steps(1))
    page.goto(f"{server.url}/sessions/{key}/")
    page.locator("#summary .status.running").wait_for()
    server.request("PATCH", f"/api/v1/sessions/{key}", {"status": "ended"})
    page.locator("#summary .status.ended").wait_for()
    polls: list[str] = []
    page.on("request", lambda request: polls.append(request.url))
    page.wait_for_timeout(5000)
    assert [url for url in polls if "/summary/" in url] == []


def test_new_entries_go_on_in_the_step_and_its_heading_follows(page, server, key):
    post(server, key, event("turn_start"), event("step_start"))
    page.goto(f"{server.url}/sessions/{key}/")
    page.locator(".step-head .badge.open").wait_for()
    post(server, key, event("assistant_message", content="said at last"))
    page.locator(".step.joins", has_text="said at last").wait_for()
    post(server, key, event("step_end", outcome="error"))
    page.locator(".step-head .badge.error", has_text="error").first.wait_for()
    assert page.locator(".step-head .badge.open").count() == 0
    assert page.locator(".step-head").count() == 2, "the turn's own rows, and the step"
    page.locator(".rail-step .dot.error").wait_for()


def test_a_page_far_from_the_end_says_what_is_new_there(page, server, key):
    post(server, key, *steps(60))
    page.goto(f"{server.url}/sessions/{key}/")
    post(server, key, event("assistant_message", content="the news"))
    page.get_by_role("link", name="1 new entry at the end").click()
    page.get_by_text("the news", exact=True).wait_for()
    assert page.get_by_text("the news", exact=True).is_visible()
    assert page.url.endswith("?at=end#end")


def test_the_rail_scrolls_to_a_step_that_is_shown_and_loads_one_that_is_not(page, server, key):
    post(server, key, *steps(60))
    page.set_viewport_size({"width": 1400, "height": 800})
    page.goto(f"{server.url}/sessions/{key}/")
    page.evaluate("window.same = true")
    page.locator("a.rail-step", has_text="1.9").first.click()
    page.get_by_text("step 9 says 0", exact=True).wait_for()
    assert page.evaluate("window.same")
    page.locator("a.rail-step[aria-current]", has_text="1.9").wait_for()
    page.locator("a.rail-step", has_text="1.50").click()
    page.get_by_text("step 50 says 0", exact=True).wait_for()
    assert page.evaluate("window.same === undefined")


def test_nothing_is_asked_while_the_tab_is_hidden(page, server, key):
    post(server, key, *steps(1))
    page.add_init_script(
        "window.away = false; Object.defineProperty(document, 'hidden', {get: () => window.away})"
    )
    page.goto(f"{server.url}/sessions/{key}/")
    page.locator("aside.side", has_text="no deps").wait_for()
    page.evaluate("window.away = true")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    post(server, key, event("assistant_message", content="meanwhile"))
    page.wait_for_timeout(5000)
    assert asked == []
    page.evaluate("window.away = false; document.dispatchEvent(new Event('visibilitychange'))")
    page.get_by_text("meanwhile", exact=True).wait_for()


def test_a_reader_whose_sign_in_ended_is_sent_to_it(page, server, key):
    post(server, key, *steps(1))
    page.goto(f"{server.url}/sessions/{key}/")
    page.context.clear_cookies()
    page.locator("#id_username").wait_for()
    assert f"next=/sessions/{key}/" in page.url


def test_reload_back_and_a_shared_link_work(page, server, key):
    post(server, key, *steps(2), {"operations": [["log_event", "x", {}]], "path": "run_context"})
    page.goto(f"{server.url}/sessions/{key}/")
    page.get_by_role("link", name="Only lost").click()
    assert page.url.endswith("?lost=1")
    assert page.locator("article.entry").count() == 1
    page.reload()
    assert page.locator("article.entry").count() == 1
    page.go_back()
    page.get_by_text("step 1 says 0", exact=True).wait_for()
    page.locator("#o3 a.permalink").click()
    assert page.url.endswith("/entries/3/")
    page.get_by_role("link", name="In the timeline").click()
    page.locator("#o3.marked").wait_for()


def test_the_deps_stand_beside_the_timeline_and_follow(page, server, key):
    post(server, key, {"operations": [["set", "goal", "first"]]})
    page.goto(f"{server.url}/sessions/{key}/")
    page.locator("aside.side", has_text="first").wait_for()
    post(server, key, {"operations": [["set", "goal", "second"]]})
    page.locator("aside.side", has_text="second").wait_for()


def test_the_pages_read_without_javascript(browser, signed_in, server, key):
    post(server, key, *steps(60))
    context = browser.new_context(storage_state=signed_in, java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{server.url}/sessions/{key}/")
    page.get_by_text("step 1 says 0", exact=True).wait_for()
    page.get_by_role("link", name="Show the entries of this step").last.click()
    page.get_by_text("says 0").wait_for()
    page.go_back()
    page.get_by_role("link", name="More steps").click()
    page.get_by_role("heading", name="Step 1.21").wait_for()
    page.goto(f"{server.url}/sessions/{key}/")
    page.get_by_role("link", name="Show the deps").click()
    assert page.url.endswith("/deps/")
    context.close()


def test_a_phone_needs_no_sideways_scrolling(page, server, key):
    post(server, key, *steps(2), {"operations": [["set", "k" * 300, "v" * 3000]]},
         event("user_message", content="w" * 2000, name="n" * 200, source="s" * 200),
         {"operations": [["log_event", "t" * 200, {}]], "path": "run_context",
          "tool_call": {"id": "c" * 200, "name": "n" * 200}},
         event("step_end", outcome="o" * 100))  # fmt: skip
    server.request("PATCH", f"/api/v1/sessions/{key}", {"agent_name": "a" * 200})
    page.set_viewport_size({"width": 390, "height": 844})
    for path in (
        "/",
        f"/sessions/{key}/",
        f"/sessions/{key}/deps/",
        f"/sessions/{key}/log/",
        "/lost/",
    ):
        page.goto(f"{server.url}{path}")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path


def test_what_was_posted_runs_and_loads_nothing(page, server, key):
    payloads = [
        "<script>document.title='owned'</script>", "<img src=x onerror=\"document.title='owned'\">",
        "<div hx-get='/lost/' hx-trigger='load'>", "<style>body{display:none}</style>",
        "<meta http-equiv=refresh content='0;url=/lost/'>",
        "<svg onload=\"document.title='owned'\">",
        "javascript:document.title='owned'", "<div id=summary hx-swap-oob=true>gone</div>",
    ]  # fmt: skip
    for text in payloads:
        post(
            server, key, event("user_message", content=text, name=text),
            {"operations": [["set", text, text], ["log_event", text, {text: text}]],
             "path": "run_context", "tool_call": {"id": "c", "name": text}},
        )  # fmt: skip
    strangers: list[str] = []
    page.on("request", lambda request: strangers.append(request.url)
            if not request.url.startswith(server.url) else None)  # fmt: skip
    for path in (f"/sessions/{key}/", f"/sessions/{key}/deps/", f"/sessions/{key}/log/", "/lost/",
                 f"/sessions/{key}/entries/1/"):  # fmt: skip
        page.goto(f"{server.url}{path}")
        page.wait_for_timeout(500)
        assert "owned" not in page.title()
        assert page.url.endswith(path)
        assert page.locator("main").is_visible()
    assert strangers == []


def test_signing_out_ends_it(browser, server):
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{server.url}/lost/")
    page.fill("#id_username", "admin")
    page.fill("#id_password", "not the password")
    page.click("button.primary")
    assert "do not go together" in page.content()
    page.fill("#id_username", "admin")
    page.fill("#id_password", PASSWORD)
    page.click("button.primary")
    page.wait_for_url(f"{server.url}/lost/")
    page.get_by_role("button", name="Sign out").click()
    page.goto(f"{server.url}/")
    assert "/sign-in/" in page.url
    context.close()
