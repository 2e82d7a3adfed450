"""Bridges in each direction between pybroker and a stock ActiveMQ, one way each: one table of rows and pairs.

The rows run in a pair of brokers that has two connectors, `nc` from the near broker to the far one and `back` the other
way round, as ActiveMQ's documentation has it for request and reply. Each row has destinations of its own.
"""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from pybroker.client.errors import DestinationRefused, Timeout
from pybroker.client.messages import Message
from pybroker.client.sync import Connection, Consumer, connect
from tests.integration.activemq_broker import ActiveMQProcess
from tests.integration.cluster import free_port
from tests.integration.stomp_client import StompClient
from tests.java.checks import Programs
from tests.java.installations import FollowedBroker
from tests.java.proxy import Proxy

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(180)]

SECONDS = 30.0
PROBE_SECONDS = 0.2
"""The time for which a message to a topic is given a chance to come, before the next one is sent."""
QUIET_SECONDS = 1.0
"""The time in which a message that must not come would have come."""
CUTS = 5
CUT_MESSAGES = 500
DELAYS = "initialReconnectDelay=50&maxReconnectDelay=200"


class End:
    """One broker of a pair, and clients of it."""

    def __init__(self) -> None:
        self.openwire, self.stomp = free_port(), free_port()
        self.uri = f"tcp://127.0.0.1:{self.openwire}"
        self.connection: Connection

    def start(self, kind: str, name: str, connector: str, uri: str, directory: Path, class_path: str) -> ExitStack:
        """Start the broker and its network connector, and return what ends it."""
        stack = ExitStack()
        uri = f"static:({uri})?{DELAYS}"
        if kind == "activemq":
            policy = f"network={connector}:{uri}"
            broker = ActiveMQProcess(
                class_path, directory / name, policies=(policy,), openwire=self.openwire, stomp=self.stomp
            )
            stack.enter_context(closing(broker)).wait()
            return stack
        config = directory / f"{name}.toml"
        config.write_text(f'[[network]]\nname = "{connector}"\nuri = "{uri}"\n')
        extra = ("--openwire", str(self.openwire), "--config", str(config))
        ours = FollowedBroker(str(directory / name), name=name, port=self.stomp, extra=extra)
        stack.enter_context(closing(ours)).wait_for("listening on")
        return stack

    def texts(self, destination: str, *bodies: str, **headers: object) -> None:
        """Send persistent texts."""
        for body in bodies:
            self.connection.send(destination, body, timeout=SECONDS, **headers)  # type: ignore[arg-type]

    def consumer(self, destination: str, **options: object) -> Consumer:
        """Subscribe."""
        return self.connection.consumer(destination, timeout=SECONDS, **options)  # type: ignore[arg-type]


class BridgedPair:
    """Two brokers that bridge to each other; the near one's bridge can be cut."""

    def __init__(self, kinds: tuple[str, str], directory: Path, class_path: str, stack: ExitStack) -> None:
        self.near, self.far = End(), End()
        self.proxy = stack.enter_context(closing(Proxy(lambda: self.far.openwire)))
        far = self.far.start(kinds[1], "far", "back", self.near.uri, directory, class_path)
        stack.enter_context(far)
        self.far.connection = stack.enter_context(connect(self.far.uri))
        self.early = self.far.consumer("EARLY")
        """Of a queue of the far broker, from before the bridge."""
        stack.enter_context(
            self.near.start(kinds[0], "near", "nc", f"tcp://127.0.0.1:{self.proxy.port}", directory, class_path)
        )
        self.near.connection = stack.enter_context(connect(self.near.uri))


KINDS = {
    "activemq to pybroker": ("activemq", "pybroker"),
    "pybroker to activemq": ("pybroker", "activemq"),
    "pybroker to pybroker": ("pybroker", "pybroker"),
}


@pytest.fixture(scope="module")
def pair(
    request: pytest.FixtureRequest, programs: Programs, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BridgedPair]:
    with ExitStack() as stack:
        yield BridgedPair(KINDS[request.param], tmp_path_factory.mktemp("pair"), programs.class_path, stack)


def read(consumer: Consumer, count: int) -> list[str]:
    """Return the next texts."""
    return [text_of(consumer.receive(timeout=SECONDS)) for _ in range(count)]


def text_of(message: Message) -> str:
    body = message.body
    return body.decode() if isinstance(body, bytes) else str(body)


