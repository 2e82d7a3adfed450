# mypy: disable-error-code="misc"
"""stomp.py's normal use, with the released package as it is: context managers, listeners, heart-beats, transactions."""

import queue
from typing import Any

import pytest
import stomp
from stomp.listener import StatsListener, WaitingListener

VERSIONS = {"1.0": stomp.Connection10, "1.1": stomp.Connection11, "1.2": stomp.Connection12}
PATIENCE_SECONDS = 20


class Inbox(stomp.ConnectionListener):
    """Collects what comes, by kind."""

    def __init__(self) -> None:
        self.messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.receipts: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.errors: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.disconnected: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def on_message(self, frame):
        self.messages.put(frame)

    def on_receipt(self, frame):
        self.receipts.put(frame.headers["receipt-id"])

    def on_error(self, frame):
        self.errors.put(frame)

    def on_disconnected(self):
        self.disconnected.put(True)

    def message(self):
        return self.messages.get(timeout=PATIENCE_SECONDS)

    def bodies(self, count):
        return [self.message().body for _ in range(count)]

    def receipt(self):
        return self.receipts.get(timeout=PATIENCE_SECONDS)


@pytest.fixture(params=VERSIONS)
def version(request):
    return request.param


@pytest.fixture
def open_connection(broker):
    """Connect with a version; everything is disconnected in the end."""
    opened = []

    def connect(version="1.2", headers=None, **options):
        connection = VERSIONS[version]([("127.0.0.1", broker.port)], **options)
        inbox = Inbox()
        connection.set_listener("inbox", inbox)
        connection.connect("user", "password", wait=True, headers=headers)
        opened.append(connection)
        return connection, inbox

    yield connect
    for connection in opened:
        if connection.is_connected():
            connection.disconnect()


def test_send_subscribe_receive_unsubscribe(open_connection, version):
    connection, inbox = open_connection(version)
    connection.subscribe("/queue/test", id=1, ack="auto")
    sent = {"colour": "red"} if version == "1.0" else {"colour": "red", "path": "C:\\new\nline"}
    connection.send("/queue/test", "hello ünïcode 🎉", headers=sent)
    frame = inbox.message()
    assert frame.body == "hello ünïcode 🎉"
    assert {name: frame.headers[name] for name in sent} == sent
    assert frame.headers["destination"] == "/queue/test"
    connection.unsubscribe(id=1)
    connection.send("/queue/test", "later", receipt="r")
    assert inbox.receipt() == "r"
    assert inbox.messages.empty()


def test_the_context_manager_waits_for_the_farewell(broker, version):
    with VERSIONS[version]([("127.0.0.1", broker.port)]) as connection:
        connection.connect(wait=True)
        connection.send("/queue/test", "x")
    assert not connection.is_connected()


def test_waiting_and_statistics_listeners(open_connection, version):
    connection, inbox = open_connection(version)
    waiting, statistics = WaitingListener("mine"), StatsListener()
    connection.set_listener("a waiting one", waiting)  # by their names these come before the inbox
    connection.set_listener("a statistician", statistics)
    connection.subscribe("/topic/test", id=1)
    connection.send("/topic/test", "x", receipt="mine")
    waiting.wait_on_receipt()
    assert inbox.message().body == "x"
    assert (statistics.messages, statistics.messages_sent, statistics.errors) == (1, 2, 0)


def test_client_acknowledgement_is_cumulative(open_connection):
    connection, inbox = open_connection("1.1")
    connection.subscribe("/queue/test", id=1, ack="client")
    for number in range(3):
        connection.send("/queue/test", str(number))
    frames = [inbox.message() for _ in range(3)]
    connection.ack(frames[1].headers["message-id"], 1, receipt="a")
    assert inbox.receipt() == "a"
    connection.disconnect()
    again, rest = open_connection("1.1")
    again.subscribe("/queue/test", id=1)
    frame = rest.message()
    assert (frame.body, frame.headers["redelivered"]) == ("2", "true")


def test_client_individual_acknowledgement_and_nack(open_connection):
    connection, inbox = open_connection("1.2")
    connection.subscribe("/queue/test", id="s", ack="client-individual")
    connection.subscribe("/queue/ActiveMQ.DLQ", id="dead", ack="auto")
    for number in range(3):
        connection.send("/queue/test", str(number), persistent="true")
    frames = {frame.body: frame for frame in (inbox.message() for _ in range(3))}
    connection.ack(frames["2"].headers["ack"])
    connection.nack(frames["1"].headers["ack"], receipt="n")
    assert inbox.receipt() == "n"
    assert inbox.message().headers["subscription"] == "dead"
    connection.disconnect()
    again, rest = open_connection("1.2")
    again.subscribe("/queue/test", id="s")
    assert rest.message().body == "0"


