"""Many records at once: from a chunk of a data file to an Arrow record batch, with no loop over records.

What has the usual shape is decoded by `fields`, `headers` and `properties`, step by step for all records together. What
has not is decoded by `rows`, one by one, and put in its place. Both say the same; a test compares them.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.openwire import ids
from pybroker.broker.domain.openwire.message import MessageType
from pybroker.store.columns.chunks import Chunk, Longs
from pybroker.store.columns.fields import Fields, locate
from pybroker.store.columns.files import Piece
from pybroker.store.columns.headers import Headers, Identity, Named, locate_acks, locate_headers
from pybroker.store.columns.lanes import Flags, Window
from pybroker.store.columns.properties import properties
from pybroker.store.columns.rows import (
    ACK_TYPES,
    BROKER_IN_FROM_END,
    DESTINATION_TYPES,
    MESSAGE_TYPES,
    MILLISECONDS_MAX,
    RECORD_TYPES,
    Row,
    arrival_of,
    clean,
    row_of,
)
from pybroker.store.columns.schema import BY_NAME, CORRUPT, Layer, arrow_schema, layers
from pybroker.store.columns.selection import EVERYTHING, Selection
from pybroker.store.columns.texts import Places, blobs, instants, names, numbers, texts
from pybroker.store.columns.timeline import SOURCES, Timeline
from pybroker.store.journal.commands import CommandType, MalformedRecord, decode
from pybroker.store.journal.format import BATCH_HEADER_BYTES, RECORD_HEADER_BYTES
from pybroker.store.journal.marks import mark_at
from pybroker.store.journal.protobuf import varint
from pybroker.store.journal.reader import CHECKSUM_BYTES

ROWS_MAX: Final = 16 * 1024
"""Of a record batch: more are no faster, and take more memory."""
ODD_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of bodies that were decoded one by one: a compressed one may grow to a thousand times its size on disk."""
POSITION_BITS: Final = 32
"""Of a position, what is the offset."""

_QUALIFIED: Final = [f"{Destination(kind, '')}" for kind in ids.DESTINATION_TYPES.values()]
_MESSAGE_TYPE_NAMES: Final = [MESSAGE_TYPES[code] for code in sorted(MESSAGE_TYPES)]
_ACK_TYPE_NAMES: Final = [ACK_TYPES[code] for code in sorted(ACK_TYPES)]


