"""The console over 100,000 dead letters: browsed, retried, moved and purged, with exact counts, and no one waits long.

The browser is behind a proxy that gives a request up sooner than an operation takes. A client of the broker sends
messages meanwhile, one after the other. `-s` prints what was measured.
"""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import takewhile
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Locator, Page, expect

from benchmarks.fast_fill import write_messages
from benchmarks.hostile.processes import BYSTANDER, Child, Samples, sampled
from benchmarks.hostile.verdict import BUSY_LATE_MS, BUSY_MS, QUIET_MS, judged
from benchmarks.workload import BODY_BYTES, body
from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.body import encode_text_utf8
from pybroker.broker.domain.openwire.ids import ProducerId
from pybroker.broker.domain.openwire.message import MessageType
from pybroker.broker.domain.openwire.rerouting import Rerouting
from pybroker.broker.domain.openwire.template import MessageTemplate
from tests.console.conftest import SECONDS, OpenPage
from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.haproxy import haproxy
from tests.integration.stomp_client import StompClient
from tests.integration.test_management_operations import Api
from tests.pace import in_time, slowness

pytestmark = [pytest.mark.component("chromium"), pytest.mark.component("haproxy"), pytest.mark.alone]

COUNT = 100_000
ALL = f"{COUNT:,}"
DLQ, ORDERS, ARCHIVE = "ActiveMQ.DLQ", "ORDERS", "ARCHIVE"
PRODUCER = "ID:shop-41213-1700000000000-1:1"
CAUSE = "java.lang.Throwable: Exceeded redelivery policy limit: 6, cause:null"
SENT_AT_MS = 1_700_000_000_000
DONE_MS = 60_000

PROXY_SECONDS = 4
"""Longer than the search for a page may take, and shorter than a move of all messages."""

PROXY = """
defaults
    mode http
    timeout connect {seconds}s
    timeout client {seconds}s
    timeout server {seconds}s
listen management
    bind 127.0.0.1:{front}
    server broker 127.0.0.1:{back}
"""

FIRST_PAGE_SECONDS = 3.0
REFRESH_SECONDS_MAX = 2.5
FROZEN_SECONDS_MAX = 0.3
HEAP_BYTES_MAX = 32 << 20


def id_of(number: int) -> str:
    return f"{PRODUCER}:1:1:{number}"


def dead_letters() -> Iterator[Message]:
    """Yield what a broker has sent to its dead letter queue, as consumers of `ORDERS` have rolled it back too often."""
    origin, target = queue(ORDERS), queue(DLQ)
    build = MessageTemplate(ProducerId(PRODUCER, 1, 1), origin).build
    content = encode_text_utf8(body(BODY_BYTES))
    for number in range(1, COUNT + 1):
        sent = build(
            type=MessageType.TEXT,
            sequence=number,
            content=content,
            properties={"order": str(number), "dlqDeliveryFailureCause": CAUSE},
            persistent=True,
            timestamp=SENT_AT_MS + number,
            broker_in_time=SENT_AT_MS + number,
        )
        yield Rerouting(sent).copy(target, origin)


# ---------------------------------------------------------------- what is watched


class Step(NamedTuple):
    """A step in the browser, with times in seconds of the monotonic clock.

    Attributes:
        name: what is done.
        began: when.
        ended: when the browser showed its end.
        refresh: the longest time of a request by which the page was refreshed meanwhile.
        frozen: the longest time in which the page did nothing else.
    """

    name: str
    began: float
    ended: float
    refresh: float
    frozen: float

    def check(self) -> None:
        """Check what the page took."""
        slow = slowness(self.ended - self.began)
        assert self.refresh < REFRESH_SECONDS_MAX * slow, self
        assert self.frozen < FROZEN_SECONDS_MAX * slow, self


