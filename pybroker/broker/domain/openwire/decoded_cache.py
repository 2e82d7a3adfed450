"""The decoded fields of the messages that were decoded last, within a limit of bytes for the whole process.

Decoded properties take up to forty times the bytes that they are decoded from, so a message that waits must not keep
them. They are used several times within a short time, though: a message that arrives by STOMP is delivered from the
fields that it was made of, and one that a selector has looked at is looked at by the next one. A message refers to its
fields in `Message.decoded`, where every reader finds them without a look-up, and this queue of references ends that:

```text
  newest                                  oldest
  [ message, bytes ] [ message, bytes ] … [ message, bytes ]  ->  over the limit: message.decoded = None
```

The order is that of decoding, not of the last use: moving an entry at each use would cost more than decoding saves.
"""

from collections import deque
from typing import Final

from pybroker.broker.domain.message import Message

CACHE_BYTES_MAX: Final = 8 << 20
"""The limit of all fields in the cache and of their messages: more than a thousand usual messages."""

ENTRY_BYTES_MAX: Final = CACHE_BYTES_MAX // 8
"""The limit of one entry. A larger message is decoded for each use, which copies its body and is fast for its size."""

PROPERTY_FACTOR: Final = 40
"""Bytes of a decoded property for each of its marshalled bytes: a name of one letter and a null are 4, and take 150."""

# Two queues: a queue of pairs would cost an object for each message.
_messages: Final[deque[Message]] = deque()
_sizes: Final[deque[int]] = deque()
_used = [0]


def keep(message: Message, fields: object, property_bytes: int) -> None:
    """Keep the decoded fields of a message for a while, unless they are large.

    Args:
        message: the message.
        fields: its decoded fields, which have the content a second time, and a third time when they are rendered.
        property_bytes: the length of its marshalled properties.
    """
    size = 3 * message.size + PROPERTY_FACTOR * property_bytes
    if size > ENTRY_BYTES_MAX:
        message.decoded = None
        return
    message.decoded = fields
    _messages.append(message)
    _sizes.append(size)
    _used[0] += size
    while _used[0] > CACHE_BYTES_MAX:
        _messages.popleft().decoded = None
        _used[0] -= _sizes.popleft()


def used_bytes() -> int:
    """Return the bytes that count for the limit."""
    return _used[0]
