"""One connection's codec: frames in, values out, and back, in the format both ends agreed on.

Source: OpenWire, framing; loose and tight encoding; value caching.
"""

from io import BytesIO
from struct import error as StructError

from pybroker.broker.domain.big_endian import INT
from pybroker.broker.domain.openwire.commands import DataStructure
from pybroker.broker.domain.openwire.loose import MalformedOpenWire, UnencodableOpenWire
from pybroker.broker.domain.openwire.marshal.caches import RESERVED_SLOTS, SLOTS_MAX, ReadCache, WriteCache
from pybroker.broker.domain.openwire.marshal.reading import readers
from pybroker.broker.domain.openwire.marshal.schema import VERSION_MAX, VERSION_MIN
from pybroker.broker.domain.openwire.marshal.sinks import LooseSink, TightSink
from pybroker.broker.domain.openwire.marshal.sources import LooseSource, TightSource
from pybroker.broker.domain.openwire.marshal.writing import Write, writers


class WireFormat:
    """Encodes and decodes in one format. With caching it has a memory: use one per connection, for every frame.

    Attributes:
        version: wire version, 1 to 12.
        tight: tight encoding rather than loose.
        cache_size: slots of the tables of value caching; 0 for no caching.
        stack_traces: exceptions carry stack frames and causes.
    """

    __slots__ = (
        "_read_cache",
        "_readers",
        "_write_cache",
        "_writers",
        "cache_size",
        "stack_traces",
        "tight",
        "version",
    )

    def __init__(
        self,
        version: int = VERSION_MAX,
        *,
        tight: bool = False,
        cache_size: int = 0,
        stack_traces: bool = False,
        reuse: bool = False,
    ) -> None:
        """Set up a format.

        Args:
            version: wire version, 1 to 12.
            tight: tight encoding rather than loose.
            cache_size: slots of the tables of value caching, at most 32767; 0 for no caching.
            stack_traces: exceptions carry stack frames and causes.
            reuse: let the peer cache what we write, and refer to it, as Java does; otherwise every value is written
                in full. Takes at least 100 slots.

        Raises:
            ValueError: there is no such version, or no such table.
        """
        if not VERSION_MIN <= version <= VERSION_MAX:
            raise ValueError(f"OpenWire has versions {VERSION_MIN} to {VERSION_MAX}, not {version}")
        if not 0 <= cache_size <= SLOTS_MAX:
            raise ValueError(f"a cache has 0 to {SLOTS_MAX} slots, not {cache_size}")
        if reuse and cache_size < RESERVED_SLOTS:
            raise ValueError(f"reuse takes a cache of {RESERVED_SLOTS} slots or more, not {cache_size}")
        self.version = version
        self.tight = tight
        self.cache_size = cache_size
        self.stack_traces = stack_traces
        caching = cache_size > 0
        self._read_cache = ReadCache(cache_size) if caching else None
        self._write_cache = WriteCache(cache_size) if reuse else None
        self._readers = readers(version, tight=tight, caching=caching, stack_traces=stack_traces)
        self._writers = writers(version, tight=tight, caching=caching, stack_traces=stack_traces)

    def decode(self, frame: bytes | memoryview, *, with_views: bool = False) -> DataStructure:
        """Decode a frame without its size prefix.

        Args:
            frame: the frame.
            with_views: byte sequences of `VIEW_BYTES_MIN` are views of the frame, which `encode_pieces` does not copy.

        Raises:
            MalformedOpenWire: it is no structure of this version, is cut short, or bytes are left over.
        """
        source = self._source(frame)
        if with_views:
            source.views = []
        value = self._decode(source)
        source.end()
        return value

    def decode_large(self, frame: BytesIO) -> tuple[DataStructure, int]:
        """Decode a frame, whose longest byte sequence is not copied.

        Returns:
            The structure, and where in the frame that sequence begins, of which the structure has a view; -1: there is
            none of `VIEW_BYTES_MIN`, or there are several.

        Raises:
            MalformedOpenWire: as `decode`.
        """
        source = self._source(frame.getvalue())
        views: list[int] = []
        source.views = views
        value = self._decode(source)
        source.end()
        return value, views[0] if len(views) == 1 else -1

    def decode_first(self, data: bytes) -> tuple[DataStructure, int]:
        """Decode a structure that more bytes may follow; return it and the offset at which they begin.

        Raises:
            MalformedOpenWire: it is no structure of this version, or is cut short.
        """
        source = self._source(data)
        return self._decode(source), source.offset

    def _source(self, frame: bytes | memoryview) -> TightSource | LooseSource:
        data = frame if isinstance(frame, bytes) else bytes(frame)
        return (TightSource if self.tight else LooseSource)(data, self._read_cache)

    def _decode(self, source: TightSource | LooseSource) -> DataStructure:
        data_type = source.unsigned_byte()
        read = self._readers.get(data_type)
        if read is None:
            raise MalformedOpenWire(f"unknown data type {data_type}")
        source.begin()
        value: DataStructure = read(source)
        return value

    def encode(self, value: DataStructure) -> bytes:
        """Encode a frame without its size prefix. Raises `UnencodableOpenWire` as `encode_pieces` does."""
        return b"".join(self.encode_pieces(value))  # one piece is returned as it is

    def encode_pieces(self, value: DataStructure) -> list[bytes | memoryview]:
        """Encode a frame without its size prefix, in pieces: byte sequences that are views stay so.

        Raises:
            UnencodableOpenWire: the version does not have the structure, a string or array is too long, or a number
                out of its range. The frame leaves no trace in the caches.
        """
        write = self._writers.get(type(value))
        if write is None:
            raise UnencodableOpenWire(f"OpenWire {self.version} has no {type(value).__name__}")
        cache = self._write_cache
        sink = (TightSink if self.tight else LooseSink)(cache)
        if cache is None:
            return _written(sink, write, value)
        cache.begin()
        try:
            return _written(sink, write, value)
        except BaseException:
            cache.undo()
            raise

    def encode_frame(self, value: DataStructure) -> bytes:
        """Encode a frame with its size prefix. Raises `UnencodableOpenWire` as `encode_pieces` does."""
        return b"".join(self.encode_frame_pieces(value))

    def encode_frame_pieces(self, value: DataStructure) -> list[bytes | memoryview]:
        """Encode a frame with its size prefix, in pieces. Raises `UnencodableOpenWire` as `encode_pieces` does."""
        first, *others = self.encode_pieces(value)
        return [INT.pack(len(first) + sum(map(len, others))) + first, *others]


def _written(sink: LooseSink, write: Write, value: DataStructure) -> list[bytes | memoryview]:
    try:
        write(sink, value)
        return sink.pieces()
    except StructError as error:
        raise UnencodableOpenWire(f"a number out of its range: {error}") from error
