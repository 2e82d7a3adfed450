# mypy: disable-error-code="arg-type"
"""Sends that wait for space and then fail: none of them is stored, and none of the others is lost or overtaken."""

from typing import Any

import pytest

from pybroker.broker.core import deferred_sends
from pybroker.broker.core.deferred_sends import DEFERRED_BYTES_MAX
from pybroker.broker.core.policy import DestinationPolicy, PolicyMap
from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.openwire.commands import (
    ActiveMQTextMessage,
    DataStructure,
    ExceptionResponse,
    MessageDispatch,
    ProducerAck,
    ProducerInfo,
    Response,
)
from pybroker.broker.domain.stomp.frames import StompLimits
from pybroker.transports.stomp.session import StompSession
from tests.timers import ManualTimers
from tests.unit.core.operators import ACTOR
from tests.unit.transports.openwire.conversation import NOW_MS, OpenWireClient, World, of_kind
from tests.unit.transports.openwire.test_transactions import begin
from tests.unit.transports.stomp.conftest import FakeLink

ORDERS, OTHER = queue("ORDERS"), queue("OTHER")
BIG = "x" * 600
"""One such message fills a queue."""


class Full:
    """A broker whose queue ORDERS is full, and where a send waits for five seconds."""

    def __init__(self, **policy: Any) -> None:
        details: dict[str, Any] = {"memory_limit": 1500, "send_fail_if_no_space_after_timeout": 5000} | policy
        self.world = World(policies=PolicyMap(default=DestinationPolicy(**details)))
        self.timers = ManualTimers()
        self.now = 100.0
        self.paging = self.world.broker.usage.paging
        self.paging.after, self.paging.monotonic = self.timers.after, lambda: self.now
        self.producer = self.world.client("p")
        self.consumer = self.world.client("c")
        self.producer.send(ORDERS, BIG)
        self.held: list[MessageDispatch] = []

    def send(self, text: str, producer: OpenWireClient | None = None, **details: Any) -> ActiveMQTextMessage:
        """Send a message that gets no answer now."""
        producer = producer or self.producer
        message = producer.message(details.pop("destination", ORDERS), text, **details)
        assert producer.request(message) == []
        return message

    def free(self) -> None:
        """Have the consumer take one message out of the queue."""
        held = self.held or self.consumer.consume(ORDERS, prefetch_size=1)
        self.held = of_kind(self.consumer.ack(held), MessageDispatch)

    def answers(self, producer: OpenWireClient | None = None) -> list[tuple[int, str]]:
        """Return the answers that have come: their command, and the exception."""
        return [
            (answer.correlation_id, _exception(answer))
            for answer in (producer or self.producer).receive()
            if isinstance(answer, (Response, ExceptionResponse))
        ]


def _exception(answer: DataStructure) -> str:
    exception = answer.exception if isinstance(answer, ExceptionResponse) else None
    return "" if exception is None else str(exception.class_name).rpartition(".")[2]


FAILED = "ResourceAllocationException"


@pytest.fixture
def full() -> Full:
    return Full()


@pytest.mark.parametrize("persistent", [True, False])
def test_send_without_space_is_stored_once_there_is(full: Full, persistent: bool) -> None:
    late = full.send("late", persistent=persistent)
    assert full.world.waiting(ORDERS) == [BIG]
    assert (full.timers.seconds, full.producer.link.holds) == ([5], 0)
    full.free()
    assert full.answers() == [(late.command_id, "")]
    assert full.world.waiting(ORDERS) == ["late"]
    assert full.timers.seconds == []
    full.timers.elapse()
    assert full.answers() == []


def test_send_fails_after_its_time_and_is_never_stored(full: Full) -> None:
    late = full.send("late")
    full.timers.elapse()
    assert full.answers() == [(late.command_id, FAILED)]
    full.free()
    assert full.world.waiting(ORDERS) == []
    again = full.producer.message(ORDERS, "again")
    assert [type(each) for each in full.producer.request(again)] == [Response]
    assert full.world.waiting(ORDERS) == ["again"]


