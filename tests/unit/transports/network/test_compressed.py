"""Bodies that are compressed on their way over a bridge, in order, and nothing that is lost by it."""

import zlib
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.errors import BrokerError, LockNotHeld, MalformedData, StoreUnavailable
from pybroker.broker.domain.openwire.body import decode_text, inflate
from pybroker.broker.domain.openwire.commands import MessageDispatch
from pybroker.transports.network.compressed_output import AT_ONCE_BYTES_MAX, CompressedOutput
from pybroker.transports.network.forwarding_half import ForwardingHalf
from tests.compiled import interpreted
from tests.unit.transports.network.bridges import TwoBrokers
from tests.unit.transports.network.test_bridge import waiting
from tests.unit.transports.openwire.conversation import FakeLink, OpenWireClient, of_kind, texts

Q, DLQ = queue("Q"), queue("ActiveMQ.DLQ")
SMALL, LARGE = "again and again " * 100, "large and larger " * (AT_ONCE_BYTES_MAX // 10)


def bodies(client: OpenWireClient) -> list[tuple[str, bool]]:
    """Return the texts that a client has got, and whether each came compressed; acknowledge them."""
    found: list[tuple[str, bool]] = []
    for each in of_kind(client.receive(), MessageDispatch):
        assert each.message is not None
        content = each.message.content or b""
        is_compressed = each.message.compressed
        found.append((decode_text(inflate(content) if is_compressed else content), is_compressed))
        client.ack([each])
    return found


def dead_letters(bridge: "Compressing") -> list[str | None]:
    """Return the texts of the dead letters of the near broker."""
    return texts(bridge.brokers.client(bridge.brokers.near.broker, "d").consume(DLQ))


class Thread:
    """The thread of a link, whose work ends when the test says so."""

    def __init__(self) -> None:
        self.work: list[tuple[Callable[[], None], Callable[[], None]]] = []

    def run(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        self.work.append((work, done))

    def finish(self) -> None:
        work, done = self.work.pop(0)
        work()
        done()


class Compressing:
    """A bridge that compresses, with a consumer at the far broker."""

    def __init__(self, **attributes: Any) -> None:
        self.brokers = TwoBrokers(use_compression=True, **attributes)
        self.thread = Thread()
        self.brokers.link.in_thread = self.thread.run  # type: ignore[method-assign]
        self.producer = self.brokers.client(self.brokers.near.broker, "p")
        self.reader = self.brokers.client(self.brokers.far, "c")
        self.reader.consume(Q)
        self.brokers.pump()

    def send(self, *bodies: str, **details: Any) -> None:
        self.producer.send(Q, *bodies, **details)
        self.brokers.pump()


def test_body_is_compressed_on_its_way() -> None:
    bridge = Compressing()
    bridge.send(SMALL, "x")
    assert bodies(bridge.reader) == [(SMALL, True), ("x", False)]


def test_backlog_of_the_store_is_compressed() -> None:
    bridge = Compressing()
    bridge.brokers.cut()
    bridge.producer.send(Q, SMALL, persistent=True)
    bridge.brokers.connect(use_compression=True)
    assert bodies(bridge.reader) == [(SMALL, True)]
    assert waiting(bridge.brokers) == 0


def test_duplex_bridge_compresses_both_ways() -> None:
    bridge = Compressing(duplex=True)
    reader = bridge.brokers.client(bridge.brokers.near.broker, "other")
    reader.consume(queue("BACK"))
    bridge.brokers.pump()
    bridge.brokers.client(bridge.brokers.far, "p").send(queue("BACK"), SMALL)
    bridge.brokers.pump()
    assert bodies(reader) == [(SMALL, True)]


def test_large_bodies_keep_their_order() -> None:
    bridge = Compressing(always_sync_send=False)
    bridge.send("1", LARGE, SMALL, LARGE, "2")
    assert bodies(bridge.reader) == [("1", False)]
    while bridge.thread.work:
        bridge.thread.finish()
        bridge.brokers.pump()
    assert [each for each, _ in bodies(bridge.reader)] == [LARGE, SMALL, LARGE, "2"]
    assert waiting(bridge.brokers) == 0


def test_few_messages_are_taken_while_a_large_body_is_compressed() -> None:
    bridge = Compressing()
    for _ in range(10):
        bridge.producer.send(Q, LARGE)
    bridge.brokers.pump()
    assert bridge.brokers.session.sent_count == 1
    assert len(bridge.thread.work) == 1
    bridge.brokers.session.written()  # something else has left
    assert bridge.brokers.session.sent_count == 1


def test_large_message_is_not_lost_with_the_bridge() -> None:
    bridge = Compressing(always_sync_send=False)
    bridge.send(LARGE, "2")
    assert waiting(bridge.brokers) == 2, "none was sent, so none is acknowledged"
    bridge.brokers.cut()
    bridge.thread.finish()
    assert not bridge.thread.work
    bridge.brokers.connect(use_compression=True)
    assert [each for each, _ in bodies(bridge.reader)] == [LARGE, "2"]


@pytest.mark.parametrize("size", [8, AT_ONCE_BYTES_MAX + 1])
def test_message_that_does_not_decode_goes_as_it_is(size: int, caplog: pytest.LogCaptureFixture) -> None:
    link, thread, written, failed = FakeLink(), Thread(), Mock(), Mock()
    link.in_thread = thread.run  # type: ignore[method-assign]
    data = b"\x01" * size
    CompressedOutput(link, written, pause=Mock(), on_error=failed).send(data, failed)
    while thread.work:
        thread.finish()
    written.assert_called_once_with(data)
    failed.assert_not_called()
    assert "without compression" in caplog.text


@pytest.mark.parametrize("error", [MemoryError("no memory"), zlib.error("no stream")])
def test_message_goes_as_it_is_if_its_compression_fails(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    bridge = Compressing()
    with monkeypatch.context() as patch:
        patch.setattr(zlib, "compress", Mock(side_effect=error))
        bridge.send(LARGE)
        bridge.thread.finish()
    bridge.brokers.pump()
    bridge.send("2")
    assert [each for each, _ in bodies(bridge.reader)] == [LARGE, "2"]


@pytest.fixture(params=[MalformedData("it does not decode"), ValueError("a mistake")])
def refusing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each message without the text `small` one that cannot be written."""
    write: Any = ForwardingHalf._write_encoded

    def failing(self: ForwardingHalf, data: bytes) -> None:
        if b"small" not in data:
            raise request.param
        write(self, data)

    monkeypatch.setattr(ForwardingHalf, "_write_encoded", failing)


@interpreted
@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize("always_sync_send", [True, False])
@pytest.mark.parametrize("persistent", [True, False])
def test_large_message_that_cannot_be_written_becomes_a_dead_letter(always_sync_send: bool, persistent: bool) -> None:
    """The bridge goes on with what is behind it; ended for it, each later bridge would end for it as well."""
    bridge = Compressing(always_sync_send=always_sync_send)
    bridge.send(LARGE, "small 1", persistent=persistent)
    bridge.thread.finish()
    bridge.brokers.pump()
    bridge.send("small 2")
    session = bridge.brokers.session
    assert (session.end, session.sent_count, session.forwarded_count) == (None, 2, 2)
    assert [each for each, _ in bodies(bridge.reader)] == ["small 1", "small 2"]
    assert waiting(bridge.brokers) == 0
    assert dead_letters(bridge) == [LARGE] * persistent


@interpreted
@pytest.mark.usefixtures("refusing")
def test_window_is_free_after_the_only_message_could_not_be_written() -> None:
    bridge = Compressing(prefetch_size=1)
    bridge.send(LARGE)
    bridge.thread.finish()
    bridge.brokers.pump()
    bridge.send("small")
    assert [each for each, _ in bodies(bridge.reader)] == ["small"]


@interpreted
@pytest.mark.usefixtures("refusing")
def test_each_copy_of_a_large_topic_message_is_given_up() -> None:
    bridge = Compressing()
    bridge.reader.consume(topic("T.>"), 2)
    bridge.reader.consume(topic("T.1"), 3, subscription_name="durable")
    bridge.brokers.pump()
    bridge.producer.send(topic("T.1"), LARGE, persistent=True)
    bridge.brokers.pump()
    while bridge.thread.work:
        bridge.thread.finish()
        bridge.brokers.pump()
    assert not any(each.outstanding for each in bridge.brokers.session.demand_rows())
    assert dead_letters(bridge) == [LARGE]


@pytest.mark.parametrize("error", [StoreUnavailable("the disk has failed"), LockNotHeld("the lock is lost")])
def test_error_of_the_broker_ends_the_bridge(error: BrokerError) -> None:
    link, thread, failed, ended = FakeLink(), Thread(), Mock(), Mock()
    link.in_thread = thread.run  # type: ignore[method-assign]
    refused = Mock(side_effect=error)
    CompressedOutput(link, refused, pause=Mock(), on_error=ended).send(b"\x01" * (AT_ONCE_BYTES_MAX + 1), failed)
    thread.finish()
    ended.assert_called_once_with(error)
    failed.assert_not_called()
