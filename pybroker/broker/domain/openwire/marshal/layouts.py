"""The fields of each data type, and how its values are taken apart and put together.

Records come from their declarations in `commands`. Identifiers are tuples that belong to the whole broker, so their
wire order is declared here, together with the three cases where the broker's value is not shaped like the wire's:

- a destination is one type with four data types;
- a local transaction id names its connection by a string, the wire by a cached `ConnectionId`;
- a transaction id that lacks a part is none for the broker: it becomes a `Blank…` value, which no field accepts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Final

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.openwire.commands import (
    MESSAGES,
    RECORDS,
    BlankLocalTransactionId,
    BlankXATransactionId,
    BrokerId,
    ConnectionId,
    ConsumerId,
    OpenWireMessageId,
    ProducerId,
    Record,
    SessionId,
    WireFormatInfo,
)
from pybroker.broker.domain.openwire.ids import DESTINATION_TYPES
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.marshal.schema import SPEC, VERSION_MIN, FieldKind, Spec
from pybroker.broker.domain.transaction import LocalTransactionId, XATransactionId

MARSHAL_AWARE: Final[frozenset[type]] = frozenset((*MESSAGES, WireFormatInfo))
"""Nested in tight encoding, these have one more bit, which is always 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One data type.

    Attributes:
        data_type: its number.
        types: the classes whose values it carries.
        since: first version that has it.
        fields: names and specs in wire order.
        build: makes a tuple-like value of its fields' values; None for a record, whose attributes are set.
        parts: gives a tuple-like value's fields.
    """

    data_type: int
    types: tuple[type, ...]
    since: int
    fields: tuple[tuple[str, Spec], ...]
    build: Callable[..., Any] | None = None
    parts: Callable[[Any], tuple[Any, ...]] | None = None

    @property
    def nests(self) -> bool:
        """Other structures may stand inside it."""
        return any(spec.kind in (FieldKind.OBJECT, FieldKind.ARRAY) for _, spec in self.fields)

    @property
    def repeats(self) -> bool:
        """It is a name and perhaps some numbers, which come again from frame to frame."""
        return self.parts is not None and self.fields[0][1] == _STRING

    def fields_in(self, version: int) -> tuple[tuple[str, Spec], ...]:
        """Return the fields that a version has."""
        return tuple((name, spec) for name, spec in self.fields if spec.is_in(version))


_STRING = Spec(kind=FieldKind.STRING)
_LONG = Spec(kind=FieldKind.LONG)
_BYTES = Spec(kind=FieldKind.BYTES)
_CONNECTION = Spec(kind=FieldKind.OBJECT, cached=True, types=(ConnectionId,))
_PRODUCER = Spec(kind=FieldKind.OBJECT, cached=True, types=(ProducerId,))


def _record(record: type[Record]) -> Layout:
    return Layout(
        data_type=record.DATA_TYPE,
        types=(record,),
        since=getattr(record, "SINCE", VERSION_MIN),
        fields=tuple((field.name, field.metadata[SPEC]) for field in fields(record)),
    )


def _tuple(data_type: int, kind: type, **specs: Spec) -> Layout:
    names = tuple(specs)
    get = attrgetter(*names)
    return Layout(
        data_type=data_type,
        types=(kind,),
        since=VERSION_MIN,
        fields=tuple(specs.items()),
        build=kind if names == getattr(kind, "_fields", None) else _by_name(kind, names),
        parts=get if len(names) > 1 else lambda value: (get(value),),
    )


def _by_name(kind: type, names: tuple[str, ...]) -> Callable[..., Any]:
    return lambda *values: kind(**dict(zip(names, values, strict=True)))


def _destination(data_type: int) -> Layout:
    def build(name: str | None) -> Destination:
        if name is None:
            raise MalformedOpenWire("a destination without a name")
        return Destination(DESTINATION_TYPES[data_type], name)

    return Layout(
        data_type=data_type,
        types=(Destination,),
        since=VERSION_MIN,
        fields=(("physical_name", _STRING),),
        build=build,
        parts=lambda value: (value.name,),
    )


def _build_local(value: int, connection_id: ConnectionId | None) -> LocalTransactionId | BlankLocalTransactionId:
    if connection_id is None or connection_id.value is None:
        return BlankLocalTransactionId(value, connection_id)
    return LocalTransactionId(connection_id.value, value)


def _local_parts(value: LocalTransactionId | BlankLocalTransactionId) -> tuple[int, ConnectionId | None]:
    if isinstance(value, LocalTransactionId):
        return value.value, ConnectionId(value.connection_id)
    return value


def _build_xa(
    format_id: int, global_transaction_id: bytes | None, branch_qualifier: bytes | None
) -> XATransactionId | BlankXATransactionId:
    if global_transaction_id is None or branch_qualifier is None:
        return BlankXATransactionId(format_id, global_transaction_id, branch_qualifier)
    return XATransactionId(format_id, global_transaction_id, branch_qualifier)


LAYOUTS: Final[Mapping[int, Layout]] = {
    layout.data_type: layout
    for layout in (
        *map(_record, RECORDS),
        *map(_destination, DESTINATION_TYPES),
        _tuple(
            110,
            OpenWireMessageId,
            text_view=Spec(kind=FieldKind.STRING, since=10),
            producer_id=_PRODUCER,
            producer_sequence_id=_LONG,
            broker_sequence_id=_LONG,
        ),
        Layout(
            data_type=111,
            types=(LocalTransactionId, BlankLocalTransactionId),
            since=VERSION_MIN,
            fields=(("value", _LONG), ("connection_id", _CONNECTION)),
            build=_build_local,
            parts=_local_parts,
        ),
        Layout(
            data_type=112,
            types=(XATransactionId, BlankXATransactionId),
            since=VERSION_MIN,
            fields=(
                ("format_id", Spec(kind=FieldKind.INT)),
                ("global_transaction_id", _BYTES),
                ("branch_qualifier", _BYTES),
            ),
            build=_build_xa,
            parts=tuple,
        ),
        _tuple(120, ConnectionId, value=_STRING),
        _tuple(121, SessionId, connection_id=_STRING, value=_LONG),
        _tuple(122, ConsumerId, connection_id=_STRING, session_id=_LONG, value=_LONG),
        _tuple(123, ProducerId, connection_id=_STRING, value=_LONG, session_id=_LONG),
        _tuple(124, BrokerId, value=_STRING),
    )
}
"""Every data type, by its number."""
