"""A headless Chromium, as Debian packages it, and what every page in it must keep to."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

PATIENCE_MS = 30_000
LOST = "net::ERR"  # what Chromium logs of a request that a test has cut off


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser; a test that needs it is skipped where there is none."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("chromium is not installed (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, url: str, *, refused: int = 0, **context: Any) -> Iterator[Page]:
    """The page in a context of its own. Whatever it did, it has asked nobody but its server, and nothing went
    wrong in it but requests that were answered with the status `refused`."""
    with browser.new_context(**context) as own:
        own.set_default_timeout(PATIENCE_MS)
        page = own.new_page()
        wrong: list[str] = []
        asked: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: asked.append(request.url))
        page.goto(url)
        yield page
    allowed = (f"status of {refused}",) if refused else ()
    assert [text for text in wrong if not any(part in text for part in (*allowed, LOST))] == []
    assert [address for address in asked if not address.startswith(url)] == []
