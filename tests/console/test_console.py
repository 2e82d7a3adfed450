"""The console in a browser, over a member that is simulated: every page, what operators do, and hostile names."""

import base64
import re
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.console.conftest import PHONE, SECONDS, WIDE, OpenPage
from tests.console.fake_api import (
    DLQ,
    HOSTILE,
    ConsoleServer,
    FakeApi,
    connection,
    consumer,
    destination,
    member,
    message,
    subscription,
)

pytestmark = pytest.mark.component("chromium")

MESSAGE = "ID%3Ahost-40213-1795756037596-4%3A1%3A1%3A1%3A1"
PAGES = {
    "": "Overview",
    "queues": "Queues",
    "queues/ORDERS": "Queues / ORDERS",
    "queues/ORDERS/messages": "Queues / ORDERS",
    f"queues/{DLQ}/messages": f"Queues / {DLQ}",
    f"queues/{DLQ}/messages/{MESSAGE}": f"{DLQ} / message",
    "topics": "Topics",
    "topics/PRICES": "Topics / PRICES",
    "subscriptions": "Durable subscriptions",
    "subscriptions/app1%3Agone/messages": "Durable subscriptions / app1:gone",
    f"subscriptions/app1%3Agone/messages/{MESSAGE}?position=1": "app1:gone / message",
    "connections": "Connections",
    "connections/ID%3Ac-2": "Connections / shop-2",
    "scheduled": "Scheduled messages",
    "network": "Networks of brokers",
    "journal": "Journal",
    "ha": "High availability",
}
MASTER_PAGES = [path for path in PAGES if path not in ("", "journal", "ha")]


def show(page: Page, path: str) -> None:
    """Go to a page of the console, as a link of it does."""
    page.evaluate("path => { location.hash = '#/' + path }", path)


def wait_for(is_reached: Callable[[], Any]) -> None:
    deadline = time.monotonic() + SECONDS
    while not is_reached():
        assert time.monotonic() < deadline


def overflow(page: Page) -> int:
    """Return by how many pixels the page is wider than its window."""
    width: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return width


def marked(name: str) -> str:
    """Return the text of a name as pages have it: hidden characters by their codes."""
    return "".join(f"U+{ord(each):04X}" if not each.isprintable() else each for each in name)


# ---------------------------------------------------------------- pages


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "light"), (PHONE, "dark")])
def test_every_page_of_a_master(
    api: FakeApi, served: ConsoleServer, open_page: OpenPage, size: tuple[int, int], scheme: str
) -> None:
    page = open_page(served.url, size, color_scheme=scheme)
    for path, title in PAGES.items():
        show(page, path)
        expect(page.locator("h1")).to_have_text(title)
        expect(page.locator(".page")).to_be_visible()
        expect(page.get_by_role("alert")).to_have_count(0)
        assert overflow(page) <= 0, path
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(245, 246, 247)", "dark": "rgb(16, 19, 21)"}[scheme]


@pytest.mark.parametrize(
    ("size", "published", "console"),
    [
        (WIDE, None, "http://a.example.org:{port}/console/"),
        (PHONE, "https://a.example.org:9000", "https://a.example.org:9000/console/"),
    ],
)
def test_every_page_of_a_standby_names_the_master(
    api: FakeApi, served: ConsoleServer, open_page: OpenPage, size: tuple[int, int], published: str | None, console: str
) -> None:
    api.role = "STANDBY"
    api.members[0] |= {"management": published}
    api.reasons = [{"member": "b", "is_obstacle": True, "text": "the store cannot be read"}]
    page = open_page(served.url, size)
    link = page.get_by_role("link", name="console of a")
    for path in ("", "ha"):
        show(page, path)
        expect(page.get_by_text("the store cannot be read")).to_be_visible()
        expect(page.locator("svg.pair")).to_be_visible()
        expect(link).to_have_attribute("href", console.format(port=served.port))
    show(page, "journal")
    expect(page.get_by_text("db-1.log")).to_be_visible()
    expect(page.get_by_text("4 messages of queue://ORDERS")).to_be_visible()
    expect(page.get_by_text("This member is not the master.")).to_be_visible()
    expect(page.get_by_text("Transactions in doubt")).to_have_count(0)
    expect(page.get_by_role("alert")).to_have_count(0)
    for path in MASTER_PAGES:
        show(page, path)
        expect(page.get_by_text("This member is a standby.")).to_be_visible()
        expect(link).to_be_visible()
        assert overflow(page) <= 0, path
    assert page.locator("main button").count() == 0
    assert page.locator("nav .way.away").count() == 6


