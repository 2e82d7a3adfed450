# mypy: disable-error-code="arg-type, operator"
"""Conversations recorded from ActiveMQ 5.17.2, replayed against our session over our core.

Each client frame is sent again, and what the server answers is compared frame by frame: command, headers, body, and
their order on each connection. Where we answer otherwise on purpose, `DEVIATIONS` gives the reason.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pybroker.broker.core.broker import BrokerCore
from pybroker.broker.domain.destination import Destination, DestinationType, parse
from pybroker.broker.domain.openwire.body import encode_text
from pybroker.broker.domain.openwire.ids import OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, to_message, view
from pybroker.broker.domain.openwire.values import Byte, Char, Float, Long, Short, encode_map
from pybroker.broker.domain.stomp.frames import StompLimits
from pybroker.broker.domain.subscription import ConsumerRequest
from pybroker.store.memory import MemoryStore
from pybroker.transports.stomp.session import StompSession
from pybroker.transports.stomp.transformation import bodies
from pybroker.transports.stomp.transformation.java_object import read_object, write_object

GOLDEN = Path(__file__).parent.parent / "golden" / "stomp"

NOW_MS = 1_795_226_146_357
"""About when the conversations were recorded."""


def new_broker() -> BrokerCore:
    return BrokerCore("b1", store=MemoryStore(), clock=lambda: NOW_MS)


# ---------------------------------------------------------------- deviations


class Deviation(NamedTuple):
    """A client frame that we answer otherwise.

    Attributes:
        scenario: the conversation.
        client_text: a part of the client's frame.
        why: our reason.
        answers: patterns for our frames, in order; None: the frame is left out, with its answer.
        stays_open: the connection goes on though ActiveMQ closed it.
        connection: the only connection it concerns; None: any.
    """

    scenario: str
    client_text: str
    why: str
    answers: tuple[str, ...] | None = None
    stays_open: bool = False
    connection: int | None = None


DEVIATIONS = [
    Deviation("02-framing", "SENDX", "a prefix is no command; an ERROR would end the conversation here"),
    Deviation(
        "03-escaping",
        "v\\cw\\nx\\ry",
        "STOMP 1.0 cannot write a line feed in a header; raw, it would begin a header of the producer's making",
        (r"MESSAGE\n(?s:.*)a\\cb:v:w x\\ry\\z\\tq\n",),
        connection=0,
    ),
    Deviation(
        "04-errors",
        "selector:a = 'x",
        "the error names what is wrong with the selector, and where",
        (r"ERROR\nmessage:(?s:.*)receipt-id:sub",),
    ),
    Deviation(
        "04-errors",
        "priority:high",
        "an ERROR in the place of a silent close",
        (r"ERROR\nmessage:Invalid priority header\\c high\n(?s:.*)receipt-id:1",),
        stays_open=True,
    ),
    Deviation(
        "04-errors",
        "destination:/queue/\n",
        "an ERROR in the place of a silent close",
        (r"ERROR\nmessage:the destination's name is empty(?s:.*)receipt-id:1",),
        stays_open=True,
    ),
    Deviation(
        "04-errors",
        "/remote-temp-queue/ID:nope",
        "the error is a sentence",
        (r"ERROR\nmessage:The destination temp-queue\\c//ID\\cnope-1\\c1 does not exist",),
    ),
    Deviation(
        "11-nack-dlq",
        "transaction:t\nreceipt:n4",
        "no Java object in the text",
        (r"ERROR\nmessage:Poison ack cannot be transacted\\c t\n(?s:.*)receipt-id:n4",),
    ),
    Deviation(
        "11-nack-dlq",
        "SUBSCRIBE\nid:d",
        "a dead letter has its reason in the property ActiveMQ has for that",  # docs/differences.md
        (
            r"RECEIPT\n",
            r"MESSAGE\n(?=(?s:.*)\ndlqDeliveryFailureCause:NACK of a STOMP client\n)"
            r"(?s:.*)original-destination:/queue/g11\n(?s:.*)\n\np$",
        ),
    ),
    Deviation(
        "13-transaction-acks",
        "receipt:k3",
        "an aborted acknowledgement earns no credit, so the window of 3 is full again",
        (r"RECEIPT\nreceipt-id:k3",),
    ),
    Deviation(
        "13-transaction-acks",
        "receipt:k4",
        "and this one frees the space",
        (r"RECEIPT\nreceipt-id:k4", r"MESSAGE\n(?s:.*)\n\nm5$"),
    ),
    Deviation(
        "17-routing",
        "SEND\ndestination:/queue/c17a,/queue/c17b",
        "a composite's parts get their copies in the order of the text",
        (r"MESSAGE\n(?s:.*)\ndestination:/queue/c17a\n", r"MESSAGE\n(?s:.*)\ndestination:/queue/c17b\n"),
    ),
    Deviation("14-temp", "SUBSCRIBE\nid:f", "another's temporary queue: ERROR instead of silence", (r"ERROR\n",)),
    Deviation("14-temp", "late", "the error is a sentence", (r"ERROR\nmessage:The destination temp-queue\\c//",)),
    Deviation(
        "15-durable",
        "UNSUBSCRIBE\nid:1\nactivemq.subscriptionName:dz\nreceipt:rm",
        "ActiveMQ mistakes the name for the client id in 1.0",
        (r"RECEIPT\nreceipt-id:rm\n",),
    ),
]

WAITING = {"05": 2, "08": 6, "09": 6, "10": 6, "13": 6, "16": 2}
"""Per conversation, how many messages m0, m1, … were on queue `g<number>` when it began."""


# ---------------------------------------------------------------- both ends


class FakeLink:
    """Collects what is written, at a standstill of time."""

    peer = "127.0.0.1:50312"
    certificate: str | None = None
    ending = ""

    def __init__(self) -> None:
        self.output = bytearray()
        self.closed = False
        self.is_input_waiting = False

    def write(self, data: bytes | memoryview) -> None:
        self.output += data

    def close(self) -> None:
        self.closed = True

    def time(self) -> float:
        return 0.0

    def wake_at(self, when: float | None) -> None:
        """Time stands still."""

    def pause_reading(self) -> None:
        """The test itself feeds the session."""

    def resume_reading(self) -> None:
        """The test itself feeds the session."""

    def hold_input(self) -> None:
        """Not called: all work is done at once."""

    def give_up(self, error: Exception) -> None:
        """Fail."""
        raise error

    def release_input(self) -> None:
        """Not called, as above."""

    def in_thread(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Do it at once."""
        work()
        done()

    def write_pieces(self, pieces: Sequence[bytes]) -> None:
        for piece in pieces:
            self.write(piece)

    def reserve_frame(self, size: int, received: int) -> None:
        """Do nothing: this link has all memory."""

    def release_frame(self) -> None:
        """Do nothing, as above."""

    def is_slice_over(self) -> bool:
        return False