@dataclass(slots=True)
class _Records:
    """Some records of a chunk, and the columns that are made of them so far.

    Attributes:
        begin: where each record begins in the chunk's data; `end`, `batch` likewise.
        odd: those that are left to `rows`.
        columns: arrays by name.
    """

    window: Window
    begin: Longs
    end: Longs
    first: Longs
    odd: Flags
    columns: dict[str, pa.Array] = field(default_factory=dict[str, pa.Array])

    def __len__(self) -> int:
        return len(self.begin)

    def payload(self, index: int) -> bytes:
        return self.window.data[self.begin[index] + RECORD_HEADER_BYTES : self.end[index]]

    def texts(self, places: Places) -> pa.Array:
        return texts(self.window, places, self.odd)

    def check(self, lanes: Longs, unseen: Sequence[Places]) -> None:
        """Mark the records with a text that is none, though no column shows it."""
        for places in unseen:
            if places.valid.any():
                self.texts(places.spread(lanes, self.begin))


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
        records = _Records(window, begin, end, chunk.first[chunk.batch_of[part]], np.zeros(len(begin), np.bool_))
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
        checksums = records.window.longs(records.first - CHECKSUM_BYTES)
        records.columns |= {
            "directory": pa.repeat(piece.directory, count),
            "file": numbers(np.full(count, piece.file_id, np.int32), None, pa.int32()),
            "offset": numbers(offset, None, pa.int64()),
            "position": numbers(offset + (piece.file_id << POSITION_BITS), None, pa.int64()),
            "batch": numbers(records.first + (base - BATCH_HEADER_BYTES), None, pa.int64()),
            "size": numbers(records.end - records.begin, None, pa.int64()),
            "checksum": names(("none", "ok"), (checksums > 0).astype(np.int64)),
            CORRUPT: pa.nulls(count, pa.string()),
        }

    def _times(self, records: _Records, found: Fields) -> None:
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

    def _record(self, records: _Records, found: Fields) -> None:
        sound = ~found.odd
        records.columns |= {
            "record_type": names(RECORD_TYPES, found.kind, sound),
            "destination_type": names(
                tuple(DESTINATION_TYPES.values()), found.destination_type, found.destination.valid
            ),
            "destination": records.texts(found.destination),
            "message_id": records.texts(found.message_id),
            "subscription": records.texts(found.subscription),
            "transaction": self._transaction_texts(records, found.transaction),
        }
        if "message" in self._wanted:
            records.columns["message"] = blobs(records.window, found.message)

    def _transaction_texts(self, records: _Records, places: Places) -> pa.Array:
        if not places.valid.any():
            return pa.nulls(len(records), pa.string())
        data, cache = records.window.data, self._transactions
        found: list[str | None] = [None] * len(records)
        lanes = np.flatnonzero(places.valid)
        begins, ends = places.begin[lanes].tolist(), places.end[lanes].tolist()
        for lane, begin, end in zip(lanes.tolist(), begins, ends, strict=True):
            raw = data[begin:end]
            if raw not in cache:
                cache[raw] = _transaction_text(raw)
            found[lane] = cache[raw]
            if found[lane] is None:
                records.odd[lane] = True
        if len(cache) > ROWS_MAX:
            cache.clear()
        return pa.array(found, pa.string())

    def _chosen(self, records: _Records, found: Fields) -> Flags:
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

    def _acks(self, records: _Records, found: Fields, wanted: Flags) -> None:
        ack, count = found.ack, len(records)
        recorded = ack.valid & wanted & (ack.end > ack.begin)
        lanes = np.flatnonzero(recorded & ~records.odd)
        acks = locate_acks(records.window, ack.begin[lanes], ack.end[lanes])
        acks.odd |= acks.ack_type >= len(_ACK_TYPE_NAMES)
        records.odd[lanes[acks.odd]] = True
        records.check(lanes, acks.unseen)
        codes = np.full(count, ACK_TYPES_UNMATCHED, np.int64)
        codes[lanes] = acks.ack_type
        records.columns["ack_type"] = names(_ACK_TYPE_NAMES, codes, ack.valid & ~records.odd)
        records.columns["consumer_id"] = _identity_texts(records, lanes, acks.consumer)

    # ---------------------------------------------------------------- messages

    def _messages(self, records: _Records, found: Fields, wanted: Flags) -> None:
        lanes = np.flatnonzero(found.is_add & wanted & ~records.odd)
        message = found.message
        headers = locate_headers(records.window, message.begin[lanes], message.end[lanes])
        records.odd[lanes[headers.odd]] = True
        records.check(lanes, headers.unseen)
        self._header_columns(records, lanes, headers)
        if Layer.PROPERTIES in self._layers:
            present = np.zeros(len(records), np.bool_)
            present[lanes] = ~headers.odd
            places = headers.properties.spread(lanes, records.begin)
            records.columns["properties"] = properties(records.window, places, present, records.odd)
        if Layer.BODY in self._layers:
            _bodies(records, lanes, headers)

    def _header_columns(self, records: _Records, lanes: Longs, headers: Headers) -> None:
        present = np.zeros(len(records), np.bool_)
        present[lanes] = True

        def spread(values: Longs) -> Longs:
            wide = np.zeros(len(records), values.dtype)
            wide[lanes] = values
            return wide

        columns = records.columns
        for name, places in (
            ("group_id", headers.group_id),
            ("correlation_id", headers.correlation_id),
            ("jms_type", headers.jms_type),
            ("user_id", headers.user_id),
        ):
            columns[name] = records.texts(places.spread(lanes, records.begin))
        columns["original_destination"] = _qualified(records, lanes, headers.original_destination)
        columns["reply_to"] = _qualified(records, lanes, headers.reply_to)
        columns["producer_id"] = _identity_texts(records, lanes, headers.producer)
        for name, times in (
            ("timestamp", headers.timestamp),
            ("broker_in", headers.broker_in),
            ("expiration", headers.expiration),
        ):
            columns[name] = instants(spread(times), present)
        content_bytes = np.where(headers.content.valid, headers.content.end - headers.content.begin, 0)
        for name, values in (
            ("producer_sequence", headers.producer_sequence),
            ("group_sequence", headers.group_sequence),
            ("redelivery_counter", headers.redelivery_counter),
            ("priority", headers.priority.view(np.int8).astype(np.int64)),
            ("body_size", content_bytes),
        ):
            columns[name] = numbers(spread(values), present, BY_NAME[name].type)
        for name, flags in (("persistent", headers.persistent), ("compressed", headers.compressed)):
            columns[name] = numbers(spread(flags.astype(np.int64)).astype(np.bool_), present, pa.bool_())
        kinds = headers.kind.astype(np.int64) - MessageType.MESSAGE
        columns["message_type"] = names(_MESSAGE_TYPE_NAMES, spread(kinds), present & ~records.odd)

    # ---------------------------------------------------------------- putting it together

    def _assembled(self, records: _Records, wanted: Flags) -> Iterator[pa.RecordBatch]:
        """Yield the columns as record batches, odd rows in their places: more than one batch if these are large."""
        count = len(records)
        arrays = [
            records.columns[each.name] if each.name in records.columns else pa.nulls(count, each.type)
            for each in self.schema
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        start, size, lanes, rows = 0, 0, list[int](), list[Row]()
        for lane in np.flatnonzero(records.odd).tolist():
            rows.append(row_of(records.payload(lane), self._layers))
            lanes.append(lane - start)
            size += _bytes_of(rows[-1])
            if size > ODD_BYTES_MAX:
                stop = lane + 1
                yield self._merged(batch.slice(start, stop - start), wanted[start:stop], lanes, rows)
                start, size, lanes, rows = stop, 0, [], []
        if start < count:
            yield self._merged(batch.slice(start), wanted[start:], lanes, rows)

    def _merged(
        self, batch: pa.RecordBatch, wanted: Flags, lanes: Sequence[int], rows: Sequence[Row]
    ) -> pa.RecordBatch:
        """Return the rows that are wanted, with those that were decoded one by one in their places."""
        index = np.arange(batch.num_rows)
        if rows:
            odd = np.array(lanes)
            taken = np.array([self._selection.takes(row) for row in rows])
            index[odd] = np.where(taken, batch.num_rows + np.arange(len(rows)), -1)
            batch = pa.concat_batches([batch, self._from_rows(batch, odd, rows)])
        elif wanted.all():
            return batch
        index[~wanted] = -1
        return batch.take(pa.array(index[index >= 0]))

    def _from_rows(self, batch: pa.RecordBatch, odd: Longs, rows: Sequence[Row]) -> pa.RecordBatch:
        """Return the rows as a record batch; place and time are those of the batch they belong to."""
        places = batch.take(pa.array(odd))
        arrays: list[pa.Array] = []
        for each in self.schema:
            if each.name in _NOT_IN_ROWS:
                arrays.append(places.column(each.name))
            else:
                arrays.append(pa.array([row.get(each.name) for row in rows], each.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


ACK_TYPES_UNMATCHED: Final = _ACK_TYPE_NAMES.index("unmatched")
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


def _identity_texts(records: _Records, lanes: Longs, identity: Identity) -> pa.Array:
    """Return producers' or consumers' ids as `<connection>:<session>:<value>`."""
    connection = records.texts(identity.connection.spread(lanes, records.begin))
    session, value = np.zeros(len(records), np.int64), np.zeros(len(records), np.int64)
    session[lanes], value[lanes] = identity.session, identity.value
    parts = (connection, pa.array(session).cast(pa.string()), pa.array(value).cast(pa.string()))
    joined: pa.Array = pc.binary_join_element_wise(*parts, ":")
    return joined


def _qualified(records: _Records, lanes: Longs, named: Named) -> pa.Array:
    """Return destinations as `queue://NAME`."""
    if not named.name.valid.any():
        return pa.nulls(len(records), pa.string())
    places = named.name.spread(lanes, records.begin)
    kinds = np.zeros(len(records), np.int64)
    kinds[lanes] = np.where(named.name.valid, named.kind - min(ids.DESTINATION_TYPES), 0)
    joined: pa.Array = pc.binary_join_element_wise(names(_QUALIFIED, kinds, places.valid), records.texts(places), "")
    return joined


def _bodies(records: _Records, lanes: Longs, headers: Headers) -> None:
    """Add texts and bodies. Maps and streams are odd, and what is compressed."""
    content, kind = headers.content, headers.kind
    is_text = kind == MessageType.TEXT
    odd = (kind == MessageType.MAP) | (kind == MessageType.STREAM)
    odd |= headers.compressed & content.valid & (content.end > content.begin)
    framed = is_text & content.valid & ~odd
    length = content.end - content.begin
    fits = (length >= 4) & (records.window.ints(content.begin) == length - 4)
    odd |= framed & ~fits
    records.odd[lanes[odd]] = True
    text = Places(np.minimum(content.begin + 4, content.end), content.end, framed & fits & ~headers.odd)
    records.columns["text"] = records.texts(text.spread(lanes, records.begin))
    body = content.only(~is_text & ~odd & ~headers.odd)
    records.columns["body"] = blobs(records.window, body.spread(lanes, records.begin))
