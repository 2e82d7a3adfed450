"""Requests of a connected client, and their answers."""

from typing import Any

import pytest

from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.errors import MalformedData
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.stomp.frames import StompLimits
from pybroker.broker.domain.subscription import ConsumerRequest
from pybroker.transports.stomp.mapping import MessageWriter
from tests.compiled import interpreted

RECEIPT = "RECEIPT\nreceipt-id:r\n\n"


def message_of(error: str) -> str:
    assert error.startswith("ERROR\n"), error
    return error.split("message:")[1].split("\n")[0]


def send(peer: Any, body: str, destination: str = "/queue/q", headers: str = "") -> list[str]:
    return peer.send(f"SEND\ndestination:{destination}\n{headers}\n{body}^")


def bodies(frames: list[str]) -> list[str]:
    return [frame.partition("\n\n")[2] for frame in frames if frame.startswith("MESSAGE")]


def header(frame: str, name: str) -> str:
    return frame.split(f"\n{name}:")[1].split("\n")[0]


# ---------------------------------------------------------------- receipts


@pytest.mark.parametrize(
    ("frame", "waits"),
    [
        ("SEND\ndestination:/queue/q\n", False),
        ("SEND\ndestination:/queue/q\npersistent:true\n", True),
        ("SUBSCRIBE\nid:2\ndestination:/queue/q\n", False),
        ("SUBSCRIBE\nid:2\ndestination:/topic/t\nactivemq.subscriptionName:n\n", True),
        ("UNSUBSCRIBE\nid:1\n", False),
        ("UNSUBSCRIBE\nid:1\nactivemq.subscriptionName:old\n", True),
        ("ACK\nid:ID\\chost-1-1\\c1\\c1\n", True),
        ("NACK\nid:ID\\chost-1-1\\c1\\c1\n", True),
        ("BEGIN\ntransaction:u\n", False),
        ("COMMIT\ntransaction:t\n", True),
        ("ABORT\ntransaction:t\n", False),
    ],
)
def test_receipt_for_what_must_last_waits_for_the_disk(connect: Any, broker: Any, frame: str, waits: bool) -> None:
    peer = connect()
    broker.durables.add(("ID:host-1-1", "old"))
    peer.send("SUBSCRIBE\nid:1\ndestination:/queue/a\nack:client\n\n^", "BEGIN\ntransaction:t\n\n^")
    send(peer, "x", "/queue/a")
    broker.disk_is_slow = True
    answers = peer.send(f"{frame}receipt:r\n\n^")
    assert answers == ([] if waits else [RECEIPT])
    broker.sync()
    assert peer.receive() == ([RECEIPT] if waits else [])


@pytest.mark.parametrize("header", ["", "persistent:true\n"])
@pytest.mark.parametrize("forced", [True, False])
def test_receipt_follows_the_forced_delivery_mode(connect: Any, broker: Any, forced: bool, header: str) -> None:
    broker.persistency = forced
    peer = connect()
    broker.disk_is_slow = True
    answers = peer.send(f"SEND\ndestination:/queue/q\n{header}receipt:r\n\n^")
    assert answers == ([] if forced else [RECEIPT])
    broker.sync()
    assert peer.receive() == ([RECEIPT] if forced else [])


@pytest.mark.parametrize("frame", ["UNSUBSCRIBE\nid:1\n", "ABORT\ntransaction:t\n"])
def test_receipt_for_what_takes_many_turns_waits_for_its_end(connect: Any, broker: Any, frame: str) -> None:
    peer = connect()
    peer.send("SUBSCRIBE\nid:1\ndestination:/queue/a\nack:client\n\n^", "BEGIN\ntransaction:t\n\n^")
    broker.is_working = True
    assert peer.send(f"{frame}receipt:r\n\n^") == []
    broker.sync()
    assert peer.receive() == [RECEIPT]


