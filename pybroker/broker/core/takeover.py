"""Recovers the core's state from the store when a broker becomes master, and collects the ids for its clean stop.

After a crash it is unknown which messages consumers have seen, so every recovered message counts as redelivered once.
After a clean stop, only the messages that the former master recorded as delivered do.

Recovery reads no message bodies, except of messages that prepared transactions sent to topics. So its duration does not
depend on the number of messages.
"""

import logging
from collections.abc import Iterable, Iterator, MutableMapping, Sequence

from pybroker.broker.core.bridged_messages import BridgedMessages
from pybroker.broker.core.destinations import Destinations
from pybroker.broker.core.durable import Durable
from pybroker.broker.core.gate import PagedOutMessage
from pybroker.broker.core.matcher import Matcher, matcher
from pybroker.broker.core.queue import Queue
from pybroker.broker.core.record_queue import RecordQueue
from pybroker.broker.core.reference import Reference
from pybroker.broker.core.retained_messages import RetainedMessages
from pybroker.broker.core.scheduling_queue import SCHEDULING_QUEUE, SchedulingQueue
from pybroker.broker.core.transaction import BrokerTransaction
from pybroker.broker.core.uncommitted import SendTarget
from pybroker.broker.core.usage import Usage
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.errors import InvalidSelector
from pybroker.broker.domain.ports import MessageStore
from pybroker.broker.domain.recovery import PreparedAck, PreparedTransaction, Recovery, SubscriptionBacklog
from pybroker.broker.domain.reserved_queues import BRIDGED_RECORDS, RETAINED_RECORDS, SESSION_RECORDS
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import XATransactionId

_log = logging.getLogger(__name__)


class RecoveryLoader:
    """Fills a new broker with the contents of its store.

    Args:
        store: the store that was recovered.
        destinations: the broker's destinations, still empty.
        scheduling_queue: gets the messages that former masters committed and did not schedule.
        retained: gets the ids of the retained messages of topics.
        sessions: gets the ids of the sessions of MQTT clients.
        bridged: gets the ids of the records of what has come over bridges.
        branches: the broker's XA transactions, still empty.
        usage: the broker's memory, which counts recovered branches, and refuses none; None: they are not counted.
    """

    def __init__(
        self,
        store: MessageStore,
        destinations: Destinations,
        scheduling_queue: SchedulingQueue,
        retained: RetainedMessages,
        sessions: RecordQueue,
        bridged: BridgedMessages,
        branches: MutableMapping[XATransactionId, BrokerTransaction],
        usage: Usage | None,
    ) -> None:
        self._store = store
        self._destinations = destinations
        self._scheduling_queue = scheduling_queue
        self._retained = retained
        self._sessions = sessions
        self._bridged = bridged
        self._branches = branches
        self._usage = usage

    def perform(self, recovery: Recovery) -> None:
        """Create the destinations, subscriptions and transactions of a recovery; called once."""
        self._scheduling_queue.after_crash = recovery.delivered is None
        for destination, message_ids in recovery.queues.items():
            if destination.is_temporary:  # its connection ended with the former master
                self._store.remove_destination(destination)
            elif destination == SCHEDULING_QUEUE:
                self._scheduling_queue.recover(message_ids)
            elif destination == RETAINED_RECORDS.destination:
                for topic in self._retained.recover(message_ids):
                    self._destinations.topic(topic)
            elif destination == SESSION_RECORDS.destination:
                self._sessions.recover(message_ids)
            elif destination == BRIDGED_RECORDS.destination:
                self._bridged.recover(message_ids)
            else:
                self._destinations.queue(destination).recover(destination, message_ids, recovery.delivered)
        self._take_over_durables(recovery)
        self._take_over_branches(recovery.prepared)

    def _take_over_durables(self, recovery: Recovery) -> None:
        durables, topic = self._destinations.durables, self._destinations.topic
        concrete: list[SubscriptionBacklog] = []
        for backlog in recovery.backlogs:
            if not backlog.subscription.destination.is_pattern:
                concrete.append(backlog)
                topic(backlog.subscription.destination)
        for backlog in recovery.backlogs:
            if backlog.subscription.key not in durables:
                durables.add(backlog.subscription, _recovered_matcher(backlog.subscription))
        for backlog in concrete:
            durable = durables[backlog.subscription.key]
            durables.join(durable, topic(backlog.subscription.destination))
            durable.recover(backlog.subscription.destination, backlog.message_ids, recovery.delivered)
        for durable in durables.values():
            durables.cover(durable)

    def _take_over_branches(self, prepared: Sequence[PreparedTransaction]) -> None:
        """Restore prepared transactions; the messages that they acknowledged stay locked."""
        locked = self._lock({settled for branch in prepared for settled in branch.acknowledged})
        for branch in prepared:
            _log.info("%s is in doubt: prepared, with its outcome unknown", branch.transaction_id)
            transaction = BrokerTransaction(
                branch.transaction_id, self._store, usage=self._usage, commits=self._destinations.commits
            )
            self._branches[branch.transaction_id] = transaction
            transaction.recover(
                [
                    (self._target(place), message or PagedOutMessage(place, message_id))
                    for place, message_id, message in branch.sent
                ],
                [locked[settled] for settled in branch.acknowledged if settled in locked],
            )

    def _target(self, destination: Destination) -> SendTarget:
        return self._scheduling_queue if destination == SCHEDULING_QUEUE else self._destinations.ensure(destination)

    def _lock(self, acknowledged: set[PreparedAck]) -> dict[PreparedAck, Reference]:
        """Remove acknowledged messages from their backlogs, each of which is searched once."""
        sources: dict[Queue | Durable, str | None] = {}
        for destination, _, key in acknowledged:
            there = self._destinations
            source = there.queues.get(destination) if key is None else there.durables.get(key)
            if source is not None:
                sources[source] = key
        locked: dict[PreparedAck, Reference] = {}
        for source, key in sources.items():
            wanted = {(place, message_id) for place, message_id, its_key in acknowledged if its_key == key}
            for reference in source.pending.lock(wanted):
                locked[PreparedAck(reference.message.destination, reference.message.message_id, key)] = reference
        return locked


def seen(sources: Iterable[Queue | Durable], transactions: Iterable[BrokerTransaction]) -> Iterator[str]:
    """Yield the ids of unsettled messages that a consumer may have seen, for `MessageStore.close`."""
    for source in sources:
        for reference in source.in_flight():
            yield from _lasting_id(reference)
        yield from source.pending.delivered()
    for transaction in transactions:
        for reference in transaction.acknowledged_so_far:
            yield from _lasting_id(reference)


def _lasting_id(reference: Reference) -> Iterator[str]:
    if reference.message.persistent:
        yield reference.message.message_id


def _recovered_matcher(info: DurableSubscription) -> Matcher | None:
    """Return the compiled selector of a stored subscription; None, with an error in the log, if it is invalid.

    An ActiveMQ accepts selectors that this broker does not support, such as XPath. The broker starts all the same, and
    the subscription keeps every message until it is used with an ActiveMQ again, or deleted.
    """
    try:
        return matcher(info.selector)
    except InvalidSelector as error:
        _log.error(
            "durable subscription %s keeps all messages, and cannot be activated here: %s", info.key, error.sentence
        )
        return None
