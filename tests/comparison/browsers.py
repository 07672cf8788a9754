"""A real Chromium for tests of pages: opened from a file, with every other request recorded and refused."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium or google-chrome on this machine")
# Every figure that is not hidden has been drawn.
ALL_DRAWN = (
    "[...document.querySelectorAll('figure:not([hidden]) .chart')].every(chart => chart.querySelector('.main-svg'))"
)
Scheme = Literal["light", "dark"]
# A busy machine draws slowly; nothing here waits longer than it must.
PATIENCE = 180_000  # milliseconds
expect.set_options(timeout=PATIENCE)


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Seen:
    """What a page complained about, and whom it asked."""

    faults: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@contextmanager
def opened(browser: Browser, path: Path, *, scheme: Scheme = "light", width: int = 1280) -> Iterator[tuple[Page, Seen]]:
    """The page with its figures drawn; at the end nothing may have gone wrong, nor left the machine."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    context.set_default_timeout(PATIENCE)
    page, seen = context.new_page(), Seen()
    page.on("console", lambda message: seen.faults.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: seen.faults.append(str(error)))

    def route(asked: Route) -> None:
        if asked.request.url.startswith("file:"):
            asked.continue_()
        else:
            seen.requests.append(asked.request.url)
            asked.abort()

    context.route("**/*", route)
    page.goto(path.as_uri())
    page.wait_for_function(ALL_DRAWN)
    yield page, seen
    assert seen == Seen()
    context.close()