def test_empty_receipt_is_a_receipt(connect: Any) -> None:
    assert send(connect(), "x", headers="receipt:\n") == ["RECEIPT\nreceipt-id:\n\n"]


def test_a_receipt_that_waits_for_space_delays_no_message(connect: Any, broker: Any) -> None:
    peer = connect()
    peer.send("SUBSCRIBE\nid:1\ndestination:/queue/q\nack:client\n\n^")
    [connection] = broker.connections
    connection.is_short_of_space = True
    answers = send(peer, "x", headers="receipt:r\n")
    assert bodies(answers) == ["x"]
    assert RECEIPT not in answers
    connection.is_short_of_space = False
    for callback in connection.waiting_for_space:
        callback()
    assert peer.receive() == [RECEIPT]


def test_receipt_precedes_what_the_command_delivers(connect: Any) -> None:
    peer = connect()
    send(peer, "0")
    send(peer, "1")
    subscribe = "SUBSCRIBE\nid:1\ndestination:/queue/q\nack:client\nactivemq.prefetchSize:1\nreceipt:r\n\n^"
    answers = peer.send(subscribe)
    assert answers[0] == RECEIPT
    assert bodies(answers) == ["0"]
    answers = peer.send(f"ACK\nid:{header(answers[1], 'ack')}\nreceipt:r\n\n^")
    assert answers[0] == RECEIPT
    assert bodies(answers) == ["1"]


@pytest.mark.parametrize("command", ["SUBSCRIBE", "ACK"])
def test_a_window_behind_a_receipt_is_delivered_piece_by_piece(connect: Any, broker: Any, command: str) -> None:
    """100 messages of 100 kB: as much as the outbox holds, then as much as the link accepts, and no more."""
    peer = connect()
    peer.send("SUBSCRIBE\nid:0\ndestination:/queue/q\nack:client\nactivemq.prefetchSize:1\n\n^")
    [first] = send(peer, "first")
    for _ in range(100):
        send(peer, "x" * 100_000, destination="/queue/large")
        send(peer, "x" * 100_000)
    [consumer] = broker.all_consumers()
    consumer.request = ConsumerRequest(destination=queue("q"), prefetch=100_000)
    peer.link.write_paused_beyond = 1 << 20
    broker.disk_is_slow = True
    if command == "ACK":
        frame = f"ACK\nid:{header(first, 'ack')}\nreceipt:r\n\n^"
    else:
        frame = "SUBSCRIBE\nid:1\ndestination:/queue/large\nack:client\nactivemq.prefetchSize:100000\nreceipt:r\n\n^"
    answers = peer.send(frame)
    broker.sync()
    answers += peer.receive()
    assert answers[0] == RECEIPT
    assert 10 <= len(bodies(answers)) <= 12
    delivered = len(bodies(answers))
    while answers := peer.flush():
        assert len(bodies(answers)) <= 11
        delivered += len(bodies(answers))
    assert delivered >= 100


def test_durable_subscription_starts_after_its_receipt(connect: Any, broker: Any) -> None:
    peer = connect()
    broker.disk_is_slow = True
    peer.send("SUBSCRIBE\nid:1\ndestination:/topic/t\nactivemq.subscriptionName:n\nreceipt:r\n\n^")
    assert not broker.all_consumers()[0].started
    broker.sync()
    assert broker.all_consumers()[0].started
    assert peer.receive() == [RECEIPT]


def test_subscription_ended_before_its_receipt_is_not_started(connect: Any, broker: Any) -> None:
    peer = connect()
    broker.disk_is_slow = True
    peer.send(
        "SUBSCRIBE\nid:1\ndestination:/topic/t\nactivemq.subscriptionName:n\nreceipt:r\n\n^", "UNSUBSCRIBE\nid:1\n\n^"
    )
    broker.sync()
    assert peer.receive() == [RECEIPT]


# ---------------------------------------------------------------- SUBSCRIBE, UNSUBSCRIBE