def test_an_address_with_a_filter_that_a_list_has_not(served: ConsoleServer, open_page: OpenPage) -> None:
    """REST refuses what it does not know, so the page asks for what its list has."""
    page = open_page(f"{served.url}#/connections?filter=nonempty")
    expect(page.get_by_text("shop-1", exact=True)).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_scheduled_messages_come_in_pages(api: FakeApi, served: ConsoleServer, open_page: OpenPage) -> None:
    api.jobs = [api.jobs[0] | {"job_id": f"ID:{number}", "next_time_ms": number} for number in range(70)]
    page = open_page(f"{served.url}#/scheduled")
    expect(page.get_by_text("70 scheduled")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(50)
    page.get_by_role("button", name="Next").click()
    expect(page.locator("tbody tr")).to_have_count(20)
    expect(page.get_by_text("ID:69", exact=True)).to_be_visible()
    page.get_by_role("button", name="Previous").click()
    expect(page.get_by_text("ID:0", exact=True)).to_be_visible()
    page.get_by_label("Rows of a page").select_option("100")
    expect(page.locator("tbody tr")).to_have_count(70)


def test_hostile_names_are_texts_everywhere(api: FakeApi, served: ConsoleServer, open_page: OpenPage) -> None:
    evil = HOSTILE[0] + HOSTILE[3]
    api.queues = [destination(name, size=1, consumers=1) for name in (*HOSTILE, evil)]
    api.topics = [destination(name, "topic") for name in HOSTILE]
    api.messages = {
        evil: [
            message(
                1,
                **dict.fromkeys(("message_id", "correlation_id", "type", "group_id", "user", "body"), evil),
                **dict.fromkeys(("destination", "reply_to", "original_destination"), f"queue://{evil}"),
                dead_letter_cause=evil,
                properties={evil: evil},
                holder=connection(1, client_id=evil),
                state="in flight",
            )
        ]
    }
    names = {"connection_id": evil, "client_id": evil, "user": evil}
    api.connections = [connection(1, **names, peer=evil, listener=evil)]
    api.consumers = [consumer(evil, 1, **names, selector=evil, subscription=evil)]
    api.subscriptions = [subscription(evil, evil, client_id=evil, destination=evil, selector=evil)]
    api.jobs = [each | {"job_id": evil, "destination": evil, "cron": evil} for each in api.jobs]
    api.branches = [{"branch": evil, "user": evil, "sent": 1, "acknowledged": 1}]
    api.members = [member(evil, "MASTER", host=evil, listeners=["javascript:alert(1)"], warnings=[evil])]
    api.reasons = [{"member": evil, "is_obstacle": True, "text": evil}]
    page = open_page(served.url, PHONE)
    show(page, "queues")
    for name in HOSTILE:
        expect(page.get_by_role("link", name=marked(name), exact=True)).to_be_visible()
    page.locator("td.main a", has_text=marked(HOSTILE[4])).click()
    expect(page.locator("h1")).to_have_text(f"Queues / {marked(HOSTILE[4])}")
    quoted = page.evaluate("encodeURIComponent", evil)
    for path in ("", f"queues/{quoted}", f"queues/{quoted}/messages", f"queues/{quoted}/messages/{quoted}",
                 "subscriptions", "connections", f"connections/{quoted}", "scheduled", "journal", "ha"):  # fmt: skip
        show(page, path)
        expect(page.get_by_text(marked(evil)).first).to_be_visible()
        assert overflow(page) <= 0, path
    assert page.locator("main script, main img, main iframe, main [onerror], a[href^='javascript']").count() == 0


def test_a_name_that_no_address_can_have_is_refused(api: FakeApi, served: ConsoleServer, open_page: OpenPage) -> None:
    api.queues.append(destination(".."))
    page = open_page(f"{served.url}#/queues/..")
    expect(page.get_by_role("alert")).to_contain_text("A browser cannot send the name .. in an address")


def test_it_works_below_a_path_of_a_proxy(api: FakeApi, open_page: OpenPage) -> None:
    server = ConsoleServer(api, "/brokers/one")
    page = open_page(f"http://127.0.0.1:{server.port}/brokers/one/admin/queues.jsp")
    expect(page.get_by_role("link", name=DLQ)).to_be_visible()
    assert page.url == f"{server.url}#/queues"
    server.stop()


def test_bodies_are_shown_in_each_way(api: FakeApi, served: ConsoleServer, open_page: OpenPage) -> None:
    api.messages["ORDERS"][0]["body"] = '{"id": 12345678901234567890, "a": [], "text": "a, b: {c}"}'
    page = open_page(f"{served.url}#/queues/ORDERS/messages/{MESSAGE}")
    body = page.locator("pre.body")
    expect(body).to_have_text('{\n  "id": 12345678901234567890,\n  "a": [],\n  "text": "a, b: {c}"\n}')
    page.get_by_role("button", name="Hex").click()
    expect(body).to_contain_text('00000000  7b 22 69 64 22 3a 20 31  32 33 34 35 36 37 38 39  {"id": 123456789')
    page.get_by_role("button", name="Text").click()
    expect(body).to_have_text(api.messages["ORDERS"][0]["body"])
    show(page, "queues/ORDERS/messages/ID%3Ahost-40213-1795756037596-4%3A3%3A1%3A1%3A1")
    expect(body).to_contain_text("00000000  00 01 02 03 ff 20 70 79")


# ---------------------------------------------------------------- changes


def test_purge_needs_the_name_of_the_queue(api: FakeApi, served: ConsoleServer, open_page: OpenPage) -> None:
    page = open_page(f"{served.url}#/queues/ORDERS")
    page.get_by_role("button", name="Purge").click()
    dialog = page.get_by_role("dialog", name="Purge queue")
    expect(dialog).to_contain_text("1,234 messages at present")
    confirm, field = dialog.get_by_role("button", name="Purge"), dialog.get_by_role("textbox")
    expect(field).to_be_focused()
    expect(confirm).to_be_disabled()
    field.fill("ORDER")
    expect(confirm).to_be_disabled()
    field.press("Enter")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    assert api.changes == []
    page.get_by_role("button", name="Purge").click()
    field.fill("ORDERS")
    field.press("Enter")
    expect(dialog).to_be_hidden()
    assert api.changes == [("POST", "queues/ORDERS/purge", {})]
    expect(page.locator(".figure-value").first).to_have_text("1,105")


def test_a_name_with_hidden_characters_is_typed_by_their_codes(
    api: FakeApi, served: ConsoleServer, open_page: OpenPage
) -> None:
    api.queues.append(destination("a\u202eb"))
    page = open_page(f"{served.url}#/queues/a%E2%80%AEb")
    page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox").fill("a‹U+202E›b")
    dialog.get_by_role("button", name="Delete").click()
    expect(page.locator("h1")).to_have_text("Queues")
    assert api.changes == [("DELETE", "queues/a\u202eb", {})]


def test_ticked_messages_are_moved_after_a_count(api: FakeApi, served: ConsoleServer, open_page: OpenPage) -> None:
    page = open_page(f"{served.url}#/queues/ORDERS/messages?count=25")
    ticks = page.get_by_role("checkbox", name="Tick ID:host")
    expect(ticks).to_have_count(25)
    ticks.nth(0).check()
    ticks.nth(1).check()  # in flight
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_text("4:26:1:1:1")).to_be_visible()
    ticks.nth(3).check()
    page.get_by_role("button", name="Move…", exact=True).click()
    dialog = page.get_by_role("dialog", name="Move messages")
    expect(dialog).to_contain_text("3 ticked messages")
    dialog.get_by_label("Name of the target").fill("ORDERS.EU")
    expect(dialog.get_by_role("status")).to_contain_text("2 messages of 130 examined will be moved. 1 in flight stays")
    assert api.changes == []
    dialog.get_by_role("button", name="Move 2 messages").click()
    expect(dialog).to_contain_text("2 messages were moved. 1 in flight stayed.")
    page.keyboard.press("Escape")
    expect(page.get_by_text("All messages:")).to_be_visible()
    ids = [f"ID:host-40213-1795756037596-4:{number}:1:1:1" for number in (1, 2, 29)]
    assert api.changes == [("POST", "queues/ORDERS/move", {"message_ids": ids, "target": "queue://ORDERS.EU"})]
    page.get_by_role("button", name="Previous").click()
    expect(page.get_by_text("4:3:1:1:1")).to_be_visible()


