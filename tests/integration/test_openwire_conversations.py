"""Conversations of a Java client with ActiveMQ 5.17.2, replayed against our session over our core.

The client's commands are sent again, in the order of their capture over all connections. Wherever the captured broker
sent something, ours must have sent the same by then. Its commands form streams, each of which keeps its order: the
answer to a command, the dispatches to a consumer, the acks to a producer, and each other kind of command. Between
streams no order is promised (responses and pushes overtake one another in ActiveMQ from run to run).

Not compared is what differs from one broker, or one run, to the next: ids and addresses of the broker, its sequence
numbers, the ids of its advisories, times it stamps on messages, command ids of what it pushes (always 0), the text of
an exception, and `receivedByDFBridge`, which ActiveMQ sets by mistake on persistent messages it stored at once.

Where we answer otherwise on purpose, `DEVIATIONS` gives the reason.
"""

import dataclasses
import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pybroker.broker.domain.openwire.commands import (
    ActiveMQMessage,
    BaseCommand,
    BrokerInfo,
    DataStructure,
    ExceptionResponse,
    MessageDispatch,
    ProducerAck,
    RemoveInfo,
    Response,
    ShutdownInfo,
)
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.marshal.wireformat import Offer, agree, decode_offer
from pybroker.broker.domain.openwire.throwables import Throwable
from pybroker.broker.domain.openwire.values import decode_map, encode_map
from pybroker.transports.openwire.session import Sessions
from tests.unit.transports.openwire.conversation import Clock, OpenWireClient, new_broker, split

CAPTURES = Path(__file__).parent.parent / "golden" / "openwire" / "captures"

SCENARIOS = sorted(path.name.removesuffix(".chunks") for path in CAPTURES.glob("*.chunks"))


class Deviation(NamedTuple):
    """A command that only one of the two brokers sends, or that ours sends otherwise.

    Attributes:
        scenario: the conversation.
        connection: its connection.
        why: our reason.
        theirs: what the captured broker sends, a pattern; None: nothing.
        ours: what ours sends in its place, a pattern; None: nothing.
    """

    scenario: str
    connection: int
    why: str
    theirs: str | None = None
    ours: str | None = None


DEVIATIONS = [
    Deviation(
        "bridgeduplex",
        1,
        "a network connector is served as a client: the way back over the same socket is not opened",
        theirs=r"^(ConnectionInfo|SessionInfo|ProducerInfo|ConsumerInfo|ActiveMQ\w*Message)\(.*b1->b2",
    ),
    Deviation(
        "bridgeduplex",
        1,
        "so it gets the advisories it subscribed to as every consumer does",
        ours=r"^MessageDispatch\(.*b2->b1.*ActiveMQ\.Advisory\.Consumer\.Queue\.TEST\.NET",
    ),
    Deviation(
        "bridgeduplex",
        2,
        "and what came over it names the producer that sent it, not one of the way back",
        theirs=r"^MessageDispatch\(.*message=ActiveMQTextMessage\(command_id=5.* producer_id=.*b1->b2.*:2', .*from b2",
        ours=r"^MessageDispatch\(.*message=ActiveMQTextMessage\(command_id=6.* producer_id=.*b2->b1.*:3', .*from b2",
    ),
]

LEFT_OUT = {("errors", 1): "its password is wrong, and there are no users yet: everyone is let in"}
"""Connections that are not replayed, and why."""


# ---------------------------------------------------------------- captures


class CapturedCommand(NamedTuple):
    """One command of a capture."""

    connection: int
    by_client: bool
    command: DataStructure


class Direction:
    """The commands that one side of a captured connection sent."""

    def __init__(self, data: bytes) -> None:
        self.frames = deque(split(data))
        self.offer = decode_offer(self.frames.popleft())
        self.wire: WireFormat
        self._end = len(data) - sum(4 + len(frame) for frame in self.frames)

    def through(self, offset: int) -> Iterator[DataStructure]:
        """Yield the commands that are complete with the byte before an offset."""
        while self.frames and self._end + 4 + len(self.frames[0]) <= offset:
            frame = self.frames.popleft()
            self._end += 4 + len(frame)
            yield self.wire.decode(frame)