def test_options_reach_the_core(connect: Any, broker: Any) -> None:
    connect().send(
        "SUBSCRIBE\nid:1\ndestination:/queue/q.>\nselector:n > 5\nactivemq.prefetchSize:7\nactivemq.exclusive:true\n"
        "activemq.priority:-5\nactivemq.noLocal:TRUE\nactivemq.retroactive:true\n"
        "activemq.maximumPendingMessageLimit:9\n\n^"
    )
    assert broker.all_consumers()[0].request == ConsumerRequest(
        destination=queue("q.>"),
        prefetch=7,
        selector="convert_string_expressions:n > 5",
        no_local=True,
        exclusive=True,
        priority=-5,
        retroactive=True,
        pending_limit=9,
    )


def test_exact_selector_is_passed_as_it_is(connect: Any, broker: Any) -> None:
    connect().send("SUBSCRIBE\nid:1\ndestination:/queue/q\nselector:a = 1\nactivemq.selector:b = 2\n\n^")
    assert broker.all_consumers()[0].request.selector == "b = 2"


@pytest.mark.parametrize("value", ["x", "-1", "", "99999999999", "٣"])
def test_option_that_cannot_be_read_is_left_out_and_logged(
    connect: Any, broker: Any, caplog: pytest.LogCaptureFixture, value: str
) -> None:
    connect().send(f"SUBSCRIBE\nid:1\ndestination:/queue/q\nactivemq.prefetchSize:{value}\nselector: \n\n^")
    assert broker.all_consumers()[0].request == ConsumerRequest(destination=queue("q"))
    assert "activemq.prefetchSize" in caplog.text


@pytest.mark.parametrize(
    ("version", "frame", "message"),
    [
        ("1.2", "SUBSCRIBE\ndestination:/queue/q\n", "SUBSCRIBE received without a subscription id!"),
        ("1.2", "SUBSCRIBE\nid:1\n", "Invalid empty or 'null' Destination header"),
        ("1.0", "SUBSCRIBE\n", "Invalid empty or 'null' Destination header"),
        (
            "1.0",
            "SUBSCRIBE\ndestination:/queue/q\nbrowser:true\n",
            "Queue Browser feature only valid for Stomp v1.1+ clients!",
        ),
        (
            "1.2",
            "SUBSCRIBE\nid:1\ndestination:/queue/q\nactivemq.subscriptionName:n\n",
            "Invalid Subscription\\c cannot durably subscribe to a Queue destination!",
        ),
        ("1.1", "UNSUBSCRIBE\n", "UNSUBSCRIBE received without a subscription id!"),
        ("1.0", "UNSUBSCRIBE\n", "Must specify the subscriptionId or the destination you are unsubscribing from"),
        ("1.2", "UNSUBSCRIBE\nid:9\n", "No subscription matched."),
        ("1.0", "UNSUBSCRIBE\ndestination:/queue/q\n", "No subscription matched."),
        ("1.2", "ACK\n", "ACK received without a ack id for acknowledge!"),
        ("1.2", "NACK\n", "NACK received without an ack header to acknowledge!"),
        ("1.2", "ACK\nid:ID\\chost-1-1\\c1\\c1\n", "Unexpected ACK received for message-id [null]"),
        ("1.2", "NACK\nid:x\n", "Unexpected NACK received for message-id [null]"),
        ("1.1", "ACK\nsubscription:1\n", "ACK received without a message-id to acknowledge!"),
        ("1.1", "ACK\nmessage-id:m\n", "ACK received without a subscription id for acknowledge!"),
        ("1.1", "ACK\nmessage-id:m\nsubscription:1\n", "Unexpected ACK received for message-id [m]"),
        ("1.0", "ACK\nmessage-id:m\n", "Unexpected ACK received for message-id [m]"),
        ("1.0", "NACK\nmessage-id:m\n", "NACK received but connection is in v1.0 mode."),
        ("1.2", "BEGIN\n", "Must specify the transaction you are beginning"),
        ("1.2", "COMMIT\n", "Must specify the transaction you are committing"),
        ("1.2", "ABORT\n", "Must specify the transaction you are committing"),
        ("1.2", "COMMIT\ntransaction:t\n", "Invalid transaction id\\c t"),
        ("1.2", "SEND\ndestination:/queue/q\ntransaction:t\n", "Invalid transaction id\\c t"),
        ("1.2", "ACK\nid:x\ntransaction:t\n", "Invalid transaction id\\c t"),
        ("1.2", "SEND\n", "SEND received without a Destination specified!"),
        ("1.2", "SEND\ndestination:/queue/q\nexpires:soon\n", "Invalid expires header\\c soon"),
    ],
)
def test_refused_frame_gets_an_error_and_no_receipt(
    connect: Any, broker: Any, version: str, frame: str, message: str
) -> None:
    peer = connect(version)
    [answer] = peer.send(f"{frame}receipt:r\n\n^")
    assert message_of(answer).replace("\\c", ":") == message.replace("\\c", ":")
    assert header(answer, "receipt-id") == "r"
    assert header(answer, "content-type") == "text/plain"
    assert not peer.link.closed
    assert broker.received == []
    assert broker.all_consumers() == []


