"""Answers requests for statistics by messages, as ActiveMQ's `statisticsBrokerPlugin` does.

A message with a `JMSReplyTo` to one of these queues or topics is not delivered, but answered with map messages:

```text
ActiveMQ.Statistics.DestinationNAME    one for each queue, or topic, that NAME matches; a dot may precede NAME
ActiveMQ.Statistics.Broker             one about the broker
ActiveMQ.Statistics.Subscription       one for each consumer, without those of durable subscriptions
```

In a transaction too it is answered at once. Many answers are made in pieces. A message without `JMSReplyTo` is an
ordinary one.

Source: ActiveMQ 5.17, `StatisticsBroker`; the keys and their types as it sends them.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Protocol

from pybroker.broker.core.advisory import OriginBroker
from pybroker.broker.core.consumer import BrokerConsumer, Owner
from pybroker.broker.core.piecewise import Steps
from pybroker.broker.domain.admin import Admin, Counters, DestinationState
from pybroker.broker.domain.destination import Destination, is_advisory, parts
from pybroker.broker.domain.errors import RequestError
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.ids import OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, outline, to_message
from pybroker.broker.domain.openwire.values import Long, Value, encode_map

_log = logging.getLogger(__name__)

PREFIX: Final = "ActiveMQ.Statistics"
DESTINATION: Final = PREFIX + ".Destination"
BROKER: Final = PREFIX + ".Broker"
SUBSCRIPTION: Final = PREFIX + ".Subscription"
END_OF_LIST: Final = DESTINATION + ".List.End.With.Null"
"""A property of the request, or the end of its destination's name: an empty map follows the last answer."""
FIRST_TIMESTAMP: Final = DESTINATION + ".Include.First.Message.Timestamp"
"""A property of the request: of each queue with messages, the time at which the first of them was sent."""

_ANSWER_COST: Final = 40
"""An answer counts for so many steps of work: it takes some 40 us."""

_COUNT_COST: Final = 4

Entries = Mapping[str, Value]


class SystemUsage(Protocol):
    """The usage of store and spool with their limits, and the URLs of the listeners, which are outside of the core."""

    def statistics(self) -> Entries:
        """Return entries for the answer about the broker: `storeUsage`, `tempLimit`, `openwire` and so on."""
        ...


class Answerer(OriginBroker, Protocol):
    """The broker that sends the answers."""

    def require_reply(self, reply_to: Destination, owner: Owner) -> None:
        """Check that a connection may send to where it wants its answer."""
        ...

    def reply(self, message: Message, owner: Owner) -> None:
        """Send an answer for a connection."""
        ...


