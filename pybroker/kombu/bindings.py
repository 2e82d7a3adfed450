"""Routing by virtual topics: the destinations of exchanges and bindings.

The broker routes, so that a publisher need not know the bindings of other processes:

```text
publish to exchange E with key k       topic  VirtualTopic.kombu.E.k
publish to a fanout exchange E         topic  VirtualTopic.kombu.E
binding of queue Q to E with key k     queue  Consumer.Q.VirtualTopic.kombu.E.k     `*` stays, a last `#` becomes `>`
binding to a fanout exchange           queue  Consumer.Q.VirtualTopic.kombu.E.>     also for publishers that do not know
                                                                                    that the exchange is a fanout
transient queue, its bindings          the topic itself, by a consumer that ends with the connection
```

E and Q are one level each (`names`). A `#` before the last word has no form in the broker's patterns: the binding takes
everything from there on, and `Binding.accepts` checks the rest on receipt.

A queue is transient if it is exclusive, or deleted automatically and not durable: it need not survive its connection.
Celery's queues of remote control and of events are. They leave nothing behind, even if the process is killed. A queue
of a virtual topic would stay, and grow.

KombuSource: ActiveMQ 5.17, "Virtual Destinations"; AMQP 0-9-1, "topic" exchanges. The module does no I/O.
"""

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from pybroker.broker.domain.destination import Destination, queue, topic
from pybroker.kombu.names import encode_level, encode_name

TOPIC_PREFIX: Final = "VirtualTopic.kombu"


class ExchangeKind(enum.Enum):
    """The types of exchanges that have a form in virtual topics."""

    DIRECT = "direct"
    TOPIC = "topic"
    FANOUT = "fanout"


def queue_destination(name: str) -> Destination:
    """Return the destination of a queue: of its messages from the default exchange, and from other languages."""
    return queue(encode_name(name))


def publish_destination(exchange: str, kind: ExchangeKind, routing_key: str) -> Destination:
    """Return the destination to send a message to that is published to a named exchange."""
    prefix = f"{TOPIC_PREFIX}.{encode_level(exchange)}"
    if kind is ExchangeKind.FANOUT:
        return topic(prefix)
    return topic(f"{prefix}.{encode_name(routing_key)}")


@dataclass(frozen=True)
class Binding:
    """A binding of a queue to an exchange.

    Attributes:
        queue: the queue's name.
        exchange: the exchange's name.
        kind: the exchange's type.
        key: the routing key; for a topic exchange a pattern.
    """

    queue: str
    exchange: str
    kind: ExchangeKind
    key: str

    @cached_property
    def topic(self) -> Destination:
        """The topic or pattern of topics that the binding takes."""
        return topic(f"{TOPIC_PREFIX}.{encode_level(self.exchange)}.{'.'.join(self._levels())}")

    @cached_property
    def destination(self) -> Destination:
        """The queue in which the broker collects the binding's messages."""
        return queue(f"Consumer.{encode_level(self.queue)}.{self.topic.name}")

    def accepts(self, routing_key: str) -> bool:
        """Return True if a message of `topic` with this key belongs to the binding."""
        return not self._is_inexact or matches_key(self.key, routing_key)

    @cached_property
    def _is_inexact(self) -> bool:
        """True if the broker's pattern covers more keys than the binding."""
        return self.kind is ExchangeKind.TOPIC and "#" in self.key.split(".")[:-1]

    def _levels(self) -> Iterator[str]:
        if self.kind is ExchangeKind.FANOUT:
            yield ">"
            return
        for word in self.key.split("."):
            if self.kind is ExchangeKind.TOPIC and word == "#":
                yield ">"
                return
            yield "*" if self.kind is ExchangeKind.TOPIC and word == "*" else encode_name(word)


def matches_key(pattern: str, routing_key: str) -> bool:
    """Return True if a topic exchange routes a message by a binding key: `*` is one word, `#` any number of words.

    The time is at most proportional to the product of both lengths.
    """
    wanted, words = pattern.split("."), routing_key.split(".") if routing_key else []
    at = position = 0
    hash_at, resume = -1, 0  # the latest `#`, and the first word that it did not take
    while position < len(words):
        if at < len(wanted) and wanted[at] == "#":
            hash_at, resume, at = at, position, at + 1
        elif at < len(wanted) and wanted[at] in ("*", words[position]):
            at, position = at + 1, position + 1
        elif hash_at >= 0:  # let the latest `#` take one word more
            resume += 1
            at, position = hash_at + 1, resume
        else:
            return False
    return all(word == "#" for word in wanted[at:]) or (not words and wanted == [""])