class Bystander:
    """Clients that send and receive messages, one after the other, and take the time of each."""

    def __init__(self, child: Child, samples: Samples) -> None:
        self._child = child
        self._samples = samples

    def check(self, steps: Sequence[Step]) -> None:
        """Print the steps with the longest waits of the clients meanwhile, and check these."""
        self._child.order()
        measured = self._child.answer(SECONDS)
        assert measured is not None
        assert measured["errors"] == []
        for step in steps:
            waits = {
                kind: [(began, seconds) for began, seconds in spans if step.began - seconds < began < step.ended]
                for kind, spans in measured["waits"].items()
            }
            found = judged(waits, late=measured["late"], delays=self._samples.delays)
            print(
                f"{step.name}: {step.ended - step.began:.2f} s; refresh at most {step.refresh * 1000:.0f} ms, task "
                f"{step.frozen * 1000:.0f} ms; of {found.count} waits the longest {found.max_ms:.0f} ms, of the broker "
                f"{found.own_ms:.0f} ms"
            )
            bound = QUIET_MS if found.late_ms <= BUSY_LATE_MS else BUSY_MS * slowness(time.monotonic() - step.began)
            assert found.own_ms <= bound, (step, found)


@contextmanager
def bystander_of(broker: BrokerProcess) -> Iterator[Bystander]:
    openwire = broker.wait_for(r"tcp://127.0.0.1:(\d+)")[1]
    with Child(BYSTANDER, ["--openwire", openwire, "--stomp", str(broker.port)]) as child:
        assert child.answer(SECONDS) is not None
        with sampled(broker.process.pid) as samples:
            yield Bystander(child, samples)


class LongQueue:
    """The broker with its dead letters, and a page of its console."""

    def __init__(self, broker: BrokerProcess, url: str) -> None:
        self.broker = broker
        self.url = url
        self.api = Api(broker)

    def sizes(self) -> dict[str, tuple[int, int]]:
        """Return the number of messages of each queue, and of those in flight, as REST has them."""
        rows = {name: self.api.ask("GET", f"/queues/{name}") for name in (DLQ, ORDERS, ARCHIVE)}
        return {name: (row["size"], row["in_flight"]) for name, (status, row) in rows.items() if status == 200}

    def ids(self, name: str) -> list[str]:
        """Return the ids of all messages of a queue in their order, as a browser of STOMP gets them."""
        with closing(StompClient(self.broker.port)) as client:
            client.send("SUBSCRIBE", id="1", destination=f"/queue/{name}", browser="true")
            frames = iter(client.read, None)
            return [
                each.headers["message-id"] for each in takewhile(lambda each: "browser" not in each.headers, frames)
            ]


@pytest.fixture(scope="module")
def long_queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LongQueue]:
    store = tmp_path_factory.mktemp("store")
    write_messages(store / "kahadb", dead_letters())
    with ExitStack() as open_:
        options = ("--management", "127.0.0.1:0", "--openwire", str(free_port()))
        broker = BrokerProcess(str(store), name="a", port=free_port(), extra=options)
        open_.callback(broker.close)
        back, front = broker.wait_for(r"management at http://127.0.0.1:(\d+)")[1], free_port()
        broker.wait_for("listening on")
        (configuration := store / "haproxy.cfg").write_text(PROXY.format(seconds=PROXY_SECONDS, front=front, back=back))
        open_.enter_context(haproxy(configuration, [front]))
        yield LongQueue(broker, f"http://127.0.0.1:{front}/console/")