def test_sends_of_a_producer_keep_their_order(full: Full) -> None:
    first, second = full.send(BIG + "1"), full.send("2")
    other = full.send("3", destination=OTHER)
    assert full.world.waiting(OTHER) == []
    full.free()
    assert full.answers() == [(first.command_id, "")]
    full.free()
    assert full.answers() == [(second.command_id, ""), (other.command_id, "")]
    assert full.world.waiting(ORDERS) == ["2"]
    assert full.world.waiting(OTHER) == ["3"]


def test_each_send_has_its_own_time(full: Full) -> None:
    first = full.send("1")
    full.now += 2
    second = full.send("2")
    full.now += 3
    full.timers.elapse()
    assert full.answers() == [(first.command_id, FAILED)]
    assert full.timers.seconds == [2]
    full.now += 2
    full.timers.elapse()
    assert full.answers() == [(second.command_id, FAILED)]
    assert full.world.waiting(ORDERS) == [BIG]


def test_another_producer_and_the_rest_of_the_connection_go_on(full: Full) -> None:
    full.send("late")
    full.producer.open_session(2)
    other = full.producer.message(OTHER, "other", producer_id=full.producer.producer(2))
    assert [type(each) for each in full.producer.request(other)] == [Response]
    held = full.producer.consume(ORDERS, prefetch_size=1)
    received = full.producer.ack(held)
    assert len(of_kind(received, Response)) == 1
    assert full.world.waiting(ORDERS) == ["late"]


def test_window_waits_as_long_as_it_takes(full: Full) -> None:
    producer = full.producer
    producer.answer(ProducerInfo(producer_id=producer.producer(1, 2), window_size=5000), Response)
    full.send("late", producer_id=producer.producer(1, 2), response_required=False)
    full.timers.elapse()
    assert producer.receive() == []
    assert full.world.waiting(ORDERS) == [BIG, "late"]
    full.free()
    assert [type(each) for each in producer.receive()] == [ProducerAck]


def test_send_without_an_answer_keeps_its_place(full: Full) -> None:
    first = full.send("1")
    full.send("2", response_required=False)
    full.timers.elapse()
    assert full.answers() == [(first.command_id, FAILED)]
    assert full.world.waiting(ORDERS) == [BIG, "2"]


def test_transaction_waits_as_without_the_policy(full: Full) -> None:
    full.send("late", transaction_id=begin(full.producer))
    assert full.timers.seconds == []


@pytest.mark.parametrize("ends", ["connection", "producer"])
def test_end_while_a_send_waits_stores_nothing(full: Full, ends: str) -> None:
    late = full.send("late")
    if ends == "connection":
        full.producer.session.lost()
        full.free()
    else:
        full.producer.remove(full.producer.producer())
        full.free()
        assert full.answers() == [(late.command_id, "IllegalStateException")]
    assert full.paging.deferred_bytes == 0
    usage = full.world.broker.queues[ORDERS].usage
    assert not usage._waiting
    assert full.timers.seconds == []
    assert full.world.waiting(ORDERS) == []


def test_send_that_waited_at_a_failover_is_stored_when_it_is_repeated(full: Full) -> None:
    full.send("late")
    full.producer.session.lost()
    full.free()
    after = full.world.client("p", failover_reconnect=True)
    after.sent = 1
    assert [type(each) for each in after.send(ORDERS, "late")] == [Response]
    assert full.world.waiting(ORDERS) == ["late"]


def test_stall_does_not_end_the_wait(full: Full) -> None:
    late = full.send("late")
    for _ in range(3):
        full.world.broker.resume_stalled()
    assert full.answers() == []
    assert full.world.waiting(ORDERS) == [BIG]
    full.timers.elapse()
    assert full.answers() == [(late.command_id, FAILED)]


def test_deleted_queue_is_created_again_for_what_waits(full: Full) -> None:
    late = full.send("late")
    full.world.broker.operations.delete(ORDERS, ACTOR, lambda: None)
    assert full.answers() == [(late.command_id, "")]
    assert full.world.waiting(ORDERS) == ["late"]


def test_too_much_that_waits_is_refused_at_once(full: Full) -> None:
    first, second = full.send("y" * DEFERRED_BYTES_MAX), full.producer.message(ORDERS, "2")
    assert full.producer.refused(second)[0].endswith(FAILED)
    full.timers.elapse()
    assert full.answers() == [(first.command_id, FAILED)]