def recorded(scenario: str) -> tuple[dict[int, Offer], list[CapturedCommand]]:
    """Return what the clients offered, by connection, and all commands in the order of the capture."""
    chunks = [line.split() for line in (CAPTURES / f"{scenario}.chunks").read_text().splitlines()]
    directions: dict[tuple[str, str], Direction] = {}
    for number in dict.fromkeys(chunk[0] for chunk in chunks):
        both = [Direction((CAPTURES / f"{scenario}-{number}-{each}.bin").read_bytes()) for each in ("c2s", "s2c")]
        for name, direction in zip(("c2s", "s2c"), both, strict=True):
            direction.wire = agree(both[0].offer, both[1].offer).wire_format()
            directions[number, name] = direction
    commands = [
        CapturedCommand(int(number), name == "c2s", command)
        for number, name, offset, length in chunks
        for command in directions[number, name].through(int(offset) + int(length))
    ]
    assert not any(direction.frames for direction in directions.values()), "the chunks hold every frame"
    return {int(number): each.offer for (number, name), each in directions.items() if name == "c2s"}, commands


# ---------------------------------------------------------------- comparing


def stream(command: DataStructure) -> str:
    """Return which of a connection's streams something belongs to."""
    match command:
        case Response():
            return f"answer to {command.correlation_id}"
        case MessageDispatch():
            return f"dispatches to {command.consumer_id}"
        case ProducerAck():
            return f"acks to {command.producer_id}"
        case _:
            return type(command).__name__


def comparable(command: DataStructure) -> DataStructure:
    """Return a broker's command without what differs between brokers or runs."""
    match command:
        case MessageDispatch(message=ActiveMQMessage() as message):
            return dataclasses.replace(command, command_id=0, message=_message(message))
        case ActiveMQMessage():
            return _message(command)
        case BrokerInfo():
            return dataclasses.replace(command, broker_id=None, broker_url=None)
        case ExceptionResponse(exception=Throwable() as exception):
            return dataclasses.replace(command, exception=Throwable(class_name=exception.class_name, message="…"))
        case Response():
            return dataclasses.replace(command, command_id=0)
        case _:
            return command


def _message(message: ActiveMQMessage) -> ActiveMQMessage:
    assert message.message_id is not None
    same: dict[str, Any] = {
        "message_id": message.message_id._replace(broker_sequence_id=0),
        "broker_in_time": 0,
        "broker_out_time": 0,
        "received_by_bridge": False,
        "redelivery_counter": 0,  # the dispatch's counts
    }
    if message.jms_type == "Advisory":
        properties = decode_map(message.marshalled_properties or b"")
        origins = ("originBrokerId", "originBrokerName", "originBrokerURL")
        assert all([properties.pop(each, None) for each in origins])
        same |= {
            "message_id": None,
            "producer_id": None,
            "timestamp": 0,
            "marshalled_properties": encode_map(dict(sorted(properties.items()))),
            "data_structure": _subject(message.data_structure),
        }
    return dataclasses.replace(message, **same)


def _subject(about: DataStructure | None) -> DataStructure | None:
    """Return what an advisory is about; a command there has the number its client gave it, or none."""
    if not isinstance(about, BaseCommand):
        return about
    return dataclasses.replace(about, command_id=0, response_required=False)


# ---------------------------------------------------------------- replaying