class WatchedPage:
    """A page, with what it takes: time for refreshes, time in which it is frozen, memory.

    Attributes:
        steps: what was measured.
    """

    def __init__(self, page: Page) -> None:
        self.page = page
        self.steps: list[Step] = []
        self._tools = page.context.new_cdp_session(page)
        self._tools.send("Performance.enable")
        page.evaluate(
            """() => {
                performance.setResourceTimingBufferSize(100_000);
                window.frozenMs = 0;
                const watch = (list) => {
                    for (const each of list.getEntries()) window.frozenMs = Math.max(window.frozenMs, each.duration);
                };
                new PerformanceObserver(watch).observe({type: "longtask", buffered: true});
            }"""
        )

    def take(self, name: str, act: Callable[[], object]) -> None:
        """Take a step, from what begins it to what it shows."""
        self._taken()
        began = time.monotonic()
        act()
        step = Step(name, began, time.monotonic(), *self._taken())
        self.steps.append(step)
        step.check()

    def _taken(self) -> tuple[float, float]:
        """Return the longest refresh and the longest task since the last call, in seconds."""
        refresh, frozen = self.page.evaluate(
            """() => {
                const all = performance.getEntriesByType("resource");
                const gets = all.filter((each) => /[?](count|last)=|overview$/.test(each.name));
                const found = [Math.max(0, ...gets.map((each) => each.duration)), window.frozenMs];
                performance.clearResourceTimings();
                window.frozenMs = 0;
                return found;
            }"""
        )
        return refresh / 1000, frozen / 1000

    def memory(self) -> tuple[int, int]:
        """Return the bytes of the page's heap, and the nodes of its document, without garbage."""
        self._tools.send("HeapProfiler.collectGarbage")
        metrics = {each["name"]: each["value"] for each in self._tools.send("Performance.getMetrics")["metrics"]}
        return metrics["JSHeapUsedSize"], metrics["Nodes"]


@pytest.fixture
def watched(long_queue: LongQueue, open_page: OpenPage) -> Iterator[WatchedPage]:
    began = time.monotonic()
    page = open_page(f"{long_queue.url}#/queues/{DLQ}/messages")
    expect(page.locator("tbody tr")).to_have_count(50)
    took = time.monotonic() - began
    print(f"\nfirst page: {took:.2f} s")
    assert in_time(took, FIRST_PAGE_SECONDS)
    with bystander_of(long_queue.broker) as bystander:
        yield (found := WatchedPage(page))
        bystander.check(found.steps)


def show(page: Page, path: str, title: str) -> None:
    page.evaluate("path => { location.hash = '#/' + path }", path)
    expect(page.locator("h1")).to_have_text(title)


def expect_pending(page: Page, **sizes: str) -> None:
    """Expect these numbers of messages in the list of queues."""
    show(page, "queues", "Queues")
    for name, size in sizes.items():
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name=name.replace("_", "."), exact=True))
        expect(row.get_by_role("cell").nth(1)).to_have_text(size)


def shown_ids(page: Page) -> Locator:
    return page.locator(".message-id")


# ---------------------------------------------------------------- tests


def test_a_long_queue_is_browsed(watched: WatchedPage) -> None:
    page, ids = watched.page, shown_ids(watched.page)
    first_bytes, first_nodes = watched.memory()
    expect(page.get_by_text(f"50 messages of {ALL}")).to_be_visible()

    def lead(button: str, *numbers: int) -> Callable[[], None]:
        def act() -> None:
            page.get_by_role("button", name=button).click()
            expect(ids).to_have_text([id_of(number) for number in numbers])

        return act

    watched.take("next page", lead("Next", *range(51, 101)))
    watched.take("next page", lead("Next", *range(101, 151)))
    watched.take("last page", lead("Last", *range(COUNT - 49, COUNT + 1)))
    expect(page.get_by_role("button", name="Next")).to_be_disabled()
    watched.take("former page", lead("Previous", *range(101, 151)))
    page.get_by_label("Messages of a page").select_option("250")
    expect(ids).to_have_text([id_of(number) for number in range(1, 251)])
    selected = [id_of(number) for number in range(500, COUNT, 1000)]
    found: list[str] = []

    def select() -> None:
        page.get_by_role("searchbox").fill("order LIKE '%500'")
        expect(ids.first).to_have_text(selected[0])
        found.extend(ids.all_inner_texts())
        while (following := page.get_by_role("button", name="Next")).is_enabled():  # a page may end by its time
            following.click()
            expect(ids.first).to_have_text(selected[len(found)])
            found.extend(ids.all_inner_texts())

    watched.take("100 messages by a selector", select)
    assert found == selected

    def open_last() -> None:
        page.locator(".message-link").last.click()
        expect(page.locator("pre.body")).to_have_text(body(BODY_BYTES).decode())

    watched.take("one message", open_last)
    expect(page.locator("main")).to_contain_text(f"Message ID{selected[-1]}")
    expect(page.locator("main")).to_contain_text(f"Original destinationqueue://{ORDERS}")
    page.get_by_role("link", name=DLQ).click()
    expect(ids).to_have_count(50)
    heap_bytes, nodes = watched.memory()
    print(f"heap: {first_bytes / 1e6:.1f} MB at first, {heap_bytes / 1e6:.1f} at last; nodes: {first_nodes}, {nodes}")
    assert heap_bytes < HEAP_BYTES_MAX
    assert nodes < 3 * first_nodes