def test_second_subscription_of_an_id_takes_the_id_over(connect: Any, broker: Any) -> None:
    peer = connect()
    peer.send("SUBSCRIBE\nid:1\ndestination:/queue/a\n\n^", "SUBSCRIBE\nid:1\ndestination:/queue/b\n\n^")
    assert peer.send("UNSUBSCRIBE\nid:1\nreceipt:r\n\n^") == [RECEIPT]
    assert [consumer.request.destination for consumer in broker.all_consumers()] == [queue("a")]
    assert message_of(peer.send("UNSUBSCRIBE\nid:1\n\n^")[0]) == "No subscription matched."


def test_subscription_is_ended_by_destination_in_1_0(connect: Any, broker: Any) -> None:
    peer = connect("1.0")
    peer.send("SUBSCRIBE\ndestination:/queue/a\n\n^", "SUBSCRIBE\ndestination:/queue/b\n\n^")
    peer.send("UNSUBSCRIBE\ndestination:/queue/b\n\n^")
    assert [consumer.request.destination for consumer in broker.all_consumers()] == [queue("a")]


def test_durable_subscription_is_removed_by_name_also_in_1_0(connect: Any, broker: Any) -> None:
    peer = connect("1.0", headers="client-id:c\n")
    broker.durables.add(("c", "n"))
    assert peer.send("UNSUBSCRIBE\nid:1\nactivemq.subscriptionName:n\nreceipt:r\n\n^") == [RECEIPT]
    assert broker.durables == set()


def test_number_of_subscriptions_and_transactions_is_limited(connect: Any) -> None:
    peer = connect(limits=StompLimits(subscriptions=1, transactions=1))
    for frame in ("SUBSCRIBE\nid:{}\ndestination:/queue/q\n", "BEGIN\ntransaction:{}\n"):
        assert peer.send(f"{frame.format(1)}receipt:r\n\n^") == [RECEIPT]
        assert message_of(peer.send(f"{frame.format(2)}\n^")[0]).startswith("A connection may have 1 ")


def test_refused_subscription_leaves_nothing_behind(connect: Any, broker: Any) -> None:
    peer = connect()
    frame = "SUBSCRIBE\nid:{}\ndestination:/topic/t\nactivemq.subscriptionName:n\n\n^"
    peer.send(frame.format(1))
    assert message_of(peer.send(frame.format(2))[0]).startswith("Durable consumer is in use")
    assert message_of(peer.send("UNSUBSCRIBE\nid:2\n\n^")[0]) == "No subscription matched."
    assert len(broker.all_consumers()) == 1