class Replay:
    """A scenario under way."""

    def __init__(self, scenario: str) -> None:
        self.offers, commands = recorded(scenario)
        self.commands = [each for each in commands if (scenario, each.connection) not in LEFT_OUT]
        self.clients: dict[int, OpenWireClient] = {}
        self.streams: dict[tuple[int, str], deque[DataStructure]] = {}
        self._deviations = [each for each in DEVIATIONS if each.scenario == scenario]
        self.unused = set(self._deviations)
        self._clock = Clock()
        self._broker = new_broker(clock=self._clock)
        self._sessions = Sessions()
        self._sequences: dict[int, int] = {}
        """ActiveMQ's number of each message that was dispatched, and ours."""

    def run(self) -> None:
        last = {each.connection: index for index, each in enumerate(self.commands)}
        for index, each in enumerate(self.commands):
            if each.connection not in self.clients:
                offer = self.offers[each.connection]
                self.clients[each.connection] = OpenWireClient(self._broker, self._sessions, offer=offer)
            if each.by_client:
                self._send(each.connection, each.command)
            else:
                self._expect(each.connection, each.command)
            if last[each.connection] == index:
                self._leave(each)

    def _send(self, number: int, command: DataStructure) -> None:
        if isinstance(command, ActiveMQMessage):
            self._clock.now_ms = max(self._clock.now_ms, command.timestamp + ON_THE_WAY_MS)
        if isinstance(command, RemoveInfo) and command.last_delivered_sequence_id > 0:
            theirs = command.last_delivered_sequence_id
            command = dataclasses.replace(command, last_delivered_sequence_id=self._sequences[theirs])
        self.clients[number].send_commands(command)
        self.listen()

    def listen(self) -> None:
        """Sort what the clients received into streams."""
        for number, client in self.clients.items():
            for command in client.receive():
                self.streams.setdefault((number, stream(command)), deque()).append(command)

    def _expect(self, number: int, theirs: DataStructure) -> None:
        found = (each for each in self._deviations if self._differs(each, number, each.theirs, theirs))
        deviation = next(found, None)
        if deviation is not None and deviation.ours is None:
            return
        ours = self._next(number, stream(theirs))
        assert ours is not None, f"ActiveMQ had sent by now: {theirs}"
        if deviation is not None:
            assert self._differs(deviation, number, deviation.ours, ours)
        else:
            assert comparable(ours) == comparable(theirs)
        self._remember(ours, theirs)

    def _next(self, number: int, name: str) -> DataStructure | None:
        """Return what is next in a stream, letting time pass for what a timer sends."""
        client = self.clients[number]
        for _ in range(TIMERS_MAX):
            self.listen()
            if waiting := self.streams.get((number, name)):
                return waiting.popleft()
            if client.link.wakes_at is not None:
                client.wait(client.link.wakes_at - client.link.now)
        return None

    def _remember(self, ours: DataStructure, theirs: DataStructure) -> None:
        match ours, theirs:
            case MessageDispatch(message=ActiveMQMessage() as our), MessageDispatch(message=ActiveMQMessage() as their):
                assert our.message_id is not None
                assert their.message_id is not None
                self._sequences[their.message_id.broker_sequence_id] = our.message_id.broker_sequence_id

    def left(self) -> list[DataStructure]:
        """Return what only our broker sent, except the deviations."""
        return [
            command
            for (number, _), commands in self.streams.items()
            for command in commands
            if not any(self._differs(each, number, each.ours, command) for each in self._deviations)
        ]

    def _differs(self, deviation: Deviation, number: int, pattern: str | None, command: DataStructure) -> bool:
        if deviation.connection != number or pattern is None or not re.search(pattern, repr(command)):
            return False
        self.unused.discard(deviation)
        return True

    def _leave(self, last: CapturedCommand) -> None:
        """Lose a connection after its last command; ours is closed where theirs was."""
        client = self.clients[last.connection]
        refused = isinstance(last.command, ExceptionResponse)
        assert client.link.closed is (refused or isinstance(last.command, ShutdownInfo))
        client.session.lost()
        self.listen()


ON_THE_WAY_MS = 5
"""Between the time stamp of a message and its arrival."""

TIMERS_MAX = 20
"""Timer events after which a timed command must have been sent."""


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_session_sends_what_activemq_sent(scenario: str) -> None:
    replay = Replay(scenario)
    replay.run()
    assert replay.left() == [], "ActiveMQ sent none of this"
    assert replay.unused == set(), "these deviations did not happen"


def test_every_captured_connection_is_replayed() -> None:
    connections = {path.name.rpartition("-")[0] for path in CAPTURES.glob("*.bin")}
    replayed = {f"{scenario}-{number}" for scenario in SCENARIOS for number in recorded(scenario)[0]}
    assert replayed == connections
    assert (len(SCENARIOS), len(replayed)) == (17, 28)