def test_too_much_of_all_producers_is_refused_at_once(full: Full, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferred_sends, "DEFERRED_BYTES_IN_ALL_MAX", 3000)
    first, other = full.send(BIG), full.world.client("other")
    assert other.refused(other.message(ORDERS, BIG))[0].endswith(FAILED)
    full.timers.elapse()
    assert full.answers() == [(first.command_id, FAILED)]
    assert full.paging.deferred_bytes == 0
    second = full.send(BIG, other)
    full.free()
    assert full.answers(other) == [(second.command_id, "")]
    assert full.paging.deferred_bytes == 0


def test_policy_is_of_the_queue_alone() -> None:
    full = Full(send_fail_if_no_space_after_timeout=0)
    full.send("late")
    assert full.timers.seconds == []
    assert full.world.waiting(ORDERS) == [BIG, "late"]


# ---------------------------------------------------------------- STOMP


class StompPeer:
    """A STOMP client of the same broker."""

    def __init__(self, full: Full) -> None:
        self.link = FakeLink()
        self.link.session = StompSession(
            broker=full.world.broker,
            link=self.link,
            connection_id="ID:s1",
            limits=StompLimits(),
            clock=lambda: NOW_MS,
        )
        self.ask("CONNECT\naccept-version:1.2\nhost:x\n\n")

    def ask(self, *frames: str) -> list[str]:
        """Send frames; return the commands that came, with receipt or body."""
        self.link.session.receive("".join(f"{frame}\0" for frame in frames).encode())
        return self.receive()

    def receive(self) -> list[str]:
        found = [frame.lstrip("\n") for frame in self.link.output.decode().split("\0")]
        self.link.output.clear()
        return [_short(frame) for frame in found if frame]


def _short(frame: str) -> str:
    command, *headers = frame.partition("\n\n")[0].split("\n")
    if command == "MESSAGE":
        return frame.partition("\n\n")[2]
    receipts = [each.partition(":")[2] for each in headers if each.startswith("receipt-id:")]
    return " ".join((command, *receipts))


def _sent(body: str, receipt: str = "", to: str = "ORDERS") -> str:
    return f"SEND\ndestination:/queue/{to}\npersistent:true\n{f'receipt:{receipt}' if receipt else 'x:y'}\n\n{body}"


def test_stomp_send_waits_and_its_receipt_comes_with_space(full: Full) -> None:
    peer = StompPeer(full)
    assert peer.ask(_sent("late", "1"), _sent("other", "2", "OTHER")) == ["RECEIPT 2"]
    assert full.world.waiting(ORDERS) == [BIG]
    full.free()
    assert peer.receive() == ["RECEIPT 1"]
    assert full.world.waiting(ORDERS) == ["late"]


def test_stomp_send_gets_an_error_after_its_time(full: Full) -> None:
    peer = StompPeer(full)
    assert peer.ask(_sent("late", "1"), _sent("behind", "2"), _sent("unanswered")) == []
    full.now += 5
    full.timers.elapse()
    assert peer.receive() == ["ERROR 1"]
    full.free()
    assert peer.receive() == ["RECEIPT 2"]
    assert full.world.waiting(ORDERS) == ["behind", "unanswered"]
    assert not peer.link.closed


def test_stomp_messages_do_not_wait_behind_the_receipt(full: Full) -> None:
    peer = StompPeer(full)
    assert peer.ask("SUBSCRIBE\nid:1\ndestination:/queue/OTHER\n\n", _sent("late", "1")) == []
    full.world.client("q").send(OTHER, "other")
    assert peer.receive() == ["other"]


def test_stomp_disconnect_answers_what_waits_before_its_receipt(full: Full) -> None:
    peer = StompPeer(full)
    answers = peer.ask(_sent("late", "1"), _sent("unanswered"), "DISCONNECT\nreceipt:bye\n\n")
    assert answers == ["ERROR 1", "RECEIPT bye"]
    assert full.timers.seconds == []
    assert full.world.waiting(ORDERS) == [BIG, "unanswered"]


def test_stomp_connection_that_is_lost_sends_nothing_later(full: Full) -> None:
    peer = StompPeer(full)
    assert peer.ask(_sent("late", "1")) == []
    peer.link.session.lost()
    full.free()
    assert full.world.waiting(ORDERS) == []
    assert full.timers.seconds == []
