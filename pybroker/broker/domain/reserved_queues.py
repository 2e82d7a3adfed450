"""The queues on which the broker keeps records of its own in the store: one persistent message per key, the newest.

```text
queue                   key         body                                  message id
ActiveMQ.Retained       topic       the retained message, marshalled      retained:<topic>:1:1:<number>
ActiveMQ.MQTT.Session   client id   the session in JSON                   mqtt-session:<client id>:1:1:<number>
ActiveMQ.Bridged        producer    numbers accepted from bridges         bridged:<producer>:1:1:<number>
```

The key is in the message id, so that a new master finds all keys without reading bodies. It is in the correlation id
too, for operators who browse the queue with an ActiveMQ, to which it is a queue like any other.
"""

from typing import Final, NamedTuple

from pybroker.broker.domain.destination import Destination, queue, topic

_PRODUCER: Final = ":1:1"
"""The session and the number of the producer in each id."""


class RecordId(NamedTuple):
    """The parts of a record's message id.

    Attributes:
        key: the key of the record.
        number: the highest number of a key belongs to its newest record.
    """

    key: str
    number: int


class ReservedQueue(NamedTuple):
    """One of the queues.

    Attributes:
        destination: the queue.
        prefix: the begin of the ids of its messages.
        is_of_topics: True if the keys are names of topics, which an ActiveMQ shows as original destinations.
    """

    destination: Destination
    prefix: str
    is_of_topics: bool = False

    def about(self, key: str) -> Destination | None:
        """Return the original destination of a key's records."""
        return topic(key) if self.is_of_topics else None

    def connection_id(self, key: str) -> str:
        """Return the connection id in the ids of a key's records."""
        return self.prefix + key

    def message_id(self, record: RecordId) -> str:
        """Return the id of a record's message, as the store knows it."""
        return f"{self.prefix}{record.key}{_PRODUCER}:{record.number}"

    def record_id(self, message_id: str) -> RecordId | None:
        """Return what is in a message id; None: a client of an ActiveMQ has sent this message."""
        producer, _, number = message_id.rpartition(":")
        if not producer.startswith(self.prefix) or not producer.endswith(_PRODUCER) or not number.isdecimal():
            return None
        return RecordId(producer[len(self.prefix) : -len(_PRODUCER)], int(number))


RETAINED_RECORDS: Final = ReservedQueue(queue("ActiveMQ.Retained"), "retained:", is_of_topics=True)
"""The retained messages of topics."""

SESSION_RECORDS: Final = ReservedQueue(queue("ActiveMQ.MQTT.Session"), "mqtt-session:")
"""The sessions of MQTT clients."""

BRIDGED_RECORDS: Final = ReservedQueue(queue("ActiveMQ.Bridged"), "bridged:")
"""Which messages have come over bridges, by original producer and destination."""

_ALL: Final = (RETAINED_RECORDS, SESSION_RECORDS, BRIDGED_RECORDS)

RESERVED_QUEUES: Final = frozenset([each.destination for each in _ALL])

RECORD_PREFIXES: Final = tuple([each.prefix for each in _ALL])
"""Producers whose ids begin so are no clients, and never send a message again."""
