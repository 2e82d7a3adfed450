"""Many records at once: from a chunk of a data file to an Arrow record batch, with no loop over records.

What has the usual shape is decoded by `fields`, `headers` and `properties`, step by step for all records together. What
has not is decoded by `rows`, one by one, and put in its place; where only a body is unusual, only the body is. Both say
the same; a test compares them.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.openwire import ids
from pybroker.broker.domain.openwire.layout import BROKER_IN_FROM_END
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage
from pybroker.store.columns.chunks import Chunk, Longs
from pybroker.store.columns.fields import FieldPlaces, locate
from pybroker.store.columns.files import Piece
from pybroker.store.columns.headers import Headers, Identity, Named, locate_acks, locate_headers
from pybroker.store.columns.lanes import Flags, Window
from pybroker.store.columns.properties import map_texts, properties
from pybroker.store.columns.rows import (
    ACK_TYPES,
    DESTINATION_TYPES,
    MESSAGE_TYPES,
    MILLISECONDS_MAX,
    RECORD_TYPES,
    Row,
    arrival_of,
    clean,
    fill_body,
    row_of,
)
from pybroker.store.columns.schema import BY_NAME, Layer, arrow_schema, layers
from pybroker.store.columns.selection import EVERYTHING, Selection
from pybroker.store.columns.texts import Places, blobs, instants, names, numbers, texts
from pybroker.store.columns.timeline import SOURCES, Timeline
from pybroker.store.columns.transactions import odd_transactions
from pybroker.store.journal.commands import CommandType, decode
from pybroker.store.journal.format import BATCH_HEADER_BYTES, RECORD_HEADER_BYTES
from pybroker.store.journal.malformed import MalformedRecord
from pybroker.store.journal.marks import mark_at
from pybroker.store.journal.protobuf import SIZE_PREFIX, varint
from pybroker.store.journal.reader import CHECKSUM_BYTES

ROWS_MAX: Final = 16 * 1024
"""Rows of a record batch: more are no faster, and take more memory."""
ODD_BYTES_MAX: Final = 16 * 1024 * 1024
"""Limit of the bodies that were decoded one by one: a compressed one may grow to a thousand times its size on disk."""
FEW_PATCHES: Final = 64
"""Greatest number of values that are replaced one by one, after a comparison with the present ones."""
POSITION_BITS: Final = 32
"""The bits of a position that are the offset."""

_QUALIFIED: Final = [f"{Destination(kind, '')}" for kind in ids.DESTINATION_TYPES.values()]
_MESSAGE_TYPE_NAMES: Final = [MESSAGE_TYPES[code] for code in sorted(MESSAGE_TYPES)]
_ACK_TYPE_NAMES: Final = [ACK_TYPES[code] for code in sorted(ACK_TYPES)]


@dataclass(slots=True)
class _Records:
    """Some records of a chunk, and the columns that are made of them so far.

    Attributes:
        begin: where each record begins in the chunk's data; `end`, `batch` likewise.
        odd: those that are left to `rows`.
        wanted: names of columns.
        columns: arrays by name.
        bodies: by record, what there is to know of a message whose body is left to `rows`, and nothing else of it.
    """

    window: Window
    begin: Longs
    end: Longs
    first: Longs
    odd: Flags
    wanted: frozenset[str]
    columns: dict[str, pa.Array] = field(default_factory=dict[str, pa.Array])
    bodies: dict[int, OpenWireMessage] = field(default_factory=dict[int, OpenWireMessage])

    def __len__(self) -> int:
        return len(self.begin)

    def payload(self, index: int) -> bytes:
        return self.window.data[int(self.begin[index]) + RECORD_HEADER_BYTES : int(self.end[index])]

    def put(self, name: str, make: Callable[[], pa.Array]) -> None:
        """Add a column, if it is wanted."""
        if name in self.wanted:
            self.columns[name] = make()

    def put_texts(self, name: str, places: Places) -> None:
        """Add a column of texts. Wanted or not, those that are none are marked."""
        if name in self.wanted:
            self.columns[name] = self.texts(places)
        else:
            self.check(np.arange(len(self)), [places])

    def texts(self, places: Places) -> pa.Array:
        return texts(self.window, places, self.odd)

    def check(self, lanes: Longs, unseen: Sequence[Places]) -> None:
        """Mark the records with a text that is none, though no column shows it."""
        for places in unseen:
            some = np.flatnonzero(places.valid)
            odd = np.zeros(len(some), np.bool_)
            texts(self.window, Places(places.begin[some], places.end[some], ~odd), odd)
            self.odd[lanes[some[odd]]] = True


class _Patch(NamedTuple):
    """Values that were decoded one by one: their row, and a flag for more than the body."""

    at: int
    row: Row
    is_whole: bool


class VectorDecoder:
    """Decodes chunks of one piece, in their order.

    Attributes:
        schema: of the record batches.
    """

    def __init__(
        self, piece: Piece, columns: Sequence[str], timeline: Timeline, selection: Selection = EVERYTHING
    ) -> None:
        """Prepare to decode.

        Args:
            piece: what the chunks are from.
            columns: names of those wanted; what only others need is not decoded.
            timeline: what is known of the time where the piece begins.
            selection: rows wanted.
        """
        self.schema = arrow_schema(tuple(columns))
        self._piece = piece
        self._wanted = frozenset(columns)
        self._layers = _layers(columns, selection)
        self._timeline = timeline
        self._selection = selection
        self._transactions: dict[bytes, str | None] = {}

    def batches(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """Yield a chunk's records, those that are wanted, in record batches of at most `ROWS_MAX` rows."""
        window = Window(chunk.data)
        for start in range(0, len(chunk), ROWS_MAX):
            yield from self._some(window, chunk, slice(start, start + ROWS_MAX))

    def _some(self, window: Window, chunk: Chunk, part: slice) -> Iterator[pa.RecordBatch]:
        begin, end = chunk.records[part], chunk.ends[part]
        odd = np.zeros(len(begin), np.bool_)
        records = _Records(window, begin, end, chunk.first[chunk.batch_of[part]], odd, self._wanted)
        wanted = np.ones(len(begin), np.bool_)
        self._place(records, chunk.base)
        if not self._layers <= {Layer.PLACE}:
            found = locate(window, begin, end)
            records.odd |= found.odd
            self._record(records, found)
            if self._wanted & {"time", "time_source"}:
                self._times(records, found)
            wanted = self._chosen(records, found)
            if Layer.ACK in self._layers:
                self._acks(records, found, wanted)
            if any(layer >= Layer.MESSAGE for layer in self._layers):
                self._messages(records, found, wanted)
        return self._assembled(records, wanted)

    # ---------------------------------------------------------------- place and time

    def _place(self, records: _Records, base: int) -> None:
        piece, count = self._piece, len(records)
        offset = records.begin + base
        for name, make in (
            ("directory", lambda: pa.repeat(piece.directory, count)),
            ("file", lambda: numbers(np.full(count, piece.file_id, np.int32), None, pa.int32())),
            ("offset", lambda: numbers(offset, None, pa.int64())),
            ("position", lambda: numbers(offset + (piece.file_id << POSITION_BITS), None, pa.int64())),
            ("batch", lambda: numbers(records.first + (base - BATCH_HEADER_BYTES), None, pa.int64())),
            ("size", lambda: numbers(records.end - records.begin, None, pa.int64())),
            ("checksum", lambda: _checksums(records)),
        ):
            records.put(name, make)

    def _times(self, records: _Records, found: FieldPlaces) -> None:
        window, data = records.window, records.window.data
        marks = np.zeros(len(records), np.int64)
        starts_batch = records.begin == records.first
        for index in np.flatnonzero(starts_batch & (found.kind == CommandType.TRACE)).tolist():
            marks[index] = mark_at(data, int(records.begin[index])) or 0
        message = found.message
        dated = (
            found.is_add
            & (message.end - message.begin > BROKER_IN_FROM_END)
            & (window.bytes_[message.begin] != MessageType.BLOB)
        )
        arrivals = np.where(dated, window.longs(np.where(dated, message.end - BROKER_IN_FROM_END, 0)), 0)
        arrivals[(arrivals < 0) | (arrivals > MILLISECONDS_MAX)] = 0
        for index in np.flatnonzero(records.odd).tolist():
            arrivals[index] = _arrival(records.payload(index))
        times, sources = self._timeline.along(arrivals, marks)
        records.columns["time"] = instants(times, sources < len(SOURCES))
        records.columns["time_source"] = names(SOURCES, sources, sources < len(SOURCES))

    # ---------------------------------------------------------------- the command's own fields

    def _record(self, records: _Records, found: FieldPlaces) -> None:
        destination = found.destination
        kinds = tuple(DESTINATION_TYPES.values())
        records.put("record_type", lambda: names(RECORD_TYPES, found.kind, found.kind < len(RECORD_TYPES)))
        records.put("destination_type", lambda: names(kinds, found.destination_type, destination.valid))
        records.columns["destination"] = records.texts(destination)
        records.put_texts("message_id", found.message_id)
        records.put_texts("subscription", found.subscription)
        records.put_texts("trace", found.trace)
        if "transaction" in records.wanted:
            records.columns["transaction"] = self._transaction_texts(records, found.transaction)
        else:
            records.odd[odd_transactions(records.window, found.transaction)] = True
        records.put("message", lambda: blobs(records.window, found.message))

    def _transaction_texts(self, records: _Records, places: Places) -> pa.Array:
        """Return the transactions' texts; each transaction is decoded once."""
        if not places.valid.any():
            return pa.nulls(len(records), pa.string())
        encoded, cache = blobs(records.window, places).dictionary_encode(), self._transactions
        if len(cache) > ROWS_MAX:
            cache.clear()
        raw: list[bytes] = encoded.dictionary.to_pylist()
        for each in raw:
            if each not in cache:
                cache[each] = _transaction_text(each)
        found = pa.array([cache[each] for each in raw], pa.string()).take(encoded.indices)
        if found.null_count > encoded.null_count:
            records.odd |= places.valid & pc.is_null(found).to_numpy(zero_copy_only=False)
        return found

    def _chosen(self, records: _Records, found: FieldPlaces) -> Flags:
        """Return which rows are wanted; odd ones are, until they were decoded."""
        wanted = np.ones(len(records), np.bool_)
        selection = self._selection
        if selection.record_types is not None:
            codes = [code for code, name in enumerate(RECORD_TYPES) if name in selection.record_types]
            wanted &= np.isin(found.kind, codes)
        if selection.destinations is not None:
            values = pa.array(sorted(selection.destinations), pa.string())
            mask = pc.is_in(records.columns["destination"], value_set=values)
            wanted &= mask.to_numpy(zero_copy_only=False)
        return wanted | records.odd

    # ---------------------------------------------------------------- acknowledgements

    def _acks(self, records: _Records, found: FieldPlaces, wanted: Flags) -> None:
        ack, count = found.ack, len(records)
        recorded = ack.valid & wanted & (ack.end > ack.begin)
        lanes = np.flatnonzero(recorded & ~records.odd)
        acks = locate_acks(records.window, ack.begin[lanes], ack.end[lanes])
        acks.odd |= acks.ack_type >= len(_ACK_TYPE_NAMES)
        records.odd[lanes[acks.odd]] = True
        records.check(lanes, acks.unseen)
        codes = np.full(count, ACK_TYPES_UNMATCHED, np.int64)
        codes[lanes] = acks.ack_type
        records.put("ack_type", lambda: names(_ACK_TYPE_NAMES, codes, ack.valid & ~records.odd))
        _put_identities(records, "consumer_id", lanes, acks.consumer)

    # ---------------------------------------------------------------- messages

    def _messages(self, records: _Records, found: FieldPlaces, wanted: Flags) -> None:
        lanes = np.flatnonzero(found.is_add & wanted & ~records.odd)
        message = found.message
        headers = locate_headers(records.window, message.begin[lanes], message.end[lanes])
        records.odd[lanes[headers.odd]] = True
        records.check(lanes, headers.unseen)
        self._header_columns(records, lanes, headers)
        if Layer.PROPERTIES in self._layers:
            present = np.zeros(len(records), np.bool_)
            present[lanes] = ~headers.odd
            places = headers.marshalled_properties.spread(lanes, records.begin)
            records.columns["properties"] = properties(records.window, places, present, records.odd)
        if Layer.BODY in self._layers:
            _put_bodies(records, lanes, headers)

    def _header_columns(self, records: _Records, lanes: Longs, headers: Headers) -> None:
        present = np.zeros(len(records), np.bool_)
        present[lanes] = True

        def spread(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
            wide = np.zeros(len(records), values.dtype)
            wide[lanes] = values
            return wide

        for name, places in (
            ("group_id", headers.group_id),
            ("correlation_id", headers.correlation_id),
            ("jms_type", headers.jms_type),
            ("user_id", headers.user_id),
        ):
            records.put_texts(name, places.spread(lanes, records.begin))
        _put_qualified(records, "original_destination", lanes, headers.original_destination)
        _put_qualified(records, "reply_to", lanes, headers.reply_to)
        _put_identities(records, "producer_id", lanes, headers.producer)
        content_bytes = np.where(headers.content.valid, headers.content.end - headers.content.begin, 0)
        kinds = headers.kind.astype(np.int64) - MessageType.MESSAGE
        for name, values in (
            ("timestamp", headers.timestamp),
            ("broker_in", headers.broker_in_time),
            ("expiration", headers.expiration),
            ("producer_sequence", headers.producer_sequence),
            ("group_sequence", headers.group_sequence),
            ("redelivery_counter", headers.redelivery_counter),
            ("priority", headers.priority.view(np.int8).astype(np.int64)),
            ("body_size", content_bytes),
            ("persistent", headers.persistent),
            ("compressed", headers.compressed),
        ):
            if name in records.wanted:
                records.columns[name] = _column(spread(values), present, BY_NAME[name].type)
        records.put("message_type", lambda: names(_MESSAGE_TYPE_NAMES, spread(kinds), present & ~records.odd))

    # ---------------------------------------------------------------- putting it together

    def _assembled(self, records: _Records, wanted: Flags) -> Iterator[pa.RecordBatch]:
        """Yield the columns as record batches, odd rows in their places: more than one batch if these are large."""
        count = len(records)
        arrays = [
            records.columns[each.name] if each.name in records.columns else pa.nulls(count, each.type)
            for each in self.schema
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        start, size, patches = 0, 0, list[_Patch]()
        for lane in sorted({*np.flatnonzero(records.odd).tolist(), *records.bodies}):
            patch = self._patch(records, lane, lane - start)
            patches.append(patch)
            size += _bytes_of(patch.row)
            if size > ODD_BYTES_MAX:
                stop = lane + 1
                yield self._patched(batch.slice(start, stop - start), wanted[start:stop], patches)
                start, size, patches = stop, 0, []
        if start < count:
            yield self._patched(batch.slice(start), wanted[start:], patches)

    def _patch(self, records: _Records, lane: int, at: int) -> _Patch:
        """Decode one record, or only its body where that is all that is unusual."""
        if not records.odd[lane]:
            row: Row = {}
            try:
                fill_body(row, records.bodies[lane])
                return _Patch(at, row, is_whole=False)
            except MalformedOpenWire:
                pass  # the whole row says what is wrong with it
        return _Patch(at, row_of(records.payload(lane), self._layers), is_whole=True)

    def _patched(self, batch: pa.RecordBatch, wanted: Flags, patches: Sequence[_Patch]) -> pa.RecordBatch:
        """Return the rows that are wanted, with what was decoded one by one in its place."""
        if patches:
            whole = [patch for patch in patches if patch.is_whole]
            for patch in whole:
                wanted[patch.at] = self._selection.takes(patch.row)
            arrays = [
                column
                if each.name in _NOT_IN_ROWS
                else _spliced(column, each.name, patches if each.name in _BODIES else whole)
                for each, column in zip(self.schema, batch.columns, strict=True)
            ]
            batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        return batch if wanted.all() else batch.filter(pa.array(wanted))


def _spliced(column: pa.Array, name: str, patches: Sequence[_Patch]) -> pa.Array:
    """Return a column with some of its values replaced."""
    if not patches:
        return column
    values = [patch.row.get(name) for patch in patches]
    at = np.array([patch.at for patch in patches])
    if column.null_count == len(column) and not any(value is not None for value in values):
        return column
    replacements = pa.array(values, column.type)
    if len(at) <= FEW_PATCHES and column.take(pa.array(at)).equals(replacements):
        return column  # as of a trace, whose type needs no decoding
    if len(at) <= FEW_PATCHES:
        stops = [*at.tolist(), len(column)]
        parts = [column.slice(0, stops[0])]
        for number, (lane, stop) in enumerate(pairwise(stops)):
            parts += replacements.slice(number, 1), column.slice(lane + 1, stop - lane - 1)
        return pa.concat_arrays(parts)
    if pa.types.is_nested(column.type):
        index = np.arange(len(column))
        index[at] = len(column) + np.arange(len(at))
        return pa.concat_arrays([column, replacements]).take(pa.array(index))
    mask = np.zeros(len(column), np.bool_)
    mask[at] = True
    replaced: pa.Array = pc.replace_with_mask(column, pa.array(mask), replacements)
    return replaced


ACK_TYPES_UNMATCHED: Final = _ACK_TYPE_NAMES.index("unmatched")
_BODIES: Final = frozenset(("text", "body"))
_NOT_IN_ROWS: Final = frozenset(
    ("directory", "file", "offset", "position", "batch", "size", "checksum", "time", "time_source")
)


def _bytes_of(row: Row) -> int:
    text, body = row.get("text"), row.get("body")
    return (len(text) if isinstance(text, str) else 0) + (len(body) if isinstance(body, bytes) else 0)


def _layers(columns: Collection[str], selection: Selection) -> frozenset[Layer]:
    """Return what has to be decoded; a selection looks at fields of the record."""
    found = layers(tuple(columns))
    return found if selection.is_everything else found | {Layer.RECORD}


def _arrival(payload: bytes) -> int:
    try:
        return arrival_of(decode(payload)) or 0
    except MalformedRecord:
        return 0


def _transaction_text(raw: bytes) -> str | None:
    """Return the text of a transaction, given the field that a commit consists of; None when it does not decode."""
    try:
        command = decode(b"%c%b%b" % (CommandType.COMMIT, varint(len(raw)), raw))
    except MalformedRecord:
        return None
    return clean(str(getattr(command, "transaction", "")))


def _checksums(records: _Records) -> pa.Array:
    found = records.window.longs(records.first - CHECKSUM_BYTES)
    return names(("none", "ok"), (found > 0).astype(np.int64))


def _column(values: npt.NDArray[Any], present: Flags, kind: pa.DataType) -> pa.Array:
    return instants(values, present) if pa.types.is_timestamp(kind) else numbers(values, present, kind)


def _put_identities(records: _Records, name: str, lanes: Longs, identity: Identity) -> None:
    """Add producers' or consumers' ids as `<connection>:<session>:<value>`."""
    connection = records.texts(identity.connection.spread(lanes, records.begin))
    if name not in records.wanted:
        return
    session, value = np.zeros(len(records), np.int64), np.zeros(len(records), np.int64)
    session[lanes], value[lanes] = identity.session, identity.value
    parts = (connection, pa.array(session).cast(pa.string()), pa.array(value).cast(pa.string()))
    records.columns[name] = pc.binary_join_element_wise(*parts, ":")


def _put_qualified(records: _Records, name: str, lanes: Longs, named: Named) -> None:
    """Add destinations as `queue://NAME`."""
    if not named.name.valid.any():
        return
    places = named.name.spread(lanes, records.begin)
    found = records.texts(places)
    if name in records.wanted:
        kinds = np.zeros(len(records), np.int64)
        kinds[lanes] = np.where(named.name.valid, named.kind - min(ids.DESTINATION_TYPES), 0)
        records.columns[name] = pc.binary_join_element_wise(names(_QUALIFIED, kinds, places.valid), found, "")


def _put_bodies(records: _Records, lanes: Longs, headers: Headers) -> None:
    """Add texts and bodies. Streams, maps of unusual shape and what is compressed are left to `rows`."""
    content, kind, window = headers.content, headers.kind, records.window
    sound = ~records.odd[lanes]
    is_text, is_map = kind == MessageType.TEXT, kind == MessageType.MAP
    late = sound & (headers.compressed & (content.end > content.begin) | (kind == MessageType.STREAM))
    framed = sound & is_text & content.valid & ~late
    length = content.end - content.begin
    fits = (length >= SIZE_PREFIX.size) & (window.ints(content.begin) == length - SIZE_PREFIX.size)
    records.odd[lanes[framed & ~fits]] = True
    begin = np.minimum(content.begin + SIZE_PREFIX.size, content.end)
    found = records.texts(Places(begin, content.end, framed & fits).spread(lanes, records.begin))
    maps = np.flatnonzero(sound & is_map & ~late)
    if len(maps):
        odd = np.zeros(len(maps), np.bool_)
        some = map_texts(window, Places(content.begin[maps], content.end[maps], ~odd), odd)
        late[maps[odd]] = True
        mask = np.zeros(len(records), np.bool_)
        mask[lanes[maps]] = True
        found = pc.replace_with_mask(found, pa.array(mask), some)
    records.columns["text"] = found
    others = content.only(sound & ~is_text & ~is_map & ~late)
    records.put("body", lambda: blobs(window, others.spread(lanes, records.begin)))
    for index in np.flatnonzero(late).tolist():
        records.bodies[int(lanes[index])] = OpenWireMessage(
            type=MessageType(int(kind[index])),
            content=window.data[content.begin[index] : content.end[index]] if content.valid[index] else None,
            compressed=bool(headers.compressed[index]),
        )