def test_dead_letters_are_retried_by_selector(api: FakeApi, served: ConsoleServer, open_page: OpenPage) -> None:
    page = open_page(f"{served.url}#/queues/{DLQ}/messages")
    expect(page.get_by_text("Exceeded redelivery policy limit").first).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("region = 'north'")
    expect(page).to_have_url(re.compile("north%27"))  # before that, the selector is what was typed so far
    expect(page.get_by_text("All that match the selector:")).to_be_visible()
    page.get_by_role("button", name="Retry…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("At most").fill("100")
    dialog.get_by_role("button", name="Retry 100 messages").click()
    expect(dialog).to_contain_text("100 messages were sent to their original queues.")
    assert api.changes == [("POST", f"queues/{DLQ}/retry", {"selector": "region = 'north'", "maximum": 100})]


def begin_retry(page: Page) -> Locator:
    """Begin to retry all dead letters, and return the dialog."""
    page.get_by_role("button", name="Retry…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Retry 120 messages").click()
    return dialog


def test_a_long_operation_says_how_far_it_is(api: FakeApi, served: ConsoleServer, open_page: OpenPage) -> None:
    api.progress = [30, 60]
    page = open_page(f"{served.url}#/queues/{DLQ}/messages")
    dialog = begin_retry(page)
    expect(dialog).to_contain_text("60 of 120 messages so far")
    assert dialog.get_by_role("progressbar").evaluate("each => each.position") == 0.5
    expect(dialog.get_by_label("At most")).to_be_hidden()
    api.finish()
    expect(dialog).to_contain_text("120 messages were sent to their original queues.")


def test_a_purge_says_how_far_it_is(api: FakeApi, served: ConsoleServer, open_page: OpenPage) -> None:
    api.progress = [90]
    page = open_page(f"{served.url}#/queues/{DLQ}")
    page.get_by_role("button", name="Purge").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox").fill(DLQ)
    page.keyboard.press("Enter")
    expect(dialog).to_contain_text("90 of 120 messages so far")
    api.finish()
    expect(dialog).to_be_hidden()
    expect(page.locator(".figure-value").first).to_have_text("0")


def test_messages_are_counted_again_after_a_cancel(api: FakeApi, served: ConsoleServer, open_page: OpenPage) -> None:
    api.progress = [40]
    page = open_page(f"{served.url}#/queues/{DLQ}/messages")
    dialog = begin_retry(page)
    expect(dialog).to_contain_text("40 of 120 messages so far")
    del api.messages[DLQ][:45]
    page.keyboard.press("Escape")
    expect(dialog.get_by_role("alert")).to_have_text("Cancelled: what was done up to then is done.")
    expect(dialog.get_by_role("status")).to_contain_text("75 messages of 75 examined")
    expect(dialog.get_by_role("button", name="Retry 75 messages")).to_be_enabled()


def test_an_operation_whose_answer_breaks_off_says_so(api: FakeApi, served: ConsoleServer, open_page: OpenPage) -> None:
    api.progress = [40]
    page = open_page(f"{served.url}#/queues/{DLQ}/messages")
    dialog = begin_retry(page)
    expect(dialog).to_contain_text("40 of 120 messages so far")
    served.stop()
    expect(dialog.get_by_text("The connection broke: what was done up to then is done.")).to_be_visible()
    served.start()


def test_the_last_page_is_one_step_away(api: FakeApi, served: ConsoleServer, open_page: OpenPage) -> None:
    page = open_page(f"{served.url}#/queues/ORDERS/messages")
    expect(page.get_by_text("50 messages of 1,234")).to_be_visible()
    page.get_by_role("button", name="Last").click()
    expect(page.locator(".message-id").last).to_have_text("ID:host-40213-1795756037596-4:130:1:1:1")
    expect(page.locator(".message-id").first).to_have_text("ID:host-40213-1795756037596-4:81:1:1:1")
    expect(page.get_by_role("button", name="Last")).to_be_disabled()
    api.messages["ORDERS"].append(message(131))
    expect(page.locator(".message-id").last).to_have_text("ID:host-40213-1795756037596-4:131:1:1:1")
    page.get_by_role("button", name="Previous").click()
    expect(page.locator(".message-id").first).to_have_text("ID:host-40213-1795756037596-4:1:1:1:1")
    page.keyboard.press("/")
    page.keyboard.type("n > 3")
    expect(page.get_by_role("button", name="Last")).to_be_hidden()


def test_the_end_of_a_message_id_is_seen(api: FakeApi, served: ConsoleServer, open_page: OpenPage) -> None:
    page = open_page(f"{served.url}#/queues/{DLQ}/messages")
    message_id = page.locator(".message-id").first
    expect(message_id).to_have_text("ID:host-40213-1795756037596-4:1:1:1:1")
    begin, end = message_id.locator(".name").all()
    assert end.inner_text() == "37596-4:1:1:1:1"[-14:]
    assert begin.evaluate("each => each.scrollWidth > each.clientWidth"), "there is no space for all of it"
    assert end.evaluate(
        "each => each.getBoundingClientRect().right <= each.parentElement.getBoundingClientRect().right"
    )
    assert message_id.inner_text() == "ID:host-40213-1795756037596-4:1:1:1:1"  # as it is copied
    assert page.locator(".table-frame").evaluate("each => each.scrollWidth - each.clientWidth") == 0


def test_a_page_that_takes_long_is_refreshed_less_often(
    api: FakeApi, served: ConsoleServer, open_page: OpenPage
) -> None:
    path = "queues/ORDERS/messages"
    api.delays[path] = seconds = 0.4  # longer than a fifth of the interval of refreshes
    page = open_page(f"{served.url}#/{path}")
    expect(page.get_by_text("50 messages of 1,234")).to_be_visible()
    wait_for(lambda: page.evaluate("1") and len(api.asked_at[path]) == 3)
    assert all(later - earlier > 0.99 * seconds / 0.2 for earlier, later in pairwise(api.asked_at[path]))


def test_errors_are_shown_in_place(api: FakeApi, served: ConsoleServer, open_page: OpenPage) -> None:
    page = open_page(f"{served.url}#/queues/ORDERS/messages?selector=n%3D%3D%3D")
    expect(page.get_by_role("alert")).to_have_text("The selector 'n===' is not valid.")
    api.refusals["POST queues/ORDERS/pause"] = (409, "the queue is being purged")
    show(page, "queues/ORDERS")
    page.locator("main").get_by_role("button", name="Pause").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Pause").click()
    expect(dialog.get_by_role("alert")).to_have_text("The queue is being purged.")
    del api.refusals["POST queues/ORDERS/pause"]
    dialog.get_by_role("button", name="Pause").click()
    expect(dialog).to_be_hidden()
    expect(page.locator("main").get_by_role("button", name="Resume")).to_be_visible()


def test_a_message_is_sent_with_its_properties(api: FakeApi, served: ConsoleServer, open_page: OpenPage) -> None:
    page = open_page(f"{served.url}#/queues/ORDERS")
    page.get_by_role("button", name="Send message").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Body", exact=True).fill("hällo\n<b>")
    dialog.get_by_label("Correlation ID").fill("c-1")
    dialog.get_by_role("button", name="Add property").click()
    dialog.get_by_label("Name of the property").fill("n")
    dialog.get_by_label("Type of the property").select_option("number")
    dialog.get_by_label("Value of the property").fill("three")
    dialog.get_by_role("button", name="Send").click()
    expect(dialog.get_by_role("alert")).to_have_text("The property n is a number, not three.")
    dialog.get_by_label("Value of the property").fill("3")
    dialog.get_by_role("button", name="Send").click()
    expect(dialog).to_contain_text("Sent as ID:sent-1:1.")
    ((method, path, body),) = api.changes
    assert (method, path) == ("POST", "queues/ORDERS/messages")
    assert body == {
        "body": "hällo\n<b>", "body_type": "text", "persistent": True, "priority": 4, "time_to_live_ms": 0,
        "correlation_id": "c-1", "properties": {"n": 3},
    }  # fmt: skip


def test_other_changes_ask_first(api: FakeApi, served: ConsoleServer, open_page: OpenPage) -> None:
    page = open_page(f"{served.url}#/connections")

    def confirm(path: str, name: str, question: str, button: str, typed: str = "") -> None:
        show(page, path)
        page.get_by_role("button", name=name).first.click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text(question)
        if typed:
            dialog.get_by_role("textbox").fill(typed)
        dialog.get_by_role("button", name=button).click()
        expect(dialog).to_be_hidden()

    confirm("connections", "Cut off shop-2", "1 consumer, 1 producer and 1 open transaction", "Cut off")
    confirm("subscriptions", "Delete gone", "41,000 pending messages", "Delete", "gone")
    confirm("scheduled", "Remove", "1 scheduled message", "Remove 1 message")
    confirm("journal", "Roll back", "3 messages that it has sent will be dropped", "Roll back")
    confirm("ha", "Step down", "Then b takes over", "Step down", "a")
    page.get_by_role("link", name="Topics").click()
    page.get_by_role("button", name="Create topic").click()
    page.get_by_role("dialog").get_by_label("Name").fill("a/b")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Topics / a/b")
    assert api.changes == [
        ("DELETE", "connections/ID:c-2", {}),
        ("DELETE", "subscriptions/app1:gone", {}),
        ("DELETE", "jobs/ID:host-1-2-3:0", {}),
        ("POST", "transactions/4660:67747269:62717561/rollback", {}),
        ("POST", "stepdown", {}),
        ("POST", "topics", {"name": "a/b"}),
    ]


def test_a_monitor_sees_everything_and_changes_nothing(
    api: FakeApi, served: ConsoleServer, open_page: OpenPage
) -> None:
    api.user_role = "monitor"
    page = open_page(served.url)
    expect(page.locator(".who")).to_contain_text("monitor")
    words = ("Purge", "Delete", "Move", "Remove", "Send", "Create", "Cut", "Commit", "Roll", "Step", "Retry", "Resume")
    for path in PAGES:
        show(page, path)
        expect(page.locator("h1")).to_have_text(PAGES[path])
        expect(page.locator(".page")).to_be_visible()
        assert [each for each in page.locator("main button").all_inner_texts() if each.startswith(words)] == []
        assert page.locator("main input[type=checkbox]").count() == 0


# ---------------------------------------------------------------- the page itself


def test_keys_and_what_is_typed_survive_a_refresh(api: FakeApi, served: ConsoleServer, open_page: OpenPage) -> None:
    page = open_page(f"{served.url}#/queues?page_size=250")
    expect(page.get_by_role("link", name="BULK.119")).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("bulk.0")
    expect(page.get_by_text("100 queues")).to_be_visible()
    page.evaluate("window.scrollTo(0, 600)")
    api.queues[100] |= {"size": 987654}  # BULK.096
    asked = api.asked
    expect(page.get_by_text("987,654")).to_be_visible()
    assert api.asked > asked
    assert page.evaluate("window.scrollY") == 600
    expect(page.get_by_role("searchbox")).to_be_focused()
    expect(page.get_by_role("searchbox")).to_have_value("bulk.0")
    page.get_by_role("button", name="Pending").click()
    expect(page.locator("td.main").first).to_have_text("BULK.096 no consumer")
    expect(page.get_by_role("columnheader", name="Pending")).to_have_attribute("aria-sort", "descending")
    page.go_back()
    expect(page.locator("td.main").first).to_have_text("BULK.000")


def test_an_open_dialog_and_ticks_survive_a_refresh(api: FakeApi, served: ConsoleServer, open_page: OpenPage) -> None:
    page = open_page(f"{served.url}#/queues/ORDERS/messages")
    page.get_by_role("checkbox", name="Tick ID:host").nth(2).check()
    page.get_by_role("button", name="Copy…").click()
    target = page.get_by_label("Name of the target")
    target.fill("OTHER")
    asked = api.asked
    api.messages["ORDERS"].pop(0)
    wait_for(lambda: api.asked > asked + 6)
    expect(target).to_have_value("OTHER")
    expect(target).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_text("4:1:1:1:1")).to_be_hidden()
    expect(page.get_by_role("checkbox", name="Tick ID:host").nth(1)).to_be_checked()