class StatisticsRequests:
    """Answers the requests to one broker.

    Args:
        broker: sends the answers.
        admin: the state of the broker.
        matching: returns the existing queues or topics that a name or wildcard matches.
        first_timestamp: returns when the broker got the first message of a queue; None if it has none.
        system_usage: the usage of store and spool, and the listeners; None: without these entries.
    """

    def __init__(
        self,
        broker: Answerer,
        admin: Admin,
        matching: Callable[[Destination], Iterable[Destination]],
        first_timestamp: Callable[[Destination], int | None],
        system_usage: SystemUsage | None = None,
    ) -> None:
        self._broker = broker
        self._admin = admin
        self._matching = matching
        self._first_timestamp = first_timestamp
        self._system_usage = system_usage
        self._producer_id = ProducerId(f"{broker.run_id}-4", 1, 0)
        self._sequence = 0

    def answers(self, message: Message, owner: Owner) -> bool:
        """Return True if a message is a request, which is answered then.

        Raises:
            AccessDenied: the user of the connection may not send to where it wants the answer.
        """
        name = message.destination.name
        if not name.startswith(PREFIX):
            return False
        try:
            request = outline(message)
            properties = request.properties
        except MalformedOpenWire:  # it may be no JMS message at all
            return False
        if request.reply_to is None:
            return False
        entries: Iterator[Entries | None]
        if name.startswith(DESTINATION):
            entries = self._of_destinations(message.destination, properties)
        elif name.startswith(SUBSCRIPTION):
            entries = self._of_subscriptions()
        elif name.startswith(BROKER):
            entries = self._of_broker()
        else:
            return False
        self._broker.require_reply(request.reply_to, owner)
        correlation_id = None if name.startswith(SUBSCRIPTION) else request.correlation_id
        owner.work_off(self._answering(entries, request.reply_to, correlation_id, owner))
        return True

    def _answering(
        self, entries: Iterator[Entries | None], reply_to: Destination, correlation_id: str | None, owner: Owner
    ) -> Steps:
        """Send the answers; None among the entries stands for work without one."""
        for each in entries:
            if owner.closed:
                return
            if each is None:
                yield _COUNT_COST
                continue
            try:
                self._broker.reply(self._answer(each, reply_to, correlation_id), owner)
            except RequestError as error:
                _log.info("statistics for %.100s end: %.200s", reply_to, error)
                return
            yield _ANSWER_COST * len(parts(reply_to))

    def _answer(self, entries: Entries, reply_to: Destination, correlation_id: str | None) -> Message:
        self._sequence += 1
        now = self._broker.clock()
        return to_message(
            OpenWireMessage(
                type=MessageType.MAP,
                producer_id=self._producer_id,
                message_id=OpenWireMessageId(None, self._producer_id, self._sequence),
                destination=reply_to,
                correlation_id=correlation_id,
                jms_type="Advisory",
                timestamp=now,
                broker_in_time=now,
                content=encode_map(entries),
            )
        )

    # ------------------------------------------------------------ entries

    def _of_destinations(self, asked: Destination, properties: Mapping[str, Value]) -> Iterator[Entries | None]:
        name = asked.name[len(DESTINATION) :].removeprefix(".")
        is_end_wanted = END_OF_LIST in name or END_OF_LIST in properties
        is_timed = FIRST_TIMESTAMP in properties
        wanted = Destination(asked.type, name.replace(END_OF_LIST, ""))
        for destination in self._matching(wanted):
            state = None if is_advisory(destination) else self._admin.state(destination)
            if state is None:
                yield None
                continue
            entries = self._broker_entries() | {"destinationName": str(destination)} | _entries(state)
            if is_timed and (timestamp := self._first_timestamp(destination)) is not None:
                entries["firstMessageTimestamp"] = Long(timestamp)
            yield entries
        if is_end_wanted:
            yield {}

    def _of_broker(self) -> Iterator[Entries | None]:
        counters, consumers, producers, cached = self._admin.removed(), 0, 0, 0
        for destination in list(self._admin.destinations()):
            if (state := self._admin.state(destination)) is not None:
                counters += state.counters
                consumers += state.consumers
                producers += state.producers
                cached += state.cached
            yield None
        totals = self._admin.totals()
        yield {
            **self._broker_entries(),
            **_count_entries(counters, consumers, producers, cached),
            **_memory_entries(totals.memory_bytes, totals.memory_bytes_max),
            **({} if self._system_usage is None else self._system_usage.statistics()),
        }

    def _of_subscriptions(self) -> Iterator[Entries | None]:
        for connection in list(self._admin.connections()):
            for consumer in list(connection.consumers):
                if isinstance(consumer, BrokerConsumer) and consumer.request.subscription_name is None:
                    yield self._broker_entries() | _subscription_entries(consumer)
            yield None

    def _broker_entries(self) -> dict[str, Value]:
        return {"brokerName": self._broker.name, "brokerId": self._broker.id}


def _entries(state: DestinationState) -> dict[str, Value]:
    counts = _count_entries(state.counters, state.consumers, state.producers, state.cached)
    return counts | _memory_entries(state.memory_bytes, state.memory_bytes_max)


def _count_entries(counters: Counters, consumers: int, producers: int, cached: int) -> dict[str, Value]:
    return {
        "size": Long(counters.size),
        "enqueueCount": Long(counters.enqueued),
        "dequeueCount": Long(counters.dequeued),
        "dispatchCount": Long(counters.dispatched),
        "expiredCount": Long(counters.expired),
        "inflightCount": Long(counters.in_flight),
        "messagesCached": Long(cached),
        "averageMessageSize": Long(counters.message_bytes // max(1, counters.enqueued)),
        "averageEnqueueTime": _milliseconds(counters.wait_seconds / max(1, counters.dispatched)),
        "maxEnqueueTime": _milliseconds(counters.wait_seconds_max),
        "minEnqueueTime": _milliseconds(counters.wait_seconds_min),
        "consumerCount": Long(consumers),
        "producerCount": Long(producers),
    }


def _memory_entries(used: int, limit: int) -> dict[str, Value]:
    return {
        "memoryUsage": Long(used),
        "memoryLimit": Long(limit),
        "memoryPercentUsage": 100 * used // limit if limit else 0,
    }


def _milliseconds(seconds: float) -> float:
    return seconds * 1000


def _subscription_entries(consumer: BrokerConsumer) -> dict[str, Value]:
    request, connection = consumer.request, consumer.connection
    named = request.consumer_id
    return {
        "destinationName": request.destination.name,
        "clientId": connection.client_id,
        "connectionId": connection.connection_id,
        "sessionId": Long(0 if named is None else named.session_id),
        "selector": request.selector,
        "enqueueCounter": Long(consumer.offered_count),
        "dequeueCounter": Long(consumer.acknowledged_count),
        "dispatchedCounter": Long(consumer.offered_count),
        "dispatchedQueueSize": Long(consumer.outstanding_count),
        "prefetchSize": consumer.prefetch,
        "maximumPendingMessageLimit": request.pending_limit or 0,
        "exclusive": request.exclusive,
        "retroactive": request.retroactive,
        "slowConsumer": False,
    }
