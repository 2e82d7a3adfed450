"""The console in a browser, over real brokers: a pair whose master is killed, operations, and a login."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.console.conftest import OpenPage
from tests.integration.cluster import BrokerProcess, Pair, free_port
from tests.integration.stomp_client import StompClient

pytestmark = pytest.mark.component("chromium")

OPTIONS = ("--management", "127.0.0.1:0")

Start = Callable[..., BrokerProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a broker with a store in memory, which ends with the test."""
    with ExitStack() as brokers:

        def start(*extra: str) -> BrokerProcess:
            broker = BrokerProcess("memory:", name="a", port=free_port(), extra=(*OPTIONS, *extra))
            brokers.callback(broker.close)
            broker.wait_for("listening on")
            return broker

        yield start


def console_of(broker: BrokerProcess) -> str:
    return broker.wait_for(r"management at (http://127.0.0.1:\d+)")[1] + "/console/"


def send(broker: BrokerProcess, queue: str, *bodies: bytes) -> None:
    with closing(StompClient(broker.port)) as client:
        for body in bodies:
            client.request("SEND", body, destination=f"/queue/{queue}", persistent="true")


def show(page: Page, path: str, title: str) -> None:
    page.evaluate("path => { location.hash = '#/' + path }", path)
    expect(page.locator("h1")).to_have_text(title)


def test_the_console_follows_a_failover(tmp_path: Path, open_page: OpenPage) -> None:
    with Pair(tmp_path / "store", *OPTIONS) as pair:
        master, standby = pair.wait_for_master(), pair.wait_for_standby()
        send(master, "A", b"one", b"two")
        first, second = console_of(master), console_of(standby)
        of_master, of_standby = open_page(f"{first}#/ha"), open_page(f"{second}#/queues")
        expect(of_standby.get_by_role("link", name="console of")).to_have_attribute("href", first)
        name = of_master.locator("tr", has_text="this member").locator("bdi").first.inner_text()
        of_master.get_by_role("button", name="Step down…").click()
        of_master.get_by_role("dialog").get_by_role("textbox").fill(name)
        of_master.keyboard.press("Enter")
        expect(of_standby.get_by_role("row", name="A no consumer 2")).to_be_visible()
        show(of_master, "queues", "Queues")
        expect(of_master.get_by_role("link", name="console of")).to_have_attribute("href", second)
        standby.kill()
        expect(of_standby.get_by_text("The member does not answer")).to_be_visible()
        expect(of_master.get_by_role("row", name="A no consumer 2")).to_be_visible()
        show(of_master, "ha", "High availability")
        expect(of_master.locator(".promotion")).to_have_count(3)


def test_messages_are_browsed_moved_and_purged(start: Start, open_page: OpenPage) -> None:
    broker = start()
    send(broker, "A", b'{"n": 1}', b'"><script>alert(1)</script>', "\u202eabc".encode())
    page = open_page(f"{console_of(broker)}#/queues/A/messages")
    expect(page.get_by_text('"><script>alert(1)</script>')).to_be_visible()
    page.get_by_role("link", name='{"n": 1}').click()
    expect(page.locator("pre.body")).to_have_text('{\n  "n": 1\n}')
    page.get_by_role("link", name="A", exact=True).click()
    page.get_by_role("checkbox", name="Tick").nth(1).check()
    page.get_by_role("button", name="Move…", exact=True).click()
    page.get_by_label("Name of the target").fill("B")
    page.get_by_role("button", name="Move 1 message", exact=True).click()
    expect(page.get_by_text("1 message was moved.")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_text("2 messages of 2")).to_be_visible()
    page.get_by_role("button", name="Purge").click()
    page.get_by_role("dialog").get_by_role("textbox").fill("A")
    page.keyboard.press("Enter")
    expect(page.get_by_text("There are no messages.")).to_be_visible()
    show(page, "queues/B", "Queues / B")
    page.locator("main").get_by_role("button", name="Pause").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(page.locator("main").get_by_role("button", name="Resume")).to_be_visible()
    page.get_by_role("button", name="Send message").click()
    page.get_by_label("Body", exact=True).fill("from the console")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_text("Sent as ID:")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".figure-value").first).to_have_text("2")


def test_every_page_of_a_broker_is_shown_after_a_login(start: Start, open_page: OpenPage, tmp_path: Path) -> None:
    (users := tmp_path / "users.properties").write_text("mara=m\n")
    users.chmod(0o600)
    (groups := tmp_path / "groups.properties").write_text("monitors=mara\n")
    broker = start("--users-file", str(users), "--groups-file", str(groups))
    login = {"username": "mara", "password": "m"}
    page = open_page(console_of(broker), http_credentials=login)
    expect(page.locator(".who")).to_contain_text("mara")
    for path, title in {
        "": "Overview",
        "queues": "Queues",
        "topics": "Topics",
        "subscriptions": "Durable subscriptions",
        "connections": "Connections",
        "scheduled": "Scheduled messages",
        "journal": "Journal",
        "ha": "High availability",
    }.items():
        show(page, path, title)
        expect(page.locator(".page")).to_be_visible()
        assert page.locator("main > .notice.bad, .page + .notice.bad").count() == 0


def test_a_durable_subscription_is_browsed_and_deleted(start: Start, open_page: OpenPage) -> None:
    broker = start()
    subscribe: dict[str, Any] = {"destination": "/topic/PRICES", "id": "1", "activemq.subscriptionName": "prices"}
    with closing(StompClient(broker.port, client_id="desk")) as client:
        client.request("SUBSCRIBE", **subscribe)
    with closing(StompClient(broker.port)) as client:
        for number in range(3):
            client.request("SEND", f"price {number}".encode(), destination="/topic/PRICES", persistent="true")
    page = open_page(f"{console_of(broker)}#/subscriptions")
    page.get_by_role("link", name="prices", exact=True).click()
    for number in range(3):
        page.get_by_role("link", name=f"price {number}").click()
        expect(page.locator("pre.body")).to_have_text(f"price {number}")
        page.go_back()
    show(page, "subscriptions", "Durable subscriptions")
    page.get_by_role("button", name="Delete prices").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("3 pending messages")
    dialog.get_by_role("textbox").fill("prices")
    page.keyboard.press("Enter")
    expect(page.get_by_text("There are no durable subscriptions.")).to_be_visible()