def test_browser_sees_the_end_and_cannot_refuse(connect: Any) -> None:
    peer = connect("1.1")
    answers = peer.send("SUBSCRIBE\nid:1\ndestination:/queue/q\nbrowser:true\nack:client\nreceipt:r\n\n^")
    assert answers[0] == RECEIPT
    assert header(answers[1], "browser") == "end"
    assert header(answers[1], "message-id") == "0"


# ---------------------------------------------------------------- acknowledgements


def test_auto_is_acknowledged_when_the_bytes_have_left(connect: Any, broker: Any) -> None:
    peer = connect()
    peer.send("SUBSCRIBE\nid:1\ndestination:/queue/q\nactivemq.prefetchSize:2\n\n^")
    assert bodies(send(peer, "0") + send(peer, "1") + send(peer, "2")) == ["0", "1"]
    assert broker.acknowledged == []
    assert bodies(peer.flush()) == ["2"]
    assert broker.acknowledged == ["ID:host-1-1:-1:1:1", "ID:host-1-1:-1:1:2"]
    peer.flush()
    assert broker.acknowledged == [f"ID:host-1-1:-1:1:{number}" for number in (1, 2, 3)]


def test_auto_that_has_not_left_is_delivered_again(connect: Any, broker: Any) -> None:
    peer = connect()
    peer.send("SUBSCRIBE\nid:1\ndestination:/queue/q\nreceipt:s\n\n^")
    send(peer, "0")
    peer.session.lost()
    assert broker.acknowledged == []
    answers = connect().send("SUBSCRIBE\nid:1\ndestination:/queue/q\n\n^")
    assert header(answers[0], "redelivered") == "true"


def test_auto_cannot_be_acknowledged(connect: Any) -> None:
    peer = connect("1.1")
    peer.send("SUBSCRIBE\nid:1\ndestination:/queue/q\nack:whatever\n\n^")
    [frame] = send(peer, "0")
    answers = peer.send(f"ACK\nsubscription:1\nmessage-id:{header(frame, 'message-id')}\n\n^")
    assert message_of(answers[0]).startswith("Unexpected ACK received")


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize(("mode", "acknowledged"), [("client", [1, 2]), ("client-individual", [2])])
def test_client_acknowledges(connect: Any, broker: Any, version: str, mode: str, acknowledged: list[int]) -> None:
    peer = connect(version)
    peer.send(f"SUBSCRIBE\nid:1\ndestination:/queue/q\nack:{mode}\n\n^")
    frames = [send(peer, str(number))[0] for number in range(3)]
    name = {
        "1.0": f"message-id:{{}}{header(frames[1], 'message-id')}",
        "1.1": f"subscription:1\nmessage-id:{header(frames[1], 'message-id')}",
        "1.2": f"id:{header(frames[1], 'ack') if version == '1.2' else ''}",
    }[version].format("")
    assert peer.send(f"ACK\n{name}\nreceipt:r\n\n^") == [RECEIPT]
    assert broker.acknowledged == [f"ID:host-1-1:-1:1:{number}" for number in acknowledged]
    assert message_of(peer.send(f"ACK\n{name}\nreceipt:r\n\n^")[0]).startswith("Unexpected ACK received")


def test_refused_message_leaves_the_others(connect: Any, broker: Any) -> None:
    peer = connect()
    peer.send("SUBSCRIBE\nid:1\ndestination:/queue/q\nack:client\n\n^")
    frames = [send(peer, str(number))[0] for number in range(3)]
    assert peer.send(f"NACK\nid:{header(frames[1], 'ack')}\nreceipt:r\n\n^") == [RECEIPT]
    assert [message_id for message_id, _ in broker.rejected] == ["ID:host-1-1:-1:1:2"]
    assert peer.send(f"ACK\nid:{header(frames[2], 'ack')}\nreceipt:r\n\n^") == [RECEIPT]
    assert broker.acknowledged == ["ID:host-1-1:-1:1:1", "ID:host-1-1:-1:1:3"]