def prove(consumer: Consumer, send: Callable[[str], None]) -> None:
    """Send probes to a topic until one comes: then the demand has arrived, and what follows comes, too."""
    for number in range(int(SECONDS / PROBE_SECONDS)):
        send(f"probe {number}")
        try:
            consumer.receive(timeout=PROBE_SECONDS)
        except Timeout:
            continue
        return
    raise AssertionError("no message of the topic came over the bridge")


def without_probes(consumer: Consumer, count: int) -> list[str]:
    """Return the next texts that are no probes."""
    found: list[str] = []
    while len(found) < count:
        found += [each for each in read(consumer, 1) if not each.startswith("probe")]
    return found


# ---------------------------------------------------------------- rows


def early_demand(pair: BridgedPair) -> None:
    pair.near.texts("EARLY", "1", "2")
    assert read(pair.early, 2) == ["1", "2"]


def late_demand(pair: BridgedPair) -> None:
    pair.near.texts("LATE", "1", "2")
    with pair.far.consumer("LATE") as consumer:
        assert read(consumer, 2) == ["1", "2"]
        pair.near.texts("LATE", "3")
        assert read(consumer, 1) == ["3"]


def non_persistent(pair: BridgedPair) -> None:
    expected = [str(number) for number in range(50)]
    pair.near.texts("QUICK", *expected, persistent=False)
    with pair.far.consumer("QUICK") as consumer:
        assert read(consumer, 50) == expected


def topic(pair: BridgedPair) -> None:
    with pair.far.consumer("topic://NEWS") as one, pair.far.consumer("topic://NEWS") as other:
        prove(one, lambda text: pair.near.texts("topic://NEWS", text))
        pair.near.texts("topic://NEWS", "1", "2")
        assert without_probes(one, 2) == without_probes(other, 2) == ["1", "2"]


def selector(pair: BridgedPair) -> None:
    with pair.far.consumer("CHOSEN", selector="colour = 'red'") as consumer:
        for text, colour in (("1", "blue"), ("2", "red"), ("3", "blue"), ("4", "red")):
            pair.near.texts("CHOSEN", text, properties={"colour": colour})
        assert read(consumer, 2) == ["2", "4"]


def wildcard(pair: BridgedPair) -> None:
    with pair.far.consumer("WILD.>") as consumer:
        pair.near.texts("WILD.A", "1")
        assert read(consumer, 1) == ["1"]
        pair.near.texts("WILD.B.C", "2")
        assert read(consumer, 1) == ["2"]


def composite(pair: BridgedPair) -> None:
    with pair.far.consumer("PART.A,PART.B") as consumer:
        pair.near.texts("PART.A", "1")
        assert read(consumer, 1) == ["1"]
        pair.near.texts("PART.B", "2")
        assert read(consumer, 1) == ["2"]


def durable(pair: BridgedPair) -> None:
    """What is sent while the subscriber is away waits for it, although the bridge was cut meanwhile."""
    with connect(pair.far.uri, client_id="reader") as client:
        with client.consumer("topic://JOURNAL", durable="log") as consumer:
            prove(consumer, lambda text: pair.near.texts("topic://JOURNAL", text))
        pair.near.texts("topic://JOURNAL", "1")
        pair.proxy.cut()
        pair.near.texts("topic://JOURNAL", "2")
        with client.consumer("topic://JOURNAL", durable="log") as consumer:
            assert without_probes(consumer, 2) == ["1", "2"]
        client.unsubscribe("log", timeout=SECONDS)


def reply_to_the_near_end(pair: BridgedPair) -> None:
    replies(requester=pair.near, replier=pair.far, service="SERVICE.FAR")


def reply_to_the_far_end(pair: BridgedPair) -> None:
    replies(requester=pair.far, replier=pair.near, service="SERVICE.NEAR")


def replies(*, requester: End, replier: End, service: str) -> None:
    """Send requests, each of which is answered over the bridge in the other direction."""

    def serve() -> None:
        with replier.consumer(service) as consumer:
            for _ in range(3):
                answer(replier, consumer.receive(timeout=SECONDS))

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    answers = [requester.connection.request(service, str(n), timeout=SECONDS).body for n in range(3)]
    server.join(SECONDS)
    assert answers == ["re: 0", "re: 1", "re: 2"]


def answer(replier: End, request: Message) -> None:
    """Reply to a request, which may overtake the advisory of its temporary queue: they come over two connections."""
    assert request.reply_to is not None
    assert request.correlation_id is not None
    for _ in range(int(SECONDS / PROBE_SECONDS)):
        try:
            replier.connection.send(
                request.reply_to, f"re: {request.body}", correlation_id=request.correlation_id, timeout=SECONDS
            )
        except DestinationRefused:
            threading.Event().wait(PROBE_SECONDS)
        else:
            return
    raise AssertionError(f"{request.reply_to} is not known at the other end")