def test_a_long_queue_is_retried_moved_and_purged(long_queue: LongQueue, watched: WatchedPage) -> None:
    page, everything = watched.page, [id_of(number) for number in range(1, COUNT + 1)]
    assert long_queue.sizes() == {DLQ: (COUNT, 0)}
    dialog = page.get_by_role("dialog")

    def count() -> None:
        page.get_by_role("button", name="Retry…").click()
        expect(dialog.get_by_role("status")).to_contain_text(f"{ALL} messages of {ALL} examined")

    def carry_out(label: str, done: str) -> Callable[[], None]:
        def act() -> None:
            dialog.get_by_role("button", name=f"{label} {ALL} messages").click()
            expect_progress(dialog)
            expect(dialog.get_by_role("status")).to_have_text(f"{ALL} messages were {done}.", timeout=DONE_MS)

        return act

    watched.take("count", count)
    watched.take("retry", carry_out("Retry", "sent to their original queues"))
    page.keyboard.press("Escape")
    expect(page.get_by_text("0 messages of 0")).to_be_visible()
    assert long_queue.sizes() == {DLQ: (0, 0), ORDERS: (COUNT, 0)}
    expect_pending(page, ActiveMQ_DLQ="0", ORDERS=ALL)
    assert long_queue.ids(ORDERS) == everything

    show(page, f"queues/{ORDERS}/messages", f"Queues / {ORDERS}")
    page.get_by_role("button", name="Move…", exact=True).click()
    dialog.get_by_label("Name of the target").fill(ARCHIVE)
    watched.take("move", carry_out("Move", "moved"))
    page.keyboard.press("Escape")
    assert long_queue.sizes() == {DLQ: (0, 0), ORDERS: (0, 0), ARCHIVE: (COUNT, 0)}
    expect_pending(page, ActiveMQ_DLQ="0", ORDERS="0", ARCHIVE=ALL)
    assert long_queue.ids(ARCHIVE) == everything

    def purge() -> None:
        dialog.get_by_role("button", name="Purge").click()
        expect(page.get_by_text("There are no messages.")).to_be_visible(timeout=DONE_MS)

    show(page, f"queues/{ARCHIVE}/messages", f"Queues / {ARCHIVE}")
    page.get_by_role("button", name="Purge").click()
    expect(dialog).to_contain_text(f"{ALL} messages at present")
    dialog.get_by_role("textbox").fill(ARCHIVE)
    watched.take("purge", purge)
    assert long_queue.sizes() == {DLQ: (0, 0), ORDERS: (0, 0), ARCHIVE: (0, 0)}
    expect_pending(page, ActiveMQ_DLQ="0", ORDERS="0", ARCHIVE="0")
    heap_bytes, nodes = watched.memory()
    print(f"heap: {heap_bytes / 1e6:.1f} MB, {nodes} nodes")
    assert heap_bytes < HEAP_BYTES_MAX


def expect_progress(dialog: Locator) -> None:
    """Expect that the dialog says twice how far it is, and that it is further then."""
    progress: Any = dialog.locator(".progress")
    expect(progress).to_have_text(re.compile(rf"^[1-9][\d,]* of {ALL} messages so far$"))
    first = progress.inner_text()
    expect(progress).not_to_have_text(first)
    assert number_in(progress.inner_text()) > number_in(first)
    expect(dialog.get_by_role("button", name="Working…")).to_be_disabled()


def number_in(text: str) -> int:
    return int(text.split()[0].replace(",", ""))