class StompClient:
    """One recorded connection, and the MESSAGE frames it has seen."""

    def __init__(self, broker: BrokerCore, number: int) -> None:
        self.link = FakeLink()
        self.session = StompSession(
            broker=broker,
            link=self.link,
            connection_id=f"ID:testhost-39883-1795226085625-8:{number}",
            limits=StompLimits(),
            clock=lambda: NOW_MS,
        )
        self.messages: list[str] = []

    def send(self, event: dict[str, Any]) -> None:
        text = event.get("template", event["text"])
        self.session.receive(re.sub(r"@([a-z-]+)\[(\d+)\]@", self._raw_header, text).encode())

    def receive(self) -> list[str]:
        """Return all received frames, reporting the output to the session as written until there is no more."""
        frames: list[str] = []
        while self.link.output:
            text = bytes(self.link.output).decode()
            self.link.output.clear()
            frames += [frame for frame in text.split("\0\n") if frame]
            self.session.written()
        self.messages += [frame for frame in frames if frame.startswith("MESSAGE\n")]
        return frames

    def _raw_header(self, match: re.Match[str]) -> str:
        found = re.search(rf"\n{match[1]}:([^\n]*)\n", self.messages[int(match[2])])
        assert found is not None, f"no {match[1]} in {self.messages[int(match[2])]!r}"
        return found[1]


