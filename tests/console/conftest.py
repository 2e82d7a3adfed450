"""A browser, and pages of it that fail a test when something goes wrong in them."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from tests.conftest import require
from tests.console.fake_api import ConsoleServer, FakeApi

CHROMIUM = "/usr/bin/chromium"
SECONDS = 15.0
REFRESH_SECONDS = 0.5
WIDE, PHONE = (1280, 800), (360, 740)

OpenPage = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all tests of a module."""
    require("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def served(api: FakeApi) -> Iterator[ConsoleServer]:
    server = ConsoleServer(api)
    yield server
    server.stop()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Open an address; after the test nothing may have gone wrong but requests that were refused on purpose."""
    problems: list[str] = []
    contexts = []

    def note(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not re.match("Failed to load resource", message.text):
            problems.append(message.text)

    def open_page(url: str, size: tuple[int, int] = WIDE, **options: Any) -> Page:
        context = browser.new_context(viewport={"width": size[0], "height": size[1]}, **options)
        contexts.append(context)
        context.set_default_timeout(SECONDS * 1000)
        context.add_init_script(f"localStorage.setItem('pybroker-seconds', '{REFRESH_SECONDS}')")
        page = context.new_page()
        page.on("console", note)
        page.on("pageerror", lambda error: problems.append(str(error.stack or error)))
        page.on("dialog", lambda dialog: problems.append(f"a script has run: {dialog.message}"))
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []
