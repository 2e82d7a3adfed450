"""Identifiers and destinations that stand by themselves, from their data type on, as captures have them."""

from collections.abc import Callable
from typing import Any

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.openwire import ids
from pybroker.broker.domain.openwire.loose import PRESENT, Reader

_READERS: dict[int, Callable[[Reader], Any]] = {
    **dict.fromkeys((100, 101, 102, 103), ids.read_destination),
    **dict.fromkeys((111, 112), ids.read_transaction_id),
    122: ids.read_consumer_id,
    123: ids.read_producer_id,
}
_WRITERS: dict[type, Callable[[Any], bytes]] = {
    Destination: ids.destination,
    ids.ConsumerId: ids.consumer_id,
    ids.ProducerId: ids.producer_id,
    ids.OpenWireMessageId: ids.message_id,
}


def read_id(data: bytes) -> Any:
    """Return what is encoded; raise `MalformedOpenWire` if that is no identifier or destination."""
    reader = Reader(PRESENT + data)
    value = _READERS.get(data[0] if data else 0, ids.read_message_id)(reader)
    reader.end()
    return value


def id_bytes(value: Any) -> bytes:
    """Encode an identifier or destination."""
    return _WRITERS.get(type(value), ids.transaction_id)(value)[1:]