def test_all_is_reached_by_keyboard(api: FakeApi, served: ConsoleServer, open_page: OpenPage) -> None:
    page = open_page(f"{served.url}#/queues?name=ORDERS")
    expect(page.get_by_role("link", name="ORDERS.EU")).to_be_visible()
    reached = set()
    page.evaluate("document.body.focus()")
    for _ in range(40):
        page.keyboard.press("Tab")
        text, outline = page.evaluate(
            "(() => { const e = document.activeElement; return [e.getAttribute('aria-label') || e.innerText, "
            "getComputedStyle(e).outlineStyle] })()"
        )
        reached.add(text)
        assert outline != "none" or text is None or page.evaluate("document.activeElement === document.body"), text
    assert {"Skip to the page", "Overview", "Live: pause the refresh", "Refresh now", "Dark"} <= reached
    assert {"Create queue", "Filter by name"} <= reached
    assert {"ORDERS", "ORDERS.EU", "Pending"} <= reached


def test_the_theme_can_be_chosen_and_is_kept(served: ConsoleServer, open_page: OpenPage) -> None:
    page = open_page(served.url, color_scheme="light")

    def colour() -> str:
        found: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return found

    assert colour() == "rgb(245, 246, 247)"
    page.get_by_role("button", name="Dark").click()
    assert colour() == "rgb(16, 19, 21)"
    page.reload()
    expect(page.get_by_role("button", name="Dark")).to_have_attribute("aria-pressed", "true")
    assert colour() == "rgb(16, 19, 21)"
    page.get_by_role("button", name="System").click()
    assert colour() == "rgb(245, 246, 247)"


