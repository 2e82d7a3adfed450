"""Measurements: one row for each way to load a broker, with the ratio it has to reach.

All messages have three string properties, but for those of MQTT. OpenWire rows run in the stock Java client with its
defaults except `useAsyncSend`, and send BytesMessages; STOMP rows send text from raw sockets. MQTT rows publish with
QoS 1 to a subscriber whose session lasts; AMQP rows send durable data and wait for `accepted`. Where there are
consumers, they run while the producers send, and the time ends with the last message received. Counts are about five
seconds of ActiveMQ's time on two cores, warming up takes about three times that: its Java machine goes on compiling for
so long. The counts of a quick run only show that it works.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

SMALL_BYTES = 1024
LARGE_BYTES = 100_000

CPU_RATIO_MAX = 0.5
"""The processor time per message must be at most this share of ActiveMQ's."""

PEAK_RATIO_MAX = 0.2
"""The peak memory must be at most this share of ActiveMQ's."""


class Protocol(Enum):
    """Protocol of the clients."""

    OPENWIRE = "openwire"
    STOMP = "stomp"
    MQTT = "mqtt"
    AMQP = "amqp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """A client's times: of all messages, and of one send or, with transactions, one commit."""

    seconds: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One way to load a broker.

    Attributes:
        key: what the command line calls it.
        title: for the table.
        count: messages sent in a repetition, over all producers.
        warm: messages sent before anything is measured, in the first repetition; a tenth before each other one.
        least_ratio: the messages per second pybroker has to reach, over the other's; None: more than the other's.
        producers: connections that send.
        consumers: connections that receive at the same time; they share a queue, and each gets all of a topic.
        window: STOMP, MQTT and AMQP: receipts, PUBACKs or dispositions that may be outstanding.
        asynchronous: the client does not wait for the broker's answer to a persistent send.
        ahead: how many messages the producers may be ahead of the consumers, 0 for any number. It keeps an asynchronous
            row from measuring how long a backlog gets.
        per_commit: messages in each transaction, on either side; 0 for none.
        bridged: two brokers of a kind, of which the first bridges to the second: the producers are at the first one,
            the consumers at the second, and the figures are those of both.
        duplex: the bridge is duplex, and every other producer and consumer are the other way round, with a queue of
            their own.
    """

    key: str
    title: str
    count: int
    warm: int
    least_ratio: float | None = None
    protocol: Protocol = Protocol.OPENWIRE
    producers: int = 1
    consumers: int = 1
    window: int = 0
    persistent: bool = True
    asynchronous: bool = False
    topic: bool = False
    body_bytes: int = SMALL_BYTES
    ahead: int = 0
    per_commit: int = 0
    bridged: bool = False
    duplex: bool = False

    def reaches(self, ratio: float) -> bool:
        """Return True if that is fast enough."""
        return ratio > 1 if self.least_ratio is None else ratio >= self.least_ratio

    @property
    def target(self) -> str:
        """The least ratio, for people."""
        return "> 1" if self.least_ratio is None else f">= {self.least_ratio:g}"

    def scaled(self, factor: float) -> "Row":
        """Return the row with more or fewer messages: a multiple of what its producers and transactions need."""
        step = self.producers * max(self.per_commit, 1)

        def whole(count: int) -> int:
            return max(1, round(count * factor / step)) * step

        return replace(self, count=whole(self.count), warm=whole(self.warm))


ROWS = (
    Row(key="sync-1", title="persistent, synchronous, 1 producer", count=8_000, warm=20_000, least_ratio=1.5),
    Row(key="sync-8", title="persistent, synchronous, 8 producers, 8 consumers", count=24_000, warm=64_000,
        producers=8, consumers=8, least_ratio=1.5),
    Row(key="backlog-8", title="persistent, synchronous, 8 producers, nobody consumes", count=16_000, warm=32_000,
        producers=8, consumers=0, least_ratio=2.0),
    Row(key="async", title="persistent, asynchronous", count=50_000, warm=120_000, asynchronous=True, ahead=5_000,
        least_ratio=1.2),
    Row(key="transacted", title="persistent, transacted, 100 a commit", count=40_000, warm=100_000, per_commit=100,
        least_ratio=1.2),
    Row(key="non-persistent", title="non-persistent", count=60_000, warm=150_000, persistent=False, ahead=5_000),
    Row(key="topic-10", title="topic, non-persistent, 1 to 10", count=15_000, warm=40_000, persistent=False,
        topic=True, consumers=10, ahead=5_000),
    Row(key="sync-1-large", title="100 KB: persistent, synchronous, 1 producer", count=2_000, warm=6_000,
        body_bytes=LARGE_BYTES, least_ratio=1.5),
    Row(key="async-large", title="100 KB: persistent, asynchronous", count=3_000, warm=9_000, asynchronous=True,
        least_ratio=1.2, body_bytes=LARGE_BYTES, ahead=100),
    Row(key="non-persistent-large", title="100 KB: non-persistent", count=5_000, warm=10_000, persistent=False,
        body_bytes=LARGE_BYTES, ahead=100),
    Row(key="topic-10-large", title="100 KB: topic, non-persistent, 1 to 10", count=1_000, warm=3_000,
        persistent=False, topic=True, consumers=10, body_bytes=LARGE_BYTES, ahead=100),
    Row(key="bridge", title="persistent, over a bridge between two brokers", count=6_000, warm=15_000,
        asynchronous=True, ahead=5_000, bridged=True, least_ratio=1.5),
    Row(key="bridge-duplex", title="persistent, both ways over a duplex bridge", count=6_000, warm=15_000,
        producers=2, consumers=2, asynchronous=True, ahead=5_000, bridged=True, duplex=True, least_ratio=1.5),
    Row(key="stomp-1", title="STOMP: persistent, a receipt each, window 1", count=6_000, warm=18_000,
        protocol=Protocol.STOMP, window=1, least_ratio=2.0),
    Row(key="stomp-100", title="STOMP: persistent, a receipt each, window 100", count=15_000, warm=30_000,
        protocol=Protocol.STOMP, window=100, least_ratio=2.0),
    Row(key="stomp-1-backlog", title="the same with window 1, nobody consumes", count=6_000, warm=18_000,
        protocol=Protocol.STOMP, consumers=0, window=1),
    Row(key="stomp-100-backlog", title="the same with window 100, nobody consumes", count=15_000, warm=30_000,
        protocol=Protocol.STOMP, consumers=0, window=100),
    Row(key="mqtt-1", title="MQTT: QoS 1, window 1", count=6_000, warm=18_000, protocol=Protocol.MQTT, window=1,
        least_ratio=1.5),
    Row(key="mqtt-100", title="MQTT: QoS 1, window 100", count=30_000, warm=60_000, protocol=Protocol.MQTT, window=100,
        least_ratio=1.5),
    Row(key="amqp-1", title="AMQP: durable, window 1, beside RabbitMQ", count=6_000, warm=6_000,
        protocol=Protocol.AMQP, window=1, least_ratio=1.0),
    Row(key="amqp-100", title="AMQP: durable, window 100, beside RabbitMQ", count=30_000, warm=30_000,
        protocol=Protocol.AMQP, window=100, least_ratio=1.0),
)  # fmt: skip

QUICK_ROWS = ("sync-1", "topic-10", "stomp-100")
QUICK_FACTOR = 0.005


def chosen(keys: Sequence[str], factor: float) -> list[Row]:
    """Return these rows, or all if none is named, in the table's order and scaled. `ValueError`: no such key."""
    if strange := set(keys) - {row.key for row in ROWS}:
        raise ValueError(f"no row {', '.join(sorted(strange))}; there are {', '.join(row.key for row in ROWS)}")
    return [row.scaled(factor) for row in ROWS if not keys or row.key in keys]