def test_ack_of_an_ended_subscription_has_no_effect(connect: Any, broker: Any) -> None:
    peer = connect()
    peer.send("SUBSCRIBE\nid:1\ndestination:/queue/q\nack:client\n\n^")
    [frame] = send(peer, "0")
    peer.send("UNSUBSCRIBE\nid:1\n\n^")
    for command in ("ACK", "NACK"):
        assert peer.send(f"{command}\nid:{header(frame, 'ack')}\nreceipt:r\n\n^") == [RECEIPT]
    assert (broker.acknowledged, broker.rejected) == ([], [])


def test_browsers_message_cannot_be_refused(connect: Any, broker: Any) -> None:
    peer = connect("1.1")
    peer.send("SUBSCRIBE\nid:1\ndestination:/queue/q\nbrowser:true\nack:client\n\n^")
    send(peer, "0")
    broker.all_consumers()[0].offer(broker.queues[queue("q")][0])
    [frame] = peer.receive()
    answers = peer.send(f"NACK\nsubscription:1\nmessage-id:{header(frame, 'message-id')}\n\n^")
    assert message_of(answers[0]) == "Cannot Nack a message on a Queue Browser Subscription."


def test_unrenderable_message_is_rejected_after_the_dispatch(connect: Any, broker: Any) -> None:
    for mode in ("auto", "client"):
        peer = connect()
        peer.send(f"SUBSCRIBE\nid:1\ndestination:/queue/{mode}\nack:{mode}\n\n^")
        broker.route(Message(message_id=mode, destination=queue(mode), data=b"\x17nonsense", persistent=True))
        assert message_of(peer.receive()[0]).startswith(mode)
        assert mode not in dict(broker.rejected)
        peer.session.written()
        assert "cannot be rendered" in dict(broker.rejected)[mode]


@interpreted
@pytest.mark.parametrize(("error", "has_traceback"), [(KeyError("x"), True), (MalformedData("x"), False)])
def test_unexpected_error_of_rendering_has_a_traceback(
    connect: Any,
    broker: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    has_traceback: bool,
) -> None:
    def write(*_: object) -> None:
        raise error

    peer = connect()
    peer.send("SUBSCRIBE\nid:1\ndestination:/queue/q\n\n^")
    monkeypatch.setattr(MessageWriter, "write", write)
    broker.route(unwritable("q", "m"))
    (record,) = [each for each in caplog.records if "cannot be rendered" in each.message]
    assert (record.exc_info is not None) is has_traceback


def unwritable(name: str, message_id: str) -> Message:
    return Message(message_id=message_id, destination=queue(name), data=b"\x17nonsense", persistent=True)


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_unrenderable_message_is_not_acknowledged_with_later(connect: Any, broker: Any, version: str) -> None:
    peer = connect(version)
    for mode in ("auto", "client"):
        peer.send(f"SUBSCRIBE\nid:{mode}\ndestination:/queue/{mode}\nack:{mode}\n\n^")
    for name in ("auto", "client"):
        broker.route(unwritable(name, name))
        send(peer, "good", destination=f"/queue/{name}")
    peer.session.written()
    assert [message_id for message_id, _ in broker.rejected] == ["auto", "client"]
    assert broker.acknowledged == ["ID:host-1-1:-1:1:1"]


def test_cumulative_ack_excludes_unrendered_messages(connect: Any, broker: Any) -> None:
    peer = connect()
    peer.send("SUBSCRIBE\nid:1\ndestination:/queue/q\nack:client\n\n^")
    broker.route(unwritable("q", "bad"))
    [frame] = send(peer, "good")[1:]
    peer.send(f"ACK\nid:{header(frame, 'ack')}\n\n^")
    assert [message_id for message_id, _ in broker.rejected] == ["bad"]
    assert broker.acknowledged == ["ID:host-1-1:-1:1:1"]


