"""Limits that clients meet: `docs/limits.md` has the code's figures, and the answers that a broker gives."""

import re
import socket
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

import pybroker
from pybroker.broker.app import log_limits
from pybroker.broker.app.config import SETTINGS, Config
from pybroker.broker.core import connection as core_connection
from pybroker.broker.core import consumer as core_consumer
from pybroker.broker.core import cron, object_memory, operations, scheduled, scheduler, transaction
from pybroker.broker.core.selector import comparison, like, parser, quota, selector
from pybroker.broker.domain.amqp.frames import AmqpLimits
from pybroker.broker.domain.destination import NAME_MAX, PARTS_MAX
from pybroker.broker.domain.mqtt.packets import MqttLimits
from pybroker.broker.domain.openwire.values import NESTING_MAX, PROPERTY_VALUES_MAX
from pybroker.broker.domain.operations import PAGE_COUNT_MAX
from pybroker.broker.domain.stomp.frames import StompLimits
from pybroker.client import Connection, DestinationRefused, FrameTooLarge, NoRoom, Refused, SelectorRefused
from pybroker.store.jdbc import limits as database_limits
from pybroker.testing import Broker
from pybroker.transports import proxy_protocol
from pybroker.transports.admission import AdmissionLimits
from pybroker.transports.amqp import channel as amqp_channel
from pybroker.transports.amqp import transactions
from pybroker.transports.connection import UNREAD_BYTES_MAX
from pybroker.transports.mqtt import client as mqtt_client
from pybroker.transports.mqtt import session_records, topic_aliases
from pybroker.transports.openwire import client as openwire_client
from pybroker.transports.openwire.session import UNCONNECTED_FRAMES_MAX
from pybroker.transports.stomp import client as stomp_client
from pybroker.transports.stomp.counted_deliveries import window_max
from pybroker.transports.stomp.transformation import tree
from pybroker.transports.websocket import handshake
from tests.integration.stomp_client import Disconnected, StompClient
from tests.pages import ROOT

Row = tuple[str, str, str, str, str]

STOMP = StompLimits()
MQTT = MqttLimits()
AMQP = AmqpLimits()
FIGURES = {
    "connections": Config().connections_max,
    "connections of one address without CONNECT or ConnectionInfo": Config().connections_max // 2,
    "connections without CONNECT or ConnectionInfo, of all addresses": AdmissionLimits.of(1000).newcomers,
    "connections in a TLS handshake": AdmissionLimits.of(1000).handshakes,
    "a header of the PROXY protocol": proxy_protocol.BYTES_MAX,
    "a frame before CONNECT or ConnectionInfo": STOMP.unconnected_body_bytes,
    "OpenWire frames before ConnectionInfo, KeepAliveInfo not counted": UNCONNECTED_FRAMES_MAX,
    "a request for a WebSocket": handshake.HEAD_BYTES_MAX,
    "headers of a request for a WebSocket": handshake.HEADERS_MAX,
    "a frame, and so a message": Config().frame_max,
    "property values of a message, with those in maps and lists": PROPERTY_VALUES_MAX,
    "maps and lists inside one another": NESTING_MAX,
    "headers of a STOMP frame": STOMP.header_count,
    "a header line of a STOMP frame, and so a composite destination's name": STOMP.header_line_bytes,
    "command and headers of a STOMP frame": STOMP.head_bytes,
    "names of a composite destination": PARTS_MAX,
    "a body that the header `transformation` turns into XML or JSON": tree.BODY_BYTES_MAX,
    "a selector's text": selector.TEXT_MAX,
    "operators inside one another in a selector": parser.DEPTH_MAX,
    "the different selectors of a connection": quota.CHARACTERS_MAX,
    "characters that the `LIKE`s of a selector search in one message": like.STEPS_MAX,
    "a text that a selector compares with a number, from STOMP": comparison.NUMBER_CHARACTERS_MAX,
    "sessions, producers or consumers of an OpenWire connection": openwire_client.OBJECTS_MAX,
    "subscriptions of a STOMP connection": STOMP.subscriptions,
    "a packet before an MQTT client is connected": MQTT.unconnected_packet_bytes,
    "topic filters of a packet of MQTT": MQTT.filters,
    "shared subscriptions of an MQTT session": MQTT.shared_subscriptions,
    "topic filters of an MQTT session": MQTT.subscriptions,
    "unacknowledged messages of an MQTT subscription that is not durable": mqtt_client.COUNTED_WINDOW,
    "user properties of a packet of MQTT 5": MQTT.user_properties,
    "PUBLISH packets of an MQTT 5 client with QoS 1 and 2 that are not answered yet": Config().mqtt_receive_maximum,
    "topic aliases of an MQTT 5 client": topic_aliases.ALIASES_MAX,
    "sessions of an AMQP connection": AMQP.channels,
    "links of an AMQP session": AMQP.handles,
    "links of an AMQP connection": amqp_channel.LINKS_MAX,
    "a frame of AMQP": AMQP.frame_bytes_max,
    "messages that an AMQP client has not settled": amqp_channel.UNSETTLED_MAX,
    "outcomes other than `accepted` in the open transactions of an AMQP connection": transactions.OTHERS_MAX,
    "messages that an AMQP link may send ahead of the answers": AMQP.producer_credit,
    "messages that an AMQP link has given back as undeliverable there": core_consumer.EXCLUDED_MAX,
    "memory of a connection's consumers, producers, sessions, temporary destinations": object_memory.GUARANTEED_BYTES,
    "the name of a subscription, and in STOMP the id of one and the name of a transaction": stomp_client.NAME_MAX,
    "temporary destinations of a STOMP connection": STOMP.temporary_destinations,
    "messages that wait for a topic consumer that is not durable, beyond its prefetch": Config().topic_pending_limit,
    "the window of a STOMP subscription to a topic that is not durable, or of a browser, with `ack:client` or "
    "`client-individual`": window_max(by_message_id=False),
    "open transactions of an OpenWire connection": core_connection.TRANSACTIONS_MAX,
    "open transactions of a STOMP connection": STOMP.transactions,
    "operations of a transaction": transaction.OPERATIONS_MAX,
    "queues and topics": Config().destinations_max,
    "operations of operators under way: pages, purges, moves and the like": operations.OPERATIONS_MAX,
    "a page of messages, or of scheduled ones, for operators": PAGE_COUNT_MAX,
    "memory of queues, topics and durable subscriptions": object_memory.DESTINATION_BYTES,
    "the name of a queue or topic": NAME_MAX,
    "client id, connection id": NAME_MAX,
    "scheduled messages": Config().jobs_max,
    "the record of an MQTT session: its subscriptions with QoS 0, or with options": session_records.RECORD_BYTES_MAX
    >> 10,
    "destinations for which one message id is scheduled": scheduler.SAME_ID_MAX,
    "repeats of a scheduled message": scheduled.REPEAT_MAX,
    "a cron entry": cron.TEXT_MAX,
    "browses of the scheduler that are under way": scheduler.BROWSES_MAX,
    "each part of an XA transaction's id": transaction.XID_BYTES_MAX,
    "a message, with the store in a database": database_limits.MESSAGE_BYTES_MAX,
    "names and ids, with the store in a database": database_limits.LENGTH_MAX,
    "lines of the log that clients cause": log_limits.LINES_BURST,
    "output that one client leaves unread": UNREAD_BYTES_MAX >> 20,
}
"""The code's figure of each limit that has one."""