class JmsClient:
    """The recorded Java client's actions, done directly in the core."""

    def __init__(self, broker: BrokerCore) -> None:
        self._broker = broker
        self._connection = broker.connect("ID:testhost-39883-1795226085625-7:1", "java", FakeLink())
        self._count = 0
        self._temporaries: dict[str, Destination] = {}
        self._inbox: dict[str, list[OpenWireMessage]] = {}

    def act(self, action: str, result: str) -> None:
        """Do what is recorded, and compare what was seen where we can see it."""
        verb, _, rest = action.partition("(")
        arguments = [argument.strip() for argument in rest.removesuffix(")").split(",", 3)]
        if verb == "send":
            self._send(arguments)
        elif verb == "recv":
            self._compare(self._receive(parse(arguments[0])), result)
        elif verb == "temp":
            self._temporaries[arguments[0]] = self._connection.create_temporary(DestinationType.TEMP_QUEUE)
        elif verb == "open":
            self._open(arguments[0], self._temporaries[arguments[1].removeprefix("tempname:")])
        elif verb == "get":
            self._compare(self._inbox[arguments[0]].pop(0), result)
        elif verb == "durables":
            # g15a:dz is the one that ActiveMQ could not remove; see `DEVIATIONS`.
            assert set(self._broker.durables) == set(re.findall(r"(\S+) active=", result)) - {"g15a:dz"}
        else:
            assert verb == "count", action

    def _send(self, arguments: list[str]) -> None:
        destination, kind, text, details = arguments
        self._count += 1
        producer = ProducerId("ID:testhost-39883-1795226085625-7:1", 1, self._count)
        message = OpenWireMessage(
            type=MessageType.MESSAGE,
            destination=parse(destination),
            producer_id=producer,
            message_id=OpenWireMessageId(None, producer, 1, 0),
            timestamp=NOW_MS,
        )
        _JMS_BODIES[kind](message, text)
        self._detail(message, details)
        self._connection.send(to_message(message))

    def _detail(self, message: OpenWireMessage, details: str) -> None:
        properties: dict[str, Any] = {}
        for name, _, value in (item.partition("=") for item in details.split(";") if item.strip()):
            match name:
                case "@corr":
                    message.correlation_id = value
                case "@type":
                    message.jms_type = value
                case "@reply":
                    temporary = self._temporaries.get(value.removeprefix("tempname:"))
                    message.reply_to = temporary or parse(value)
                case "@ttl":
                    message.expiration = NOW_MS + int(value)
                case "@prio":
                    message.priority = int(value)
                case "@persistent":
                    message.persistent = value == "1"
                case "JMSXGroupID":
                    message.group_id = value
                case _:
                    kind, _, bare = name.rpartition(":")
                    properties[bare] = _JMS_VALUES[kind](value)
        message.marshalled_properties = encode_map(properties) if properties else None

    def _open(self, name: str, destination: Destination) -> None:
        inbox = self._inbox[name] = []
        consumer = self._connection.subscribe(
            ConsumerRequest(destination=destination), lambda delivery: inbox.append(view(delivery.message))
        )
        consumer.start()

    def _receive(self, destination: Destination) -> OpenWireMessage:
        found: list[OpenWireMessage] = []

        def deliver(delivery: Any) -> None:
            found.append(view(delivery.message))
            deliveries.append(delivery)

        deliveries: list[Any] = []
        consumer = self._connection.subscribe(ConsumerRequest(destination=destination, prefetch=1), deliver)
        consumer.start()
        consumer.acknowledge(deliveries[0])
        consumer.close()
        return found[0]

    def _compare(self, message: OpenWireMessage, result: str) -> None:
        """Compare with a line such as `{ActiveMQTextMessage id=… dest=queue://g06 corr=null … text="x"}`."""
        wanted = dict(re.findall(r" (\w+)=(\"[^\"]*\"|\{[^}]*\}|\S+)", result.removesuffix("}")))
        assert result.startswith(f"{{ActiveMQ{message.type.name.capitalize()}Message "), result
        assert _without_number(str(message.destination)) == _without_number(wanted["dest"])
        assert _quoted(message.correlation_id) == wanted["corr"]
        assert _quoted(message.jms_type) == wanted["type"]
        assert str(message.expiration) == wanted["exp"]
        assert str(message.priority) == wanted["prio"]
        assert str(2 if message.persistent else 1) == wanted["mode"]
        assert (str(message.reply_to) if message.reply_to else "null") == wanted["reply"]
        assert f"{message.group_id or 'null'}/{message.group_sequence}" == wanted["group"]
        properties = dict(re.findall(r'"([^"]+)":UTF8Buffer "([^"]*)"', wanted["props"]))
        if properties.get("transformation-error") == "":
            properties["transformation-error"] = message.properties["transformation-error"]  # ours names what is wrong
        assert dict(message.properties) == properties
        if message.type is MessageType.BYTES:
            assert message.body_bytes().hex() == wanted["bytes"]
        elif message.type is MessageType.MAP:
            assert message.map() == {"n": 5, "name": "v"}
        elif message.type is MessageType.OBJECT:
            assert read_object(message.body_bytes()) == "hello"
        else:
            assert json.dumps(message.text()) == wanted["text"]
        if int(wanted["ts"]) < NOW_MS // 2:
            assert str(message.timestamp) == wanted["ts"]


