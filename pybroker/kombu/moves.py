"""Moves the messages of one queue to another one, each in a transaction: a crash loses none."""

from pybroker.broker.domain.destination import Destination
from pybroker.client import Connection, Message, TransactionInDoubt, TransactionRolledBack
from pybroker.client.arguments import MessageHeaders


def move(connection: Connection, source: Destination, target: Destination) -> int:
    """Move the messages of a queue that no consumer has; return their number.

    After a break it continues at the next broker. A message whose transaction was in doubt then is not moved twice:
    either it is still in the first queue, or it is not.

    Raises:
        UnreadableMessage: the body or the properties of a message are damaged: it stays where it is.
    """
    count = 0
    with connection.consumer(source, ack="transacted", prefetch=0) as consumer:
        while True:
            try:
                with connection.transaction() as transaction:
                    try:
                        message = transaction.receive(consumer, timeout=0)
                    except TimeoutError:
                        return count
                    transaction.send(target, message.body, **_headers(message))
            except (TransactionRolledBack, TransactionInDoubt):
                continue
            count += 1


def _headers(message: Message) -> MessageHeaders:
    headers = MessageHeaders(
        properties=message.properties,
        persistent=message.persistent,
        priority=message.priority,
        expiration=message.expiration,
        timestamp=message.timestamp,
    )
    if message.correlation_id is not None:
        headers["correlation_id"] = message.correlation_id
    if message.reply_to is not None:
        headers["reply_to"] = message.reply_to
    if message.type is not None:
        headers["type"] = message.type
    if message.group_id is not None:
        headers["group_id"] = message.group_id
        headers["group_sequence"] = message.group_sequence
    if message.kind is not None:
        headers["kind"] = message.kind
    return headers
