"""The OpenWire objects in a journal that are no messages: durable subscriptions and acknowledgements; the size prefix.

```text
size prefix         | i32 n | n bytes: data type and fields |
```

Source: OpenWire v11, `SubscriptionInfo`, `MessageAck`, whose fields are declared in `commands`; loose, uncached.
"""

from typing import TypeVar

from pybroker.broker.domain.big_endian import INT
from pybroker.broker.domain.openwire.commands import MessageAck, SubscriptionInfo
from pybroker.broker.domain.openwire.loose import PRESENT, MalformedOpenWire, Reader, string
from pybroker.broker.domain.openwire.marshal.transcode import STORE
from pybroker.broker.domain.subscription import DurableSubscription

_Stored = TypeVar("_Stored", MessageAck, SubscriptionInfo)


def encode_subscription_info(subscription: DurableSubscription) -> bytes:
    """Encode a durable subscription from its data type on.

    Its user follows the fields as a string. ActiveMQ reads the fields and ignores what follows.

    Raises:
        UnencodableOpenWire: a name or the selector is too long.
    """
    info = SubscriptionInfo(
        client_id=subscription.client_id,
        destination=subscription.destination,
        selector=subscription.selector,
        subscription_name=subscription.name,
        subscribed_destination=subscription.subscribed_destination,
        no_local=subscription.no_local,
    )
    return STORE.encode(info) + (b"" if subscription.user is None else string(subscription.user))


def decode_subscription_info(data: bytes) -> DurableSubscription:
    """Decode a durable subscription from its data type on.

    Without a subscribed destination (brokers before 5.1 had none) it is the subscription's own.

    Raises:
        MalformedOpenWire: it is no subscription, or one without client id, name or destination.
    """
    info, end = _decode(SubscriptionInfo, data, "a subscription")
    reader = Reader(data, end)
    user = reader.string() if data[end : end + 1] == PRESENT else None
    reader.end()
    if info.client_id is None or info.subscription_name is None or info.destination is None:
        raise MalformedOpenWire("a subscription without client id, name or destination")
    return DurableSubscription(
        client_id=info.client_id,
        name=info.subscription_name,
        destination=info.destination,
        subscribed_destination=info.subscribed_destination or info.destination,
        selector=info.selector,
        no_local=info.no_local,
        user=user,
    )


def encode_ack(ack: MessageAck) -> bytes:
    """Encode an acknowledgement from its data type on.

    Raises:
        UnencodableOpenWire: a string is too long, a number out of its range, or there are too many causes.
    """
    return STORE.encode(ack)


def decode_ack(data: bytes) -> MessageAck:
    """Decode an acknowledgement from its data type on; nothing may be left over.

    Raises:
        MalformedOpenWire: it is no acknowledgement.
    """
    ack, end = _decode(MessageAck, data, "an acknowledgement")
    Reader(data, end).end()
    return ack


def _decode(kind: type[_Stored], data: bytes, what: str) -> tuple[_Stored, int]:
    """Return a structure of that kind, and the offset of its end."""
    found = Reader(data).unsigned_byte()
    value, end = STORE.decode_first(data) if found == kind.DATA_TYPE else (None, 0)
    if not isinstance(value, kind):
        raise MalformedOpenWire(f"data type {found} where {what} belongs")
    return value, end


def with_size_prefix(data: bytes) -> bytes:
    """Return the bytes with their length before them, as a journal record holds an OpenWire object."""
    return INT.pack(len(data)) + data


def without_size_prefix(data: bytes) -> bytes:
    """Return what the size prefix announces.

    Raises:
        MalformedOpenWire: there is more or less of it.
    """
    reader = Reader(data)
    size = reader.integer()
    if size != reader.remaining:
        raise MalformedOpenWire(f"a size prefix of {size} before {reader.remaining} bytes")
    return data[4:]