def _without_number(destination: str) -> str:
    """Cut what temporary destinations are counted by: each connection's own number there, the broker's here."""
    return re.sub(r"^(temp-.*:)\d+$", r"\1…", destination)


def _quoted(text: str | None) -> str:
    return "null" if text is None else f'"{text}"'


def _bodied(kind: MessageType) -> Any:
    def set_body(message: OpenWireMessage, text: str) -> None:
        message.type = kind
        if kind is MessageType.BYTES:
            message.content = text.encode()

    return set_body


def _texted(fixed: str | None) -> Any:
    def set_body(message: OpenWireMessage, text: str) -> None:
        message.type = MessageType.TEXT
        message.content = encode_text(text if fixed is None else fixed)

    return set_body


def _mapped(**entries: Any) -> Any:
    def set_body(message: OpenWireMessage, _: str) -> None:
        message.type = MessageType.MAP
        message.content = encode_map(entries)

    return set_body


def _serialised(value: Any) -> Any:
    def set_body(message: OpenWireMessage, _: str) -> None:
        message.type = MessageType.OBJECT
        message.content = write_object(value)

    return set_body


_MAP_VALUES = {
    "b": True, "s": "str<&>", "c": Char("x"), "d": 1.5, "sh": Short(4), "f": Float(2.5), "by": Byte(3), "i": 7,
    "y": b"\1\2\3", "l": Long(8), "n": None,
}  # fmt: skip

_JMS_BODIES = {
    "text": _texted(None),
    "nulltext": _bodied(MessageType.TEXT),
    "utf": _texted("héllo € 😀 nul\0end"),
    "bytes": _bodied(MessageType.BYTES),
    "map": _mapped(**_MAP_VALUES),
    "map1": _mapped(name="value"),
    "emptymap": _mapped(),
    "object": _serialised("a string"),
    "objint": _serialised(42),
    "stream": _bodied(MessageType.STREAM),
    "plain": _bodied(MessageType.MESSAGE),
}

_JMS_VALUES = {
    "": str,
    "int": int,
    "bool": lambda text: text == "true",
    "double": float,
    "float": lambda text: Float(text),
    "long": lambda text: Long(text),
    "byte": lambda text: Byte(text),
    "null": lambda _: None,
}


# ---------------------------------------------------------------- comparing

VOLATILE = {"message-id", "ack", "session", "timestamp"}
ERROR_HEADERS = {"message", "receipt-id", "content-type"}


def comparable(frame: str) -> tuple[str, dict[str, str], str]:
    """Return what of a frame must be the same in every run and in both brokers."""
    head, _, body = frame.partition("\n\n")
    command, *lines = head.split("\n")
    headers = {name: value for name, _, value in (line.partition(":") for line in lines)}
    for name in VOLATILE & headers.keys():
        headers[name] = "…"
    if headers.get("expires", "0") != "0":
        headers["expires"] = "…"
    if command == "CONNECTED":
        headers["server"] = headers["server"].partition("/")[2] and "…"
    if command == "ERROR":
        headers = {name: value for name, value in headers.items() if name in ERROR_HEADERS}
        body = "…"
    if headers.get(bodies.ERROR) == bodies.STREAM_ERROR:
        del headers[bodies.ERROR]  # ActiveMQ does not report why the body is empty
    if "reply-to" in headers:
        headers["reply-to"] = re.sub(r"(/remote-temp-queue/).*", r"\1…", headers["reply-to"])
    message = headers.get("message", "")
    headers["message"] = re.sub(r"message-id \[[^\]]*\]", "message-id […]", message)
    return command, headers, body


