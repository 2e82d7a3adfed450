"""A browser returns each message once and in order, also over breaks, and consumes none."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.subscription import BROWSER_PREFETCH
from pybroker.client.browser import AllShown
from pybroker.client.consumers import ConsumerState
from pybroker.client.conversation import AckMode
from pybroker.client.errors import ConnectionClosed, DestinationRefused, SelectorRefused
from tests.unit.client.world import World

Q = queue("q")


def fill(world: World, count: int) -> None:
    producer, _ = world.state.producers.add()
    for number in range(count):
        world.state.send(producer, Q, str(number), {})
    world.run()


def shown(world: World, browser: ConsumerState) -> list[object]:
    """Return the bodies of the further messages of a browser."""
    bodies: list[object] = []
    with contextlib.suppress(AllShown):
        while True:
            world.run()
            message = browser.receive_no_wait()
            if message is not None:
                bodies.append(message.body)
    return bodies


def everything(count: int) -> list[str]:
    return [str(number) for number in range(count)]


@pytest.mark.parametrize("prefetch", [1, 3, 500])
def test_everything_is_shown_in_order_and_nothing_consumed(prefetch: int) -> None:
    world = World()
    fill(world, 20)
    for _ in range(2):
        browser, opened = world.state.browse(Q, prefetch=prefetch, selector=None)
        assert shown(world, browser) == everything(20)
        assert opened.result() is None
        world.state.unsubscribe(browser)
        world.run()


def test_an_empty_queue_ends_at_once() -> None:
    world = World()
    browser, _ = world.state.browse(Q, prefetch=BROWSER_PREFETCH, selector=None)
    assert shown(world, browser) == []


def test_a_browser_returns_messages_delivered_to_others() -> None:
    world = World()
    fill(world, 3)
    consumer, _ = world.state.subscribe(Q, ack=AckMode.INDIVIDUAL, prefetch=1)
    world.run()
    held = consumer.receive_no_wait()
    assert held is not None
    world.break_off()  # from now on the connection remembers what its consumer holds
    world.connect()
    browser, _ = world.state.browse(Q, prefetch=500, selector=None)
    assert shown(world, browser) == everything(3)
    world.state.unsubscribe(browser)
    held.ack()
    world.run()
    again, _ = world.state.browse(Q, prefetch=500, selector=None)
    assert shown(world, again) == ["1", "2"]


def test_only_queues_are_browsed_and_selectors_are_checked() -> None:
    world = World()
    with pytest.raises(DestinationRefused, match="only queues"):
        world.state.browse(topic("t"), prefetch=BROWSER_PREFETCH, selector=None)
    browser, opened = world.state.browse(Q, prefetch=BROWSER_PREFETCH, selector="= =")
    world.run()
    with pytest.raises(SelectorRefused):
        opened.result()
    with pytest.raises(SelectorRefused):
        browser.receive_no_wait()


def test_a_browser_closed_before_its_end_raises() -> None:
    world = World()
    fill(world, 2)
    browser, _ = world.state.browse(Q, prefetch=BROWSER_PREFETCH, selector=None)
    world.run()
    assert browser.receive_no_wait() is not None
    world.state.fail(ConnectionClosed("closed"))
    with pytest.raises(ConnectionClosed):
        browser.receive_no_wait()


def test_the_end_of_a_lost_broker_does_not_end_a_browser() -> None:
    """The next broker sends the messages that had arrived and were not received."""
    world = World()
    fill(world, 3)
    browser, _ = world.state.browse(Q, prefetch=BROWSER_PREFETCH, selector=None)
    world.run()
    first = browser.receive_no_wait()
    assert first is not None
    world.break_off()
    assert browser.receive_no_wait() is None
    world.connect()
    assert [first.body, *shown(world, browser)] == everything(3)


cuts = st.tuples(st.integers(0, 1500), st.integers(0, 1500))


@given(st.integers(0, 12), st.integers(1, 5), st.lists(st.just("take") | cuts, max_size=20))
def test_a_break_at_any_byte_neither_repeats_nor_omits(
    count: int, prefetch: int, script: list[str | tuple[int, int]]
) -> None:
    world = World()
    fill(world, count)
    browser, _ = world.state.browse(Q, prefetch=prefetch, selector=None)
    seen: list[object] = []
    for step in script:
        if isinstance(step, tuple):
            world.cut_after(*step)
            world.run()
            continue
        try:
            message = browser.receive_no_wait()
        except AllShown:
            break
        if message is not None:
            seen.append(message.body)
    assert [*seen, *shown(world, browser)] == everything(count)
    again, _ = world.state.browse(Q, prefetch=500, selector=None)
    assert shown(world, again) == everything(count)
