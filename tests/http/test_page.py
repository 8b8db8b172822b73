"""The web page in a real browser, over the real stack with a tiny model."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from cache_store.connection import connect
from orchestrator.api_keys import ApiKeys
from orchestrator.http.settings import ApiSettings
from tests.http.browser import chromium, opened
from tests.http.stack import ENDLESS, serving, text_of
from tests.http.test_jobs import finished, submit

pytestmark = pytest.mark.browser

PHONE = {"width": 360, "height": 740}
INJECTED = "<img src=/nowhere onerror=\"document.title='hurt'\"><script>document.title='hurt'</script>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    with opened(browser, url) as page:
        yield page


def choose_options(page: Page) -> None:
    """What the tiny model can do."""
    page.get_by_text("Options", exact=True).click()
    page.get_by_label("Entries of the state").fill("96")
    page.get_by_label("Tokens of a segment").fill("224")
    page.get_by_label("Tokens to write at most").fill("20")


def job_in_view(page: Page, http: httpx.Client) -> dict[str, object]:
    """The record of the job whose page it is, once it has ended."""
    expect(page.locator("#job-status")).to_have_text(re.compile("is written"))
    record: dict[str, object] = http.get(f"/v1/jobs/{page.url.rpartition('/')[2]}").json()
    return record


def test_from_a_file_to_summary_evidence_and_answer(page: Page, http: httpx.Client) -> None:
    text = text_of("from a 🦊 file", 30)
    choose_options(page)
    expect(page.locator("#model")).to_have_value("tiny-llama")
    file = {"name": "book.txt", "mimeType": "text/plain", "buffer": text.encode()}
    page.get_by_label("Choose or drop a document").set_input_files(file)  # type: ignore[arg-type]
    expect(page.get_by_label("or paste its text")).to_be_disabled()
    page.get_by_role("button", name="Summarize").click()
    expect(page.get_by_role("heading", name="book.txt")).to_be_focused()
    job = job_in_view(page, http)
    result = job["result"]
    assert isinstance(result, dict)
    assert page.locator("#job-text").text_content() == result["summary"]
    figures = page.locator("#job-figures")
    expect(figures).to_contain_text(f"{result['tokens_read']:,} in {result['segments']} segments")
    expect(figures).to_contain_text(f"{result['full_cache_bytes'] / result['state_bytes']:.3g} times")
    expect(figures).to_contain_text(f"error estimate{100 * result['error_estimate']:.3g} %")

    strip = page.get_by_role("slider", name="Place in the document")
    strip.press("End")
    bins = http.get(f"/v1/jobs/{job['id']}/evidence").json()["bins"]
    expect(strip).to_have_attribute("aria-valuenow", str(len(bins)))
    expect(page.locator("#passage .here")).to_have_text(text[bins[-1]["start"] :])
    assert text[-200:] in (page.locator("#passage").text_content() or "")
    drawn = "canvas => canvas.getContext('2d').getImageData(0, 0, canvas.width, 1).data.some(x => x > 0)"
    assert page.locator("#strip-heat").evaluate(drawn)
    assert bins[-1]["entries"] == bins[-1]["tokens"]  # and so the last one is as dark as can be
    expect(page.locator("#passage .here")).to_have_css("background-color", "rgba(28, 93, 153, 0.55)")
    strip.press("Home")
    expect(page.locator("#passage .here")).to_have_text(text[: bins[0]["end"]])
    before = page.locator("#passage").inner_html()
    page.get_by_label("Show").select_option("weight")
    expect(page.locator("#passage")).not_to_have_js_property("innerHTML", before)

    page.get_by_label("Ask about the document").fill("What does sentence 7 tell of?")
    page.get_by_role("button", name="Ask", exact=True).click()
    answer = page.get_by_role("article", name="What does sentence 7 tell of?")
    expect(page.locator("#jobs li").first).to_contain_text("question, done")
    asked = http.get("/v1/jobs").json()[0]
    expect(answer.locator(".written")).to_have_text(asked["result"]["answer"], use_inner_text=False)
    passages = asked["result"]["reread_segments"]
    assert passages
    expect(answer.locator(".passages li")).to_have_count(len(passages))
    answer.locator(".passages button").last.click()
    expect(page.locator("#strip-marks div")).to_have_count(len(passages))
    expect(page.locator("#passage .again")).not_to_have_count(0)
    page.reload()
    expect(answer.locator(".written")).to_have_text(asked["result"]["answer"])


def test_passages_that_were_read_again_are_marked(page: Page, http: httpx.Client) -> None:
    text = text_of("other", 40) + " The zanzibar lies here. " + text_of("more", 40)
    job = finished(http, submit(http, text, segment_tokens=224, query="Where is the zanzibar?"))
    [*passages] = job["result"]["reread_segments"]
    assert passages
    page.goto(f"{http.base_url}/#/jobs/{job['id']}")
    shown = page.locator("#job > .passages button")
    expect(shown).to_have_count(len(passages))
    expect(shown.first).to_contain_text(text[passages[0]["start"] :][:60].strip())
    expect(page.locator("#strip-marks div")).to_have_count(len(passages))
    page.locator("#strip").press("Home")
    shown.first.click()
    expect(page.locator("#passage .here.again")).not_to_be_empty()
    expect(page.locator("#passage")).to_contain_text("The zanzibar lies here.")


def test_an_answer_without_a_state_says_so(page: Page, http: httpx.Client) -> None:
    # Few tokens for many characters:
    filler = "A document is read in segments; what it says is kept in entries. " * 16
    text = filler + "The zanzibar lies here. " + filler
    job = finished(http, submit(http, text, segment_tokens=224, cache_entries=96))
    http.delete(f"/v1/states/{job['result']['state']}").raise_for_status()
    question = {"question": "Where is the zanzibar?"}
    asked = finished(http, http.post(f"/v1/jobs/{job['id']}/ask", json=question).json())
    assert asked["result"]["state"] is None
    page.goto(f"{http.base_url}/#/jobs/{asked['id']}")
    figures = page.locator("#job-figures")
    expect(figures).to_contain_text("no longer stored, and not needed")
    expect(figures).to_contain_text(f"passages alone, of {asked['result']['tokens_read']:,}")
    expect(figures).not_to_contain_text("null")
    expect(page.locator("#evidence")).to_be_hidden()
    passage = asked["result"]["reread_segments"][-1]
    page.locator("#job > .passages button").last.click()
    whole = text[passage["start"] : passage["end"]].strip()
    expect(page.locator("#job > .passages button span").last).to_have_text(whole)
    assert len(whole) > 240, "the list shows more than its excerpt"


def test_a_state_that_is_gone_has_no_strip_of_another(browser: Browser, http: httpx.Client, url: str) -> None:
    kept = finished(http, submit(http, text_of("kept", 20)))
    lost = finished(http, submit(http, text_of("lost", 20)))
    http.delete(f"/v1/states/{lost['result']['state']}").raise_for_status()
    with opened(browser, url, refused=404) as page:
        page.goto(f"{url}/#/jobs/{kept['id']}")
        expect(page.locator("#strip")).to_be_visible()
        page.goto(f"{url}/#/jobs/{lost['id']}")
        expect(page.locator("#evidence-error")).to_contain_text("There is no stored state")
        expect(page.locator("#strip")).to_be_hidden()
        page.goto(f"{url}/#/jobs/{kept['id']}")
        expect(page.locator("#strip")).to_be_visible()


def test_text_in_a_document_is_only_text(page: Page, http: httpx.Client) -> None:
    choose_options(page)
    page.get_by_label("What is the summary to be about?").fill(INJECTED)
    file = {"name": f"{INJECTED}.txt", "mimeType": "text/plain", "buffer": (INJECTED * 3).encode()}
    page.get_by_label("Choose or drop a document").set_input_files(file)  # type: ignore[arg-type]
    page.get_by_role("button", name="Summarize").click()
    job_in_view(page, http)
    expect(page.locator("#passage")).to_contain_text(INJECTED)
    page.get_by_label("Ask about the document").fill(INJECTED)
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.locator("#answers h4")).to_have_text(INJECTED)
    expect(page.locator("#jobs li").first).to_contain_text("question, done")
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 1
    assert page.title() == "docexpress"


def test_by_keyboard_alone(page: Page, http: httpx.Client) -> None:
    def tab_to(selector: str) -> None:
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.locator(f"{selector}:focus").count():
                style = "e => getComputedStyle(e).outlineStyle"
                assert page.locator(selector).evaluate(style) != "none", f"no focus is seen at {selector}"
                return
        raise AssertionError(f"Tab does not lead to {selector}")

    tab_to(".skip")
    page.keyboard.press("Enter")
    tab_to("#text")
    page.keyboard.type(text_of("keys", 8))
    tab_to("summary")
    page.keyboard.press("Enter")
    for selector, value in (("#max_new_tokens", "9"), ("#cache_entries", "96"), ("#segment_tokens", "96")):
        tab_to(selector)
        page.keyboard.type(value)
    tab_to("#submit button")
    page.keyboard.press("Enter")
    expect(page.locator("#job-title")).to_be_focused()
    job_in_view(page, http)
    tab_to("#question")
    page.keyboard.type("What?")
    page.keyboard.press("Enter")
    expect(page.locator("#jobs li").first).to_contain_text("question, done")
    tab_to("#strip")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#strip")).to_have_attribute("aria-valuenow", "2")
    expect(page.locator("#strip")).to_have_attribute("aria-valuetext", re.compile(r"^Characters .* kept"))


def test_what_is_wrong_is_told_where_it_is(browser: Browser, url: str) -> None:
    with opened(browser, url, refused=400) as page:
        page.get_by_role("button", name="Summarize").click()
        expect(page.locator("#text-error")).not_to_be_empty()
        broken = {"name": "broken.pdf", "mimeType": "application/pdf", "buffer": b"%PDF-1.7\nnothing"}
        page.get_by_label("Choose or drop a document").set_input_files(broken)  # type: ignore[arg-type]
        page.get_by_role("button", name="Summarize").click()
        told = page.locator("#file-error")
        expect(told).to_contain_text("broken.pdf")
        expect(told).to_have_attribute("role", "alert")
        expect(page.locator("#text-error")).to_be_empty()
        expect(page.locator("#file")).to_be_focused()
        expect(page.locator("#file")).to_have_attribute("aria-invalid", "true")
        page.locator("summary").click()
        page.get_by_label("Tokens to write at most").fill("99999999")
        page.locator("summary").click()
        page.get_by_role("button", name="Summarize").click()
        expect(page.locator("#max_new_tokens-error")).to_contain_text("at most")
        expect(page.locator("#max_new_tokens")).to_be_focused()


def test_a_lost_connection_is_taken_up_where_it_was(page: Page, http: httpx.Client, url: str) -> None:
    job = finished(http, submit(http, text_of("lost"), max_new_tokens=12))
    blocks = http.get(f"/v1/jobs/{job['id']}/events").text.split("\n\n")
    tokens = [place for place, block in enumerate(blocks) if "event: token" in block]
    first = "\n\n".join([*blocks[: tokens[4]], blocks[tokens[4]][:20]])
    last_id = re.findall(r"^id: (\S+)$", blocks[tokens[4] - 1], re.MULTILINE)[0]
    resumed: list[str | None] = []

    def cut_off(route: Route) -> None:
        resumed.append(route.request.headers.get("last-event-id"))
        if len(resumed) == 1:
            route.fulfill(status=200, content_type="text/event-stream", body=first)
        elif len(resumed) == 2:
            route.abort()
        else:
            route.continue_()

    # The record as it was while the job ran.
    running = job | {"status": "decode", "result": None}
    page.route(f"**/v1/jobs/{job['id']}", lambda route: route.fulfill(json=running), times=1)
    page.route("**/events", cut_off)
    page.goto(f"{url}/#/jobs/{job['id']}")
    expect(page.locator("#job-connection")).to_be_visible()
    job_in_view(page, http)
    expect(page.locator("#job-connection")).to_be_hidden()
    assert page.locator("#job-text").text_content() == job["result"]["summary"]
    assert resumed == [None, last_id, last_id]


def test_jobs_are_watched_cancelled_and_deleted(page: Page, http: httpx.Client, url: str) -> None:
    job = submit(http, text_of("endless", 40), max_new_tokens=ENDLESS, title="the endless one")
    page.goto(f"{url}/#/jobs/{job['id']}")
    expect(page.locator("#job-stages [aria-current=step]")).to_have_text("writing")
    shown = page.locator("#job-stages li:visible")
    expect(shown).to_have_text(["tokens", "reading", "compressing", "writing"])
    expect(page.locator("#job-text")).not_to_be_empty()
    expect(page.locator("#workers li")).to_contain_text(
        re.compile(r"tiny-llama.* on cpu, \d+ calls? under way")
    )
    expect(page.locator("#job-status")).to_have_attribute("aria-live", "polite")
    page.locator("#job-cancel").click()
    expect(page.locator("#job-status")).to_have_text("The job was cancelled.")
    listed = page.locator("#jobs li", has_text="the endless one")
    expect(listed).to_contain_text("cancelled")
    listed.get_by_role("button", name="Delete the endless one").click()
    expect(listed).to_have_count(0)
    expect(page.locator("#job")).to_be_hidden()
    assert http.get(f"/v1/jobs/{job['id']}").status_code == 404


def test_on_a_phone_and_in_the_dark_all_is_seen(browser: Browser, http: httpx.Client, url: str) -> None:
    text = text_of("phone", 12) + " " + "long" * 200
    job = finished(http, submit(http, text, title="a" * 200))
    for scheme, ground in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(18, 22, 26)")):
        with opened(browser, url, viewport=PHONE, color_scheme=scheme, has_touch=True) as page:
            page.goto(f"{url}/#/jobs/{job['id']}")
            expect(page.locator("#passage")).not_to_be_empty()
            wide = "() => [document.scrollingElement.scrollWidth, innerWidth]"
            width, room = page.evaluate(wide)
            assert width <= room == PHONE["width"]
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") == ground
            page.locator("#strip").tap()
            expect(page.locator("#strip")).not_to_have_attribute("aria-valuenow", "1")


def test_a_key_is_asked_for_and_kept_in_the_tab_alone(browser: Browser, settings: ApiSettings) -> None:
    with connect(settings.redis_url) as client:
        _, secret = ApiKeys(client).create("acme", "")
    with serving(settings, require_keys=True) as url, opened(browser, url, refused=401) as page:
        dialog = page.get_by_role("dialog", name="API key")
        expect(dialog).to_contain_text("Send an API key")
        dialog.get_by_label("Key", exact=True).fill("dx-wrong")
        dialog.get_by_label("Key", exact=True).press("Enter")
        expect(dialog).to_contain_text("not a valid one")
        dialog.get_by_label("Key", exact=True).fill(secret)
        dialog.get_by_role("button", name="Use this key").click()
        expect(dialog).to_be_hidden()
        expect(page.locator("#jobs-none")).to_be_visible()
        assert page.evaluate("Object.values(sessionStorage)") == [secret]
        assert page.evaluate("localStorage.length + document.cookie.length") == 0


def test_the_page_is_served_with_a_policy_of_its_own(http: httpx.Client) -> None:
    answer = http.get("/")
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert "unsafe" not in policy
    assert answer.headers["content-type"].startswith("text/html")
    assert not re.search(r"https?://", answer.text)
    script = http.get("/page/app.js")
    assert "javascript" in script.headers["content-type"]
    assert script.headers["Content-Security-Policy"].startswith("default-src 'none'; frame")
    assert http.get("/page/nothing.js").status_code == 404
    assert http.get("/page/../app.py").status_code == 404