def _is_message(frame: tuple[str, dict[str, str], str]) -> bool:
    return frame[0] == "MESSAGE"


def frames_of(event: dict[str, Any]) -> list[str]:
    """Return a server's frames as text.

    ActiveMQ shows Java's modified UTF-8 as it is: C0 80 for a NUL, surrogates one by one. Ours is proper UTF-8, with
    a length where there is a NUL.
    """
    raw = event["text"].encode() if "text" in event else bytes.fromhex(event["hex"])
    frames = raw.removesuffix(b"\0\n").split(b"\0\n")
    halves = [frame.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass") for frame in frames]
    return [half.encode("utf-16", "surrogatepass").decode("utf-16") for half in halves]


def steps(events: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[int, list[str]], set[int]]]:
    """Yield each client action, with what each connection received and which the server closed before the next."""
    index = 0
    while index < len(events):
        event = events[index]
        index += 1
        received: dict[int, list[str]] = {}
        closed: set[int] = set()
        while index < len(events) and (events[index].get("dir") == "S" or events[index].get("closed") == "server"):
            following = events[index]
            if "dir" in following:
                received.setdefault(following["conn"], []).extend(frames_of(following))
            else:
                closed.add(following["conn"])
            index += 1
        yield event, received, closed


def deviation(scenario: str, event: dict[str, Any]) -> Deviation | None:
    for each in DEVIATIONS:
        concerned = each.connection in (None, event.get("conn"))
        if concerned and each.scenario == scenario and each.client_text in event.get("text", ""):
            return each
    return None


SCENARIOS = [path.stem for path in sorted(GOLDEN.glob("*.json")) if path.stem[:2] not in {"18", "19", "20"}]
"""18 is a matter of time (see the unit tests of heart-beats); 19 needs users; 20 lists what else
was in that broker, and the unit tests of transformations compare the bodies of advisories."""


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_session_answers_as_activemq_does(scenario: str) -> None:
    broker = new_broker()
    jms = JmsClient(broker)
    for index in range(WAITING.get(scenario[:2], 0)):
        jms.act(f"send(queue://g{scenario[:2]}, text, m{index}, )", "sent")
    clients: dict[int, StompClient] = {}
    for event, received, closed in steps(json.loads((GOLDEN / f"{scenario}.json").read_text())["events"]):
        differs = deviation(scenario, event)
        if differs is not None and differs.answers is None:
            continue
        if "open" in event:
            clients[event["conn"]] = StompClient(broker, event["conn"])
        elif event.get("closed") == "client":
            clients[event["conn"]].session.lost()
        elif "jms" in event:
            jms.act(event["jms"], event["result"])
        elif event.get("dir") == "C":
            clients[event["conn"]].send(event)
        check(event, differs, received, closed, clients)


def check(
    event: dict[str, Any],
    differs: Deviation | None,
    received: dict[int, list[str]],
    closed: set[int],
    clients: dict[int, StompClient],
) -> None:
    answers = {number: client.receive() for number, client in clients.items()}
    if differs is not None:
        ours = answers[event["conn"]]
        assert len(ours) == len(differs.answers or ()), ours
        for frame, pattern in zip(ours, differs.answers or (), strict=True):
            assert re.match(pattern, frame), frame
    else:
        for number, frames in answers.items():
            ours_comparable = [comparable(frame) for frame in frames]
            theirs = [comparable(frame) for frame in received.get(number, [])]
            if event.get("text", "").count("\0") > 1:  # pipelined: receipts and messages overtake one another
                ours_comparable.sort(key=_is_message)
                theirs.sort(key=_is_message)
            for our, their in zip(ours_comparable, theirs, strict=False):
                if "content-length" not in their[1] and "\0" in their[2]:
                    our[1].pop("content-length")
                assert our == their, event
            assert ours_comparable == theirs, event
    for number in closed:
        assert clients[number].link.closed is not (differs is not None and differs.stays_open)