def test_the_menu_of_a_phone_leads_to_the_pages(served: ConsoleServer, open_page: OpenPage) -> None:
    page = open_page(served.url, PHONE)
    expect(page.get_by_role("link", name="Connections")).to_be_hidden()
    page.get_by_role("button", name="Pages").click()
    page.get_by_role("link", name="Connections").click()
    expect(page.locator("h1")).to_have_text("Connections")
    expect(page.get_by_role("link", name="Connections")).to_be_hidden()


def test_a_member_that_ends_is_reported_until_it_is_back(
    api: FakeApi, served: ConsoleServer, open_page: OpenPage
) -> None:
    page = open_page(f"{served.url}#/queues?name=ORDERS")
    expect(page.get_by_role("link", name="ORDERS.EU")).to_be_visible()
    served.stop()
    silence = page.get_by_text("The member does not answer")
    expect(silence).to_be_visible()
    expect(page.get_by_text("ORDERS.EU")).to_be_visible()
    expect(page.get_by_role("button", name="Try now")).to_be_visible()
    api.role = "STANDBY"
    served.start()
    expect(page.get_by_text("This member is a standby.")).to_be_visible()
    expect(silence).to_be_hidden()
    api.role = "MASTER"
    expect(page.get_by_role("link", name="ORDERS.EU")).to_be_visible()


