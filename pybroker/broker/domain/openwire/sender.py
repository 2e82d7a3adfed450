"""Writes the user of a connection into its messages, as `JMSXUserID`; all other bytes are kept.

```text
data type … message id | … content, properties … arrival | user id | received by bridge …
                       kept                              | replaced | kept
```

Source: OpenWire v11, `Message`; ActiveMQ's `populateJMSXUserID` (security.md, section 6).
"""

from dataclasses import replace

from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.heads import place
from pybroker.broker.domain.openwire.layout import MESSAGE
from pybroker.broker.domain.openwire.loose import Reader, string
from pybroker.broker.domain.openwire.shapes import skip_fields

_BETWEEN_ID_AND_USER = MESSAGE.shape("original_transaction_id", "arrival")


def with_user(message: Message, user: str) -> Message:
    """Return a message with that user in place of what its client has put there.

    Raises:
        MalformedOpenWire: it does not decode so far.
    """
    data = message.data
    _, end = place(data, "message_id")
    reader = Reader(data, end)
    skip_fields(reader, _BETWEEN_ID_AND_USER)
    begin = reader.offset
    reader.string()
    return replace(message, data=b"".join((data[:begin], string(user), data[reader.offset :])), decoded=None)