def test_browser_passes_over_what_cannot_be_rendered(connect: Any, broker: Any) -> None:
    peer = connect()
    peer.send("SUBSCRIBE\nid:1\ndestination:/queue/q\nbrowser:true\n\n^")
    [browser] = broker.all_consumers()
    broker.route(unwritable("q", "bad"))
    browser.offer(broker.queues[queue("q")][0])
    assert message_of(peer.receive()[0]).startswith("bad")
    assert peer.flush() == []
    assert browser.outstanding == []
    assert broker.rejected == []


# ---------------------------------------------------------------- transactions


def test_sends_count_at_commit_and_never_after_abort(connect: Any, broker: Any) -> None:
    peer = connect()
    peer.send("BEGIN\ntransaction:t\n\n^", "BEGIN\ntransaction:u\n\n^")
    send(peer, "t", headers="transaction:t\n")
    send(peer, "u", headers="transaction:u\n")
    assert broker.received == []
    peer.send("ABORT\ntransaction:t\n\n^", "COMMIT\ntransaction:u\n\n^")
    assert [message.message_id for message in broker.received] == ["ID:host-1-1:-1:1:2"]
    assert message_of(peer.send("COMMIT\ntransaction:u\n\n^")[0]) == "Invalid transaction id\\c u"


@pytest.mark.parametrize("receipt", ["", "receipt:s\n"])
def test_refused_send_dooms_its_transaction_without_receipt(connect: Any, broker: Any, receipt: str) -> None:
    """A client without a receipt for a SEND learns at the commit that the message is missing."""
    peer = connect()
    peer.send("BEGIN\ntransaction:t\n\n^")
    assert send(peer, "m", headers=f"transaction:t\npriority:x\n{receipt}")
    commit = peer.send("COMMIT\ntransaction:t\nreceipt:r\n\n^")
    assert commit == [RECEIPT] if receipt else commit[0].startswith("ERROR")


def test_transaction_is_begun_once(connect: Any) -> None:
    peer = connect()
    peer.send("BEGIN\ntransaction:t\n\n^")
    assert message_of(peer.send("BEGIN\ntransaction:t\n\n^")[0]) == "The transaction was already started\\c t"


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_acknowledgement_in_transaction_repeats_an_earlier_one(connect: Any, broker: Any, version: str) -> None:
    peer = connect(version)
    peer.send("SUBSCRIBE\nid:1\ndestination:/queue/q\nack:client\n\n^", "BEGIN\ntransaction:t\n\n^")
    ids = [header(frame, "message-id") for name in ("a", "b") for frame in send(peer, name)]
    for message_id in (*reversed(ids), ids[1]):
        ack = f"ACK\nsubscription:1\nmessage-id:{message_id}\ntransaction:t\nreceipt:r\n\n^"
        assert peer.send(ack) == [RECEIPT]
    outside = peer.send(f"ACK\nsubscription:1\nmessage-id:{ids[0]}\nreceipt:r\n\n^")
    assert message_of(outside[0]).startswith("Unexpected ACK")
    assert peer.send("COMMIT\ntransaction:t\nreceipt:r\n\n^") == [RECEIPT]
    assert len(broker.acknowledged) == 2


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_aborted_acknowledgement_can_be_given_again(connect: Any, broker: Any, version: str) -> None:
    peer = connect(version)
    peer.send("SUBSCRIBE\nid:1\ndestination:/queue/q\nack:client\n\n^", "BEGIN\ntransaction:t\n\n^")
    frames = [send(peer, str(number))[0] for number in range(3)]
    name = (
        f"id:{header(frames[1], 'ack')}"
        if version == "1.2"
        else f"subscription:1\nmessage-id:{header(frames[1], 'message-id')}"
    )
    assert peer.send(f"ACK\n{name}\ntransaction:t\nreceipt:r\n\n^") == [RECEIPT]
    assert message_of(peer.send(f"ACK\n{name}\n\n^")[0]).startswith("Unexpected ACK")
    assert peer.send("ABORT\ntransaction:t\nreceipt:r\n\n^") == [RECEIPT]
    assert broker.acknowledged == []
    assert peer.send(f"ACK\n{name}\nreceipt:r\n\n^") == [RECEIPT]
    assert broker.acknowledged == ["ID:host-1-1:-1:1:1", "ID:host-1-1:-1:1:2"]


