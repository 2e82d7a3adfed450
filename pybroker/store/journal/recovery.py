"""Reads a journal of messages that is taken over, and returns the broker's initial contents.

Most of it was read by the standby or is in a store snapshot; the rest is read here. No message body is read, except for
messages to topics in transactions in doubt.
"""

import logging
import time
from dataclasses import replace as with_changes

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.openwire.objects import decode_subscription_info
from pybroker.broker.domain.recovery import (
    PreparedAck,
    PreparedSend,
    PreparedTransaction,
    Recovery,
    SubscriptionBacklog,
)
from pybroker.broker.domain.transaction import XATransactionId
from pybroker.store.journal.bodies import BodyReader
from pybroker.store.journal.clean_stop import activemq_stopped_cleanly, is_clean_stop, read_delivered
from pybroker.store.journal.contents import Added, Removed, UnfinishedTransaction, in_order
from pybroker.store.journal.follower import Follower
from pybroker.store.journal.reader import Damage
from pybroker.store.journal.replay import Progress, ReplayResult, flaw
from pybroker.store.journal.takeover import JournalEnd

logger = logging.getLogger(__name__)


class JournalReading:
    """Implements `StoreReading` for messages. `finish` sets the attributes.

    Attributes:
        follower: reads the journal, and has its state.
        result: of the journal's replay.
        recovery: the broker's initial contents.
        damages: bytes and messages that could not be used.
    """

    result: ReplayResult
    recovery: Recovery
    damages: list[Damage]

    def __init__(self, follower: Follower, *, prioritized: bool, progress: Progress | None) -> None:
        """Prepare; nothing more is read yet.

        Args:
            follower: has read the journal so far, or a store snapshot.
            prioritized: queues dispatch by priority.
            progress: receives the progress of the reading.
        """
        self.follower = follower
        self._prioritized = prioritized
        self._progress = progress
        self._begun = time.perf_counter()
        self._known_count = follower.record_count

    def read(self) -> None:
        """Read the journal so far."""
        self.follower.catch_up(self._progress)

    def finish(self, below: int) -> JournalEnd:
        """Read the rest of the files below a claimed number, and set the result."""
        follower = self.follower
        self.result = result = follower.finish(self._progress, below=below)
        directory = follower.directory
        if follower.location.file_id:
            milliseconds = (time.perf_counter() - self._begun) * 1000
            known, count = self._known_count, follower.record_count
            count -= known if known <= count else 0  # fewer: it was read again from its first file
            logger.info("%s: caught up %s records in %.1f ms", directory, f"{count:,}", milliseconds)
        with BodyReader(directory) as reader:
            self.recovery = self._recovery(reader)
            self.damages = [*result.damages, *reader.damages]
        record_count = sum(result.records.values())
        logger.info("%s: %d journal records up to db-%d.log", directory, record_count, result.last_file_id)
        return JournalEnd(
            damages=self.damages,
            torn_tails=result.torn_tails,
            open_ends=result.open_ends,
            is_clean=is_clean_stop(result.closing_traces),
            flaw=lambda file_id, content: flaw(content, result.chains.get(file_id, 0)),
        )

    def _recovery(self, reader: BodyReader) -> Recovery:
        """Return the state's contents. Reads only the bodies that transactions in doubt have sent to topics."""
        state = self.follower.state
        return Recovery(
            queues={queue: self._queue_in_order(queue) for queue in state.queues()},
            backlogs=self._backlogs(),
            prepared=[
                self._prepared(transaction_id, transaction, reader)
                for transaction_id, transaction in state.prepared.items()
                if isinstance(transaction_id, XATransactionId)  # all are
            ],
            delivered=self._delivered(),
        )

    def _delivered(self) -> frozenset[str] | None:
        """Return the ids of messages that consumers have seen; None: any may have been."""
        if not self.result.last_file_id or activemq_stopped_cleanly(self.follower.directory):
            return frozenset()
        return read_delivered(self.result.closing_traces)

    def _queue_in_order(self, queue: Destination) -> list[str]:
        """Return a queue's message ids in dispatch order, from the standby's cache if it has them."""
        messages = self.follower.state.destinations[queue].messages
        if self._prioritized:
            return in_order(messages, prioritized=True)
        return self.follower.id_cache.pop(queue, messages)

    def _backlogs(self) -> list[SubscriptionBacklog]:
        """Return the durable subscriptions' backlogs."""
        state = self.follower.state
        backlogs: list[SubscriptionBacklog] = []
        for topic, _, subscription in state.subscriptions():
            messages, pending = state.destinations[topic].messages, subscription.pending
            message_ids = in_order(messages, prioritized=self._prioritized)
            if len(pending) < len(message_ids):
                message_ids = list(filter(pending.__contains__, message_ids))
            info = with_changes(decode_subscription_info(subscription.info), destination=topic)
            backlogs.append(SubscriptionBacklog(subscription=info, message_ids=message_ids))
        return backlogs

    def _prepared(
        self, transaction_id: XATransactionId, transaction: UnfinishedTransaction, reader: BodyReader
    ) -> PreparedTransaction:
        """Return a transaction in doubt, with the messages that its commit adds."""
        added = [
            (each.destination, each.message_id, each.entry)
            for each in transaction.operations
            if isinstance(each, Added)
        ]
        removed = [each for each in transaction.operations if isinstance(each, Removed)]
        return PreparedTransaction(
            transaction_id=transaction_id,
            sent=[
                PreparedSend(
                    destination, message_id, next(reader.bodies([entry]), None) if destination.is_topic else None
                )
                for destination, message_id, entry in added
            ],
            acknowledged=[
                PreparedAck(destination, message_id, subscription_key)
                for destination, message_id, subscription_key, _ in removed
                if self.follower.state.is_pending(destination, message_id, subscription_key)
            ],
        )
