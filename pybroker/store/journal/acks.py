"""The acknowledgement in a remove record of an XA transaction.

An ActiveMQ that finds the transaction prepared reads it back, and refuses to start where there is none: it has to
know what to hide until the outcome, and where to look for more once that is known. What it looks at is the destination
and the id of the last message; which durable subscription it is says the record's own subscription key.

Source: ActiveMQ 5.17, `KahaDBTransactionStore.recover`.
"""

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.openwire.commands import AckType, MessageAck
from pybroker.broker.domain.openwire.ids import OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.objects import encode_ack
from pybroker.broker.domain.transaction import XATransactionId


def prepared_ack(destination: Destination, message_id: str, transaction: XATransactionId) -> bytes:
    """Return the `MessageAck` of one message, OpenWire v11 from its data type on.

    Raises:
        UnencodableOpenWire: a name is longer than the format allows.
    """
    acknowledged = _message_id(message_id)
    return encode_ack(
        MessageAck(
            ack_type=AckType.INDIVIDUAL,
            destination=destination,
            transaction_id=transaction,
            first_message_id=acknowledged,
            last_message_id=acknowledged,
            message_count=1,
        )
    )


def _message_id(text: str) -> OpenWireMessageId:
    """Take `<connection>:<session>:<producer>:<sequence>` apart; a connection id may have colons."""
    try:
        connection_id, session_id, value, sequence = text.rsplit(":", 3)
        return OpenWireMessageId(None, ProducerId(connection_id, int(session_id), int(value)), int(sequence))
    except ValueError:
        return OpenWireMessageId(text, None, 0)  # not in ActiveMQ's form
