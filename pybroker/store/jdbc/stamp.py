"""The transaction id inside a message's own bytes. Pure.

An ActiveMQ that finds a prepared transaction's message in the tables takes the transaction from the message, not from
the row, and cannot even start when there is none. A JMS client has put it there; other producers have not. So it is put
in before the message is written, and taken out again when it is read: it means nothing any more then.

Source: OpenWire v11, `Message`; ActiveMQ 5.17, `JdbcMemoryTransactionStore.recoverAdd`.

```text
data type … producer id | destination | transaction id | original destination …
          kept          |    kept     |    replaced    |        kept
```
"""

from pybroker.broker.domain.openwire import ids
from pybroker.broker.domain.openwire.heads import place
from pybroker.broker.domain.openwire.loose import NULL, PRESENT
from pybroker.broker.domain.transaction import XATransactionId

_XA = PRESENT + b"\x70"
"""Prefix of an XA transaction's id."""


def stamped(data: bytes, transaction: XATransactionId) -> bytes:
    """Return a message marked as sent in a transaction.

    Raises:
        MalformedOpenWire: the message does not decode so far.
        UnencodableOpenWire: the transaction's ids are too long.
    """
    begin, end = place(data, "transaction_id")
    return data[:begin] + ids.transaction_id(transaction) + data[end:]


def unstamped(data: bytes) -> bytes:
    """Return a message without an XA transaction's id.

    Raises:
        MalformedOpenWire: the message does not decode so far.
    """
    if _XA not in data:
        return data  # which spares nearly all a closer look
    begin, end = place(data, "transaction_id")
    return data[:begin] + NULL + data[end:] if data.startswith(_XA, begin) else data