def test_transactions(open_connection, version):
    connection, inbox = open_connection(version)
    connection.subscribe("/queue/test", id=1)
    aborted = connection.begin()
    connection.send("/queue/test", "never", transaction=aborted)
    connection.abort(aborted)
    transaction = connection.begin()
    for number in range(3):
        connection.send("/queue/test", str(number), transaction=transaction, persistent="true")
    connection.send("/queue/test", "before")
    connection.commit(transaction)
    assert inbox.bodies(4) == ["before", "0", "1", "2"]


def test_heart_beats_keep_a_quiet_connection_open(open_connection):
    """The silence is longer than either side waits for the other: 2 s and 1.5 s, since a busy machine may be slow."""
    connection, inbox = open_connection("1.2", heartbeats=(500, 500), heart_beat_receive_scale=4)
    statistics = StatsListener()
    connection.set_listener("statistics", statistics)
    beats: queue.SimpleQueue[Any] = queue.SimpleQueue()
    statistics.on_heartbeat = lambda: beats.put(True)
    for _ in range(6):
        beats.get(timeout=PATIENCE_SECONDS)
    assert connection.is_connected()
    assert inbox.disconnected.empty()


def test_text_and_bytes(open_connection):
    connection, inbox = open_connection(auto_content_length=False)
    connection.subscribe("/queue/test", id=1)
    connection.send("/queue/test", "text")
    assert "content-length" not in inbox.message().headers
    binary, raw = open_connection(auto_decode=False)
    binary.subscribe("/queue/binary", id=1)
    binary.send("/queue/binary", b"\x00\x01\xff\x00")
    frame = raw.message()
    assert frame.body == b"\x00\x01\xff\x00"
    assert frame.headers["content-length"] == "4"


def test_activemqs_headers(open_connection):
    connection, inbox = open_connection()
    connection.subscribe("/queue/test", id=1, headers={"selector": "n > 5", "activemq.prefetchSize": "10"})
    headers = {"correlation-id": "c", "reply-to": "/queue/answers", "type": "t", "priority": "9", "persistent": "true"}
    connection.send("/queue/test", "no", headers=headers | {"n": "3"})
    connection.send("/queue/test", "yes", headers=headers | {"n": "7"})
    got = inbox.message().headers
    assert {name: got[name] for name in headers} == headers


def test_a_durable_subscription_keeps_messages(open_connection):
    def subscriber():
        connection, inbox = open_connection(headers={"client-id": "me"})
        options = {"activemq.subscriptionName": "s", "receipt": "subscribed"}
        connection.subscribe("/topic/news", id=1, ack="client-individual", headers=options)
        assert inbox.receipt() == "subscribed"
        return connection, inbox

    first, _ = subscriber()
    first.disconnect()
    producer, _ = open_connection()
    producer.send("/topic/news", "while away", persistent="true")
    connection, inbox = subscriber()
    frame = inbox.message()
    assert frame.body == "while away"
    connection.ack(frame.headers["ack"])


def test_request_and_reply_over_a_temporary_queue(open_connection):
    client, replies = open_connection()
    server, requests = open_connection()
    server.subscribe("/queue/requests", id=1)
    client.subscribe("/temp-queue/answers", id=1)
    client.send("/queue/requests", "ping", headers={"reply-to": "/temp-queue/answers"})
    server.send(requests.message().headers["reply-to"], "pong")
    assert replies.message().body == "pong"


def test_an_error_is_reported_and_the_connection_lives(open_connection):
    connection, inbox = open_connection()
    connection.subscribe("/queue/test", id=1, headers={"selector": "n >"})
    error = inbox.errors.get(timeout=PATIENCE_SECONDS)
    assert "n >" in error.headers["message"] + error.body
    connection.subscribe("/queue/test", id=2)
    connection.send("/queue/test", "x")
    assert inbox.message().body == "x"


def test_a_failover_list_reaches_the_new_master(pair):
    addresses = [("127.0.0.1", port) for port in pair.ports]
    inbox = Inbox()
    connection = stomp.Connection12(addresses, reconnect_attempts_max=50, reconnect_sleep_initial=0.05)
    connection.set_listener("inbox", inbox)
    connection.connect(wait=True)
    connection.send("/queue/test", "kept", persistent="true", receipt="r")
    assert inbox.receipt() == "r"
    pair.wait_for_master().kill()
    assert inbox.disconnected.get(timeout=PATIENCE_SECONDS)
    pair.wait_for_master()
    connection.connect(wait=True)
    connection.subscribe("/queue/test", id=1)
    assert inbox.message().body == "kept"
    connection.disconnect()