def cuts(pair: BridgedPair) -> None:
    """Nothing persistent is lost, and nothing comes twice, although the bridge is cut at random."""
    expected = [str(number) for number in range(CUT_MESSAGES)]
    moments = {random.randrange(CUT_MESSAGES): None for _ in range(CUTS)}
    with pair.far.consumer("CUTS", ack="individual") as consumer:
        found: list[str] = []
        pair.near.texts("CUTS", *expected)
        while len(found) < CUT_MESSAGES:
            if len(found) in moments:
                pair.proxy.cut()
            message = consumer.receive(timeout=SECONDS)
            message.ack()
            found.append(text_of(message))
        assert sorted(found, key=int) == expected, "once each"
        with pytest.raises(Timeout):
            consumer.receive(timeout=QUIET_SECONDS)


def loop_rule(pair: BridgedPair) -> None:
    """A message does not go back to the broker that it came from, even if its only consumer is there."""
    with pair.far.consumer("LOOP", ack="individual") as consumer:
        pair.near.texts("LOOP", "1")
        assert read(consumer, 1) == ["1"]
    with pair.near.consumer("LOOP") as elsewhere, pytest.raises(Timeout):
        elsewhere.receive(timeout=QUIET_SECONDS)
    with pair.far.consumer("LOOP") as consumer:
        message = consumer.receive(timeout=SECONDS)
        assert (message.body, message.redelivered) == ("1", True)


def fields(pair: BridgedPair) -> None:
    """Headers and properties come as they were sent."""
    headers = {"priority": 7, "type": "invoice", "correlation_id": "c-1", "group_id": "g", "properties": {"n": 3}}
    pair.near.texts("FIELDS", "x", reply_to="ANSWERS", **headers)
    with pair.far.consumer("FIELDS") as consumer:
        message = consumer.receive(timeout=SECONDS)
    assert {name: getattr(message, name) for name in headers} == headers
    assert (str(message.reply_to), message.persistent, message.redelivered) == ("queue://ANSWERS", True, False)


def stomp_to_openwire(pair: BridgedPair) -> None:
    with closing(StompClient(pair.near.stomp)) as client:
        client.request("SEND", b"text", destination="/queue/MIXED.A", persistent="true", colour="red")
        client.request("SEND", b"\0\xff", destination="/queue/MIXED.A", persistent="true", content_length="2")
    with pair.far.consumer("MIXED.A") as consumer:
        text, data = (consumer.receive(timeout=SECONDS) for _ in range(2))
    assert (text.body, text.properties["colour"], data.body) == ("text", "red", b"\0\xff")


def openwire_to_stomp(pair: BridgedPair) -> None:
    pair.near.texts("MIXED.B", "text", properties={"colour": "red"})
    pair.near.connection.send("MIXED.B", b"\0\xff", timeout=SECONDS)
    with closing(StompClient(pair.far.stomp)) as client:
        client.send("SUBSCRIBE", id="1", destination="/queue/MIXED.B")
        text, data = (client.read_until("MESSAGE") for _ in range(2))
    assert (text.body, text.headers["colour"], data.body) == (b"text", "red", b"\0\xff")


ROWS = (
    early_demand,
    late_demand,
    non_persistent,
    topic,
    selector,
    wildcard,
    composite,
    durable,
    reply_to_the_near_end,
    reply_to_the_far_end,
    cuts,
    loop_rule,
    fields,
    stomp_to_openwire,
    openwire_to_stomp,
)


NOT_SERVED = {
    ("activemq to pybroker", reply_to_the_near_end),
    ("pybroker to activemq", reply_to_the_far_end),
    ("pybroker to pybroker", reply_to_the_near_end),
    ("pybroker to pybroker", reply_to_the_far_end),
}
"""Cells in which a reply would leave pybroker: its connectors do not serve temporary destinations yet."""

CELLS = [(kinds, row) for kinds in KINDS for row in ROWS if (kinds, row) not in NOT_SERVED]


@pytest.mark.parametrize(
    ("pair", "row"), CELLS, indirect=["pair"], ids=[f"{kinds}, {row.__name__}" for kinds, row in CELLS]
)
def test_row_holds_for_each_pair(pair: BridgedPair, row: Callable[[BridgedPair], None]) -> None:
    row(pair)
