"""The time at which a broker got a message, `brokerInTime`: it lies at a fixed distance from the message's end.

```text
type … properties … user id, cluster | broker in time | broker out time | first for consumer
              kept                   |    replaced    |               kept
```

A blob message has other fields behind these, and such a time is neither read nor replaced.

Source: OpenWire v11, `Message` (drawn in `message`); ActiveMQ 5.17, `Message.setBrokerInTime`.
"""

from typing import Final

from pybroker.broker.domain.big_endian import LONG
from pybroker.broker.domain.openwire.layout import BLOB_TYPE, BROKER_IN_FROM_END

_FROM_END: Final = BROKER_IN_FROM_END
_BEHIND: Final = BROKER_IN_FROM_END - LONG.size


def arrival_time(data: bytes) -> int:
    """Return when the broker got a stored message, in milliseconds since the epoch; 0 if that is not known."""
    if len(data) <= _FROM_END or data[0] == BLOB_TYPE:
        return 0
    time: int = LONG.unpack_from(data, len(data) - _FROM_END)[0]
    return time


def with_arrival_time(data: bytes, time_ms: int) -> bytes:
    """Return a message as it is stored, with the time at which this broker got it."""
    if len(data) <= _FROM_END or data[0] == BLOB_TYPE:
        return data
    return b"".join((data[:-_FROM_END], LONG.pack(time_ms), data[-_BEHIND:]))
