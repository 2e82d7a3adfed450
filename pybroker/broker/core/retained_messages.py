"""The retained messages of all topics, as the store keeps them: for new masters, and for those that leave memory.

A retained message is a record (`record_queue`) under the name of its topic, whose body is the whole message,
marshalled. So a subscriber gets it from the next master as it was, with its id, its persistence and its expiration; and
the record, which has none, does not expire at an ActiveMQ that opens the store.

Messages that are not in memory are read back when subscribers ask for them; until then what is published goes before.
"""

import logging
from collections.abc import Callable, Iterable

from pybroker.broker.core.record_queue import RecordQueue
from pybroker.broker.domain.destination import Destination, topic
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.routing import routing

_log = logging.getLogger(__name__)

Receive = Callable[[Message | None], None]
"""Gets a message that was read back; None if there is none any more."""


class RetainedMessages:
    """The stored retained messages of one broker.

    Args:
        records: has them.
    """

    __slots__ = ("_records",)

    def __init__(self, records: RecordQueue) -> None:
        self._records = records

    def recover(self, message_ids: Iterable[str]) -> list[Destination]:
        """Take over the records of former masters; return their topics. No body is read."""
        self._records.recover(message_ids)
        return [found for found in map(topic, self._records) if not found.is_pattern and not found.is_composite]

    def __contains__(self, destination: Destination) -> bool:
        return destination.name in self._records

    @property
    def can_grow(self) -> bool:
        """False while the store has no space for new messages."""
        return self._records.can_grow

    @property
    def is_removing(self) -> bool:
        """True while a removal is not on disk yet."""
        return self._records.is_removing

    def put(self, destination: Destination, message: Message) -> None:
        """Append a topic's retained message, which replaces the former one.

        Raises:
            RequestError: the store cannot hold the topic's name.
        """
        self._records.put(destination.name, message.data)

    def remove(self, destination: Destination) -> None:
        """Append the removal of a topic's retained message; do nothing if there is none."""
        self._records.remove(destination.name)

    def refresh(self) -> None:
        """Write old records again; called periodically."""
        self._records.refresh()

    def request(self, destination: Destination, receive: Receive) -> None:
        """Read a topic's retained message back in a later turn of the event loop, behind earlier requests."""
        name = destination.name
        self._records.request(name, lambda body: receive(None if body is None else _message(name, body)))


def _message(key: str, body: bytes) -> Message | None:
    try:
        return routing(body)
    except MalformedOpenWire as error:
        _log.error("the retained message of %s does not decode: %s", topic(key), error)
        return None
