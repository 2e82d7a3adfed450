"""Brokers of two kinds with bridges between them, and what rows of the interop matrix do at their ends."""

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from pybroker.client.errors import Timeout
from pybroker.client.messages import Message
from pybroker.client.sync import Connection, Consumer, connect
from tests.integration.activemq_broker import ActiveMQProcess
from tests.integration.cluster import free_port
from tests.java.checks import Programs
from tests.java.installations import FollowedBroker
from tests.java.proxy import Proxy

SECONDS = 30.0
PROBE_SECONDS = 0.2
"""The time for which a message to a topic is given a chance to come, before the next one is sent."""
QUIET_SECONDS = 1.0
"""The time in which a message that must not come would have come."""
DELAYS = "initialReconnectDelay=50&maxReconnectDelay=200"


@dataclass(frozen=True, kw_only=True)
class Connector:
    """A network connector."""

    name: str
    address: str
    is_duplex: bool = False
    ttl: int = 1
    replay_delay: int = 0
    """Milliseconds after which messages go back where no consumer is; 0: they do not."""

    @property
    def uri(self) -> str:
        """The discovery URI."""
        return f"static:({self.address})?{DELAYS}"

    def policies(self) -> tuple[str, ...]:
        """Return the arguments of a stock broker."""
        replay = (f"queue=> replayDelay={self.replay_delay}",) if self.replay_delay else ()
        return f"{'duplex' if self.is_duplex else 'network'}={self.name}:{self.uri}", f"networkTTL={self.ttl}", *replay

    def table(self) -> str:
        """Return the table of a pybroker."""
        lines = f'[[network]]\nname = "{self.name}"\nuri = "{self.uri}"\nnetwork_ttl = {self.ttl}\n'
        if self.replay_delay:
            lines += f'replay_when_no_consumers = true\nreplay_delay = "{self.replay_delay}ms"\n'
        return f"{lines}duplex = {str(self.is_duplex).lower()}\n"


class BridgedEnd:
    """One broker, and clients of it."""

    def __init__(self) -> None:
        """Choose the ports."""
        self.openwire, self.stomp = free_port(), free_port()
        self.uri = f"tcp://127.0.0.1:{self.openwire}"
        self.connection: Connection
        self.kind = ""
        """The broker: `activemq` or `pybroker`; empty before the start."""

    def start(self, kind: str, name: str, connector: Connector | None, directory: Path, class_path: str) -> ExitStack:
        """Start the broker and its network connector, and return what ends it."""
        stack, self.kind = ExitStack(), kind
        if kind == "activemq":
            policies = connector.policies() if connector else ()
            broker = ActiveMQProcess(
                class_path, directory / name, policies=policies, openwire=self.openwire, stomp=self.stomp
            )
            stack.enter_context(closing(broker)).wait()
        else:
            config = directory / f"{name}.toml"
            config.write_text(f'broker_name = "{name}"\n{connector.table() if connector else ""}')
            extra = ("--openwire", str(self.openwire), "--config", str(config))
            ours = FollowedBroker(str(directory / name), name=name, port=self.stomp, extra=extra)
            stack.enter_context(closing(ours)).wait_for("listening on")
        self.connection = stack.enter_context(connect(self.uri))
        return stack

    def texts(self, destination: str, *bodies: str, **headers: object) -> None:
        """Send persistent texts."""
        for body in bodies:
            self.connection.send(destination, body, timeout=SECONDS, **headers)  # type: ignore[arg-type]

    def consumer(self, destination: str, **options: object) -> Consumer:
        """Subscribe."""
        return self.connection.consumer(destination, timeout=SECONDS, **options)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Way:
    """One direction of a pair, with destinations of its own.

    Attributes:
        name: what the names of its destinations begin with.
        near: the broker that messages come from.
        far: the broker that they go to.
        early: a consumer of a queue of the far broker, from before the bridge.
        cut: breaks the bridge, which is opened again.
        programs: Java clients.
    """

    name: str
    near: BridgedEnd
    far: BridgedEnd
    early: Consumer
    cut: Callable[[], None]
    programs: Programs

    def queue(self, name: str) -> str:
        """Return the name of a queue."""
        return f"{self.name}.{name}"

    def topic(self, name: str) -> str:
        """Return the address of a topic."""
        return f"topic://{self.name}.{name}"


class BridgedPair:
    """Two brokers with a bridge that can be cut.

    Attributes:
        ways: by name: `there` from the broker with the connector `nc`, and `back`.
    """

    def __init__(
        self, kinds: tuple[str, str], directory: Path, programs: Programs, stack: ExitStack, *, is_duplex: bool
    ) -> None:
        """Start both, and let them connect when there is an early consumer at each end.

        Args:
            kinds: that of the broker with the connector, and that of the remote one.
            directory: gets the stores.
            programs: Java clients.
            stack: gets what ends the brokers.
            is_duplex: one connection for both directions; otherwise the remote broker has a connector, too.
        """
        near, far, gate = BridgedEnd(), BridgedEnd(), threading.Event()

        def far_port() -> int:
            gate.wait()
            return far.openwire

        stack.callback(gate.set)
        proxy = stack.enter_context(closing(Proxy(far_port)))
        back = None if is_duplex else Connector(name="back", address=near.uri)
        stack.enter_context(far.start(kinds[1], "far", back, directory, programs.class_path))
        there = Connector(name="nc", address=f"tcp://127.0.0.1:{proxy.port}", is_duplex=is_duplex)
        stack.enter_context(near.start(kinds[0], "near", there, directory, programs.class_path))
        self.ways: Mapping[str, Way] = {
            name: Way(
                name=name, near=one, far=other, early=other.consumer(f"{name}.EARLY"), cut=proxy.cut, programs=programs
            )
            for name, one, other in (("there", near, far), ("back", far, near))
        }
        gate.set()


def read(consumer: Consumer, count: int) -> list[str]:
    """Return the next texts."""
    return [text_of(consumer.receive(timeout=SECONDS)) for _ in range(count)]


def text_of(message: Message) -> str:
    """Return the body as text."""
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


def without_probes(consumer: Consumer, count: int, *, may_repeat: bool = False) -> list[str]:
    """Return the next texts that are no probes.

    With `may_repeat` a text that came before is left out, too, if it has the mark of redelivery: a stock broker gives a
    durable subscriber a second time what a bridge sends again after a lost answer.
    """
    found: list[str] = []
    while len(found) < count:
        message = consumer.receive(timeout=SECONDS)
        text = text_of(message)
        is_repeated = may_repeat and message.redelivered and text in found
        if not is_repeated and not text.startswith("probe"):
            found.append(text)
    return found


def rest(consumer: Consumer) -> list[str]:
    """Return what else comes, but for probes."""
    found: list[str] = []
    try:
        while True:
            found.append(text_of(consumer.receive(timeout=QUIET_SECONDS)))
    except Timeout:
        return [each for each in found if not each.startswith("probe")]