def test_a_member_that_ends_leads_to_the_other_console(
    api: FakeApi, served: ConsoleServer, open_page: OpenPage
) -> None:
    for each in api.members:
        each["management"] = None if each["name"] == "a" else "http://127.0.0.1:1"
    page = open_page(f"{served.url}#/queues?name=ORDERS")
    expect(page.get_by_role("link", name="ORDERS.EU")).to_be_visible()
    served.stop()
    link = page.get_by_role("alert").get_by_role("link", name="Console of b")
    expect(link).to_have_attribute("href", "http://127.0.0.1:1/console/")
    served.start()
    expect(link).to_be_hidden()


def test_bytes_that_are_a_text_are_listed_as_that(api: FakeApi, served: ConsoleServer, open_page: OpenPage) -> None:
    """A text that is cut within a character stays one; a body with control characters is none."""
    cut, binary = b'{"city": "K\xc3\xb6ln \xc3', b"\x00\x01\xff"
    for number, (data, is_cut) in enumerate([(cut, True), (cut, False), (binary, False)]):
        body = base64.b64encode(data).decode()
        api.messages["ORDERS"][number] |= {"body_type": "bytes", "body": body, "body_is_cut": is_cut, "size": 25}
    page = open_page(f"{served.url}#/queues/ORDERS/messages")
    links = page.locator(".message-link")
    expect(links.nth(0)).to_have_text('{"city": "Köln …')
    expect(links.nth(1)).to_have_text("bytes, 25\N{NARROW NO-BREAK SPACE}B")
    expect(links.nth(2)).to_have_text("bytes, 25\N{NARROW NO-BREAK SPACE}B")