@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_abort_of_many_acknowledgements_is_done_in_pieces(connect: Any, broker: Any, ack: str) -> None:
    """The work is in proportion to their number, also if each was an ACK of its own."""
    peer = connect()
    subscribe = f"SUBSCRIBE\nid:1\ndestination:/queue/q\nack:{ack}\nactivemq.prefetchSize:1000\n\n^"
    peer.send(subscribe, "BEGIN\ntransaction:t\n\n^")
    ids = [header(send(peer, str(number))[0], "ack") for number in range(640)]
    for each in reversed(ids) if ack == "client-individual" else ids[-1:]:
        peer.send(f"ACK\nid:{each}\ntransaction:t\n\n^")
    assert peer.send("ABORT\ntransaction:t\nreceipt:r\n\n^") == [RECEIPT]
    assert broker.connections[0].steps == [16] * 10, "ten steps of 64 deliveries"
    for each in ids if ack == "client-individual" else ids[-1:]:
        assert peer.send(f"ACK\nid:{each}\nreceipt:r\n\n^") == [RECEIPT]
    assert len(broker.acknowledged) == 640


def test_abort_after_the_subscription_ended_is_harmless(connect: Any, broker: Any) -> None:
    peer = connect()
    peer.send("SUBSCRIBE\nid:1\ndestination:/queue/q\nack:client\n\n^", "BEGIN\ntransaction:t\n\n^")
    [frame] = send(peer, "0")
    peer.send(f"ACK\nid:{header(frame, 'ack')}\ntransaction:t\n\n^", "UNSUBSCRIBE\nid:1\n\n^")
    assert peer.send("ABORT\ntransaction:t\nreceipt:r\n\n^") == [RECEIPT]


def test_nack_cannot_be_transacted(connect: Any, broker: Any) -> None:
    peer = connect()
    peer.send("SUBSCRIBE\nid:1\ndestination:/queue/q\nack:client\n\n^", "BEGIN\ntransaction:t\n\n^")
    [frame] = send(peer, "0")
    answers = peer.send(f"NACK\nid:{header(frame, 'ack')}\ntransaction:t\n\n^")
    assert message_of(answers[0]).startswith("Poison ack cannot be transacted")
    assert broker.rejected == []


# ---------------------------------------------------------------- long names


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (f"SUBSCRIBE\nid:{'i' * 1025}\ndestination:/queue/q\n\n^", "The subscription id is too long"),
        (f"SUBSCRIBE\nid:1\ndestination:/queue/q?{'o' * 2000}\n\n^", "The destination's options are too long"),
        (f"BEGIN\ntransaction:{'t' * 1025}\n\n^", "A transaction name of 1025 characters"),
    ],
)
def test_names_that_are_kept_have_a_limit(connect: Any, broker: Any, frame: str, message: str) -> None:
    peer = connect()
    [answer] = peer.send(frame)
    assert message_of(answer) == message
    assert peer.send("SUBSCRIBE\nid:1\ndestination:/queue/q\nreceipt:r\n\n^") == [RECEIPT]


def test_long_texts_are_not_cached(connect: Any, broker: Any) -> None:
    peer = connect()
    composite = ",".join(f"/queue/{number}" + "n" * 100 for number in range(20))
    for text in (composite, "/queue/short"):
        assert send(peer, "x", text, "receipt:r\n") == [RECEIPT]
    names = peer.session._client._names
    assert list(names._parsed) == ["/queue/short"]