def documented() -> dict[str, Row]:
    """Return the rows of the page's tables of limits, by the name in their first column."""
    rows: dict[str, Row] = {}
    for line in (ROOT / "docs" / "limits.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" |")]
        if line.startswith("| ") and len(cells) == 5 and cells[0] != "limit":
            name, value, setting, answer, remedy = cells
            rows[name] = (name, value, setting, answer, remedy)
    return rows


ROWS = documented()


@pytest.mark.parametrize("name", FIGURES)
def test_documented_limit_has_the_figure_of_the_code(name: str) -> None:
    assert re.search(rf"(?<![\d,]){FIGURES[name]:,}(?![\d,])", ROWS[name][1])


def test_each_documented_figure_without_setting_is_checked() -> None:
    unchecked = [name for name, value, setting, _, _ in ROWS.values() if value[0].isdigit() and not setting]
    assert set(unchecked) <= FIGURES.keys()


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_documented_setting_of_a_limit_exists(row: Row) -> None:
    names = set(re.findall(r"(?<!\[)`(\w+)`", row[2]))
    assert names <= SETTINGS.keys()


# ---------------------------------------------------------------- answers


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker whose limits are low, where a setting has them."""
    settings: dict[str, str | int | float | bool] = {
        "frame_max": "1mb",
        "destinations_max": 20,
        "jobs_max": 2,
        "connections_max": 12,
        "unconnected_max": 3,
    }
    with Broker(settings=settings) as broker:
        yield broker


def openwire(broker: Broker, kind: type[Refused], perform: Callable[[Connection], object]) -> str:
    """Return the text of an error; the connection serves a request after it."""
    with pybroker.connect(broker.uri) as connection:
        with pytest.raises(kind) as raised:
            perform(connection)
        connection.send("queue://Q", "the connection lives")
    return str(raised.value)


def stomp(broker: Broker, perform: Callable[[StompClient], object]) -> str:
    """Return the message of an ERROR; the connection serves a request after it."""
    with closing(StompClient(broker.stomp_port)) as client:
        perform(client)
        error = client.read_until("ERROR")
        assert client.request("SEND", b"the connection lives", destination="/queue/Q").command == "RECEIPT"
    return error.headers["message"]


def stomp_closed(broker: Broker, perform: Callable[[StompClient], object]) -> str:
    """Return the message of an ERROR, after which the broker closes."""
    with closing(StompClient(broker.stomp_port)) as client:
        perform(client)
        error = client.read_until("ERROR")
        with pytest.raises(Disconnected):
            client.read()
    return error.headers["message"]


def refused(broker: Broker, count: int) -> str:
    """Open connections, and return the answer to the last one."""
    opened = [socket.create_connection(broker.stomp_address) for _ in range(count)]
    try:
        opened[-1].settimeout(20)
        return opened[-1].makefile("rb").read().split(b"\n\n")[1].decode()
    finally:
        for each in opened:
            each.close()


def subscribe_long(connection: Connection) -> None:
    for number in range(70):
        connection.consumer("queue://Q", selector=f"a{number} = '" + "x" * 8000 + "'")


def send_names(connection: Connection) -> None:
    for number in range(21):
        connection.send(f"queue://NAME.{number}", "x")


def schedule(connection: Connection) -> None:
    for _ in range(3):
        connection.send("queue://Q", "x", properties={"AMQ_SCHEDULED_DELAY": 600_000})


def cron_of(text: str) -> Callable[[Connection], None]:
    return lambda connection: connection.send("queue://Q", "x", properties={"AMQ_SCHEDULED_CRON": text})


def many_headers(client: StompClient) -> None:
    client.send("SEND", b"", destination="/queue/Q", **{f"h{number}": "x" for number in range(1001)})


def begin(client: StompClient) -> None:
    for number in range(1001):
        client.send("BEGIN", transaction=str(number))


def subscribe(client: StompClient) -> None:
    for number in range(1001):
        client.send("SUBSCRIBE", destination="/topic/T", id=str(number))


ANSWERS: dict[str, Callable[[Broker], str]] = {
    "connections of one address without CONNECT or ConnectionInfo": lambda it: refused(it, 4),
    "a frame, and so a message": lambda it: stomp_closed(
        it, lambda client: client.send("SEND", b"x" * (2 << 20), destination="/queue/Q")
    ),
    "property values of a message, with those in maps and lists": lambda it: openwire(
        it, Refused, lambda c: c.send("queue://Q", "x", properties={f"p{number}": 1 for number in range(10_001)})
    ),
    "headers of a STOMP frame": lambda it: stomp_closed(it, many_headers),
    "a header line of a STOMP frame, and so a composite destination's name": lambda it: stomp_closed(
        it, lambda client: client.send("SEND", destination="/queue/" + "x" * 11_000)
    ),
    "names of a composite destination": lambda it: openwire(
        it, DestinationRefused, lambda c: c.send(",".join(f"Q{number}" for number in range(300)), "x")
    ),
    "a selector's text": lambda it: openwire(
        it, SelectorRefused, lambda c: c.consumer("queue://Q", selector=f"a = '{'x' * 9000}'")
    ),
    "operators inside one another in a selector": lambda it: openwire(
        it, SelectorRefused, lambda c: c.consumer("queue://Q", selector="NOT " * 101 + "a = 1")
    ),
    "the different selectors of a connection": lambda it: openwire(it, NoRoom, subscribe_long),
    "subscriptions of a STOMP connection": lambda it: stomp(it, subscribe),
    "open transactions of a STOMP connection": lambda it: stomp(it, begin),
    "queues and topics": lambda it: openwire(it, NoRoom, send_names),
    "scheduled messages": lambda it: openwire(it, NoRoom, schedule),
    "repeats of a scheduled message": lambda it: openwire(
        it,
        Refused,
        lambda c: c.send(
            "queue://Q",
            "x",
            properties={"AMQ_SCHEDULED_DELAY": 1, "AMQ_SCHEDULED_PERIOD": 1000, "AMQ_SCHEDULED_REPEAT": 1001},
        ),
    ),
    "a cron entry": lambda it: openwire(it, Refused, cron_of("* " * 600)),
}
"""Requests beyond limits, and what becomes of each."""


@pytest.mark.parametrize("name", ANSWERS)
def test_request_beyond_a_limit_gets_the_documented_answer(broker: Broker, name: str) -> None:
    found = ANSWERS[name](broker)
    texts = re.findall(r"`([^`]+)`", ROWS[name][3])
    assert any(re.match(".*".join(map(re.escape, text.split("…"))), found) for text in texts), found


def test_frame_that_the_client_knows_to_be_too_large_is_not_sent(broker: Broker) -> None:
    with pybroker.connect(broker.uri) as connection:
        with pytest.raises(FrameTooLarge):
            connection.send("queue://Q", b"x" * (2 << 20))
        connection.send("queue://Q", "the connection lives")


def test_log_names_the_limit_that_closed_a_stomp_connection(broker: Broker) -> None:
    stomp_closed(broker, many_headers)
    assert any(
        "closed: The maximum number of headers was exceeded: A frame may have 1000." in line for line in broker.log
    )
