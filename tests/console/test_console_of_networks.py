"""The console's page of networks in a browser, over a member that is simulated."""

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.console.conftest import PHONE, WIDE, OpenPage
from tests.console.fake_api import ConsoleServer, FakeApi
from tests.console.fake_network import HOSTILE, LONG

pytestmark = pytest.mark.component("chromium")


def row(page: Page, table: str, text: str) -> Locator:
    return page.get_by_role("table", name=table, exact=True).get_by_role("row").filter(has_text=text)


def test_bridges_to_other_brokers_show_state_time_and_failure(served: ConsoleServer, open_page: OpenPage) -> None:
    page = open_page(f"{served.url}#/network")
    table = "Bridges to other brokers"
    expect(row(page, table, "to-berlin")).to_contain_text("up")
    expect(row(page, table, "to-berlin")).to_contain_text("for 1\u202fmin")
    waiting = row(page, table, LONG)
    expect(waiting).to_contain_text("waiting")
    expect(waiting).to_contain_text("connects in")
    expect(waiting).to_contain_text("4, last ")
    expect(waiting.get_by_text("a" * 30)).to_be_visible()
    expect(waiting.get_by_text("b" * 30)).to_be_visible()


def test_bridges_from_other_brokers_are_shown(served: ConsoleServer, open_page: OpenPage) -> None:
    page = open_page(f"{served.url}#/network")
    table = "Bridges from other brokers"
    served_one = row(page, table, "from-oslo")
    for text in ("both ways", "oslo", "10.0.0.7:50001", "34"):
        expect(served_one).to_contain_text(text)
    refused = row(page, table, HOSTILE.removesuffix("\u202e"))
    expect(refused).to_contain_text("refused")
    expect(refused).to_contain_text("needs the right admin")
    expect(refused.get_by_role("link")).to_have_attribute("href", "#/connections/ID%3Ain-2")


def test_a_member_without_incoming_bridges_has_no_table_of_them(
    api: FakeApi, served: ConsoleServer, open_page: OpenPage
) -> None:
    api.network.incoming = []
    page = open_page(f"{served.url}#/network")
    expect(row(page, "Bridges to other brokers", "to-berlin")).to_be_visible()
    expect(page.get_by_role("table", name="Bridges from other brokers")).to_have_count(0)


def test_a_connector_is_stopped_and_started(api: FakeApi, served: ConsoleServer, open_page: OpenPage) -> None:
    page = open_page(f"{served.url}#/network")
    berlin = row(page, "Bridges to other brokers", "to-berlin")
    berlin.get_by_role("button", name="Stop").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    expect(berlin.get_by_role("button", name="Start")).to_be_visible()
    expect(berlin).to_contain_text("stopped")


@pytest.mark.parametrize("size", [WIDE, (900, 700), PHONE])
def test_the_page_is_no_wider_than_its_window(
    served: ConsoleServer, open_page: OpenPage, size: tuple[int, int]
) -> None:
    page = open_page(f"{served.url}#/network", size)
    expect(row(page, "Bridges from other brokers", "from-oslo")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