def test_nothing_is_asked_for_while_paused_or_hidden(api: FakeApi, served: ConsoleServer, open_page: OpenPage) -> None:
    page = open_page(f"{served.url}#/queues?name=ORDERS")
    expect(page.get_by_role("link", name="ORDERS.EU")).to_be_visible()
    page.get_by_role("button", name="Live").click()
    api.queues[1] |= {"size": 77}
    page.clock.install()
    asked = api.asked
    page.clock.run_for(60_000)
    assert api.asked == asked
    page.get_by_role("button", name="Refresh now").click()
    expect(page.get_by_role("cell", name="77")).to_be_visible()
    api.queues[1] |= {"size": 78}
    page.get_by_role("button", name="Paused").click()
    expect(page.get_by_role("cell", name="78")).to_be_visible()  # what that click asks for has come
    hide = "(hidden) => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});"
    hide += "document.dispatchEvent(new Event('visibilitychange')) }"
    page.evaluate(hide, True)
    api.queues[1] |= {"size": 79}
    page.wait_for_load_state("networkidle")
    asked = api.asked
    page.clock.run_for(60_000)
    assert api.asked == asked
    page.evaluate(hide, False)
    expect(page.get_by_role("cell", name="79")).to_be_visible()


def test_replicas_are_shown(api: FakeApi, served: ConsoleServer, open_page: OpenPage) -> None:
    away = {"lag_bytes": 0, "lag_seconds": 0.0, "left_bytes": 0, "verified_ms": 0, "damaged": 0}
    api.replica = {
        "cluster": "orders",
        "epoch": 43,
        "minimum": 1,
        "in_sync_count": 2,
        "is_in_sync": True,
        "successors": ["b"],
        "last_verified_ms": None,
        "damaged": ["kahadb/db-3.log"],
        "register_age_seconds": 0.8,
        "problem": "",
        "members": [
            away | {"name": "a", "store": "s-1", "is_master": True, "is_connected": True, "is_in_sync": True},
            away | {"name": "b", "store": "s-2", "is_master": False, "is_connected": True, "is_in_sync": True},
            away | {"name": "c", "store": "s-3", "is_master": False, "is_connected": False, "is_in_sync": False},
        ],
    }
    page = open_page(served.url, WIDE)
    show(page, "ha")
    expect(page.get_by_text("its place is taken by")).to_be_visible()
    expect(page.get_by_text("kahadb/db-3.log")).to_be_visible()
    expect(page.get_by_text("not connected")).to_be_visible()
    expect(page.get_by_text("not in sync")).to_be_visible()
