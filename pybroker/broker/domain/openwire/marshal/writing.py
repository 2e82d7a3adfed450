"""The declarations compiled into writers, once per version and encoding; the mirror image of `reading`.

A writer puts a structure into a sink, its data type first.

Source: OpenWire, loose and tight encoding, wire versions 1 to 12.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache, partial
from itertools import groupby
from operator import attrgetter
from struct import Struct
from typing import Any, TypeAlias

from pybroker.broker.domain.big_endian import SHORT
from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.broker.domain.openwire.ids import DESTINATION_TYPES
from pybroker.broker.domain.openwire.loose import UnencodableOpenWire
from pybroker.broker.domain.openwire.marshal.caches import NOT_STORED
from pybroker.broker.domain.openwire.marshal.layouts import LAYOUTS, MARSHAL_AWARE, Layout
from pybroker.broker.domain.openwire.marshal.reading import REMEMBERED, REMEMBERED_MAX, RUNS
from pybroker.broker.domain.openwire.marshal.schema import FieldKind, Spec
from pybroker.broker.domain.openwire.marshal.sinks import LooseSink, TightSink
from pybroker.broker.domain.openwire.throwables import CAUSES_MAX, Throwable

Write: TypeAlias = Callable[[Any, Any], None]
"""Puts a value into a sink (`Any`, because each is compiled for one of the two kinds)."""

_ARRAY_MAX = 32767


@lru_cache
def writers(version: int, *, tight: bool, caching: bool, stack_traces: bool) -> Mapping[type, Write]:
    """Return the writers of a version's structures by class, as top-level frames have them."""
    return _WriteCompiler(version, tight, caching, stack_traces).top_level


class _WriteCompiler:
    """Compiles one version and encoding.

    Attributes:
        top_level: writers by class.
    """

    def __init__(self, version: int, tight: bool, caching: bool, stack_traces: bool) -> None:
        self._version = version
        self._sink = TightSink if tight else LooseSink
        self._caching = caching
        self._throwable = partial(_write_throwable, stack_traces)
        self._any: dict[type, Write] = {}
        self._nested = partial(_write_nested, self._any)
        layouts = [layout for layout in LAYOUTS.values() if layout.since <= version]
        self.top_level = _by_class(layouts, partial(self._structure, aware=False))
        self._any.update(_by_class(layouts, partial(self._inner, tight=tight)))

    def _inner(self, layout: Layout, *, tight: bool) -> Write:
        if layout.repeats:
            return _repeating(self._sink, layout.data_type)
        write = self._structure(layout, aware=tight and layout.types[0] in MARSHAL_AWARE)
        return partial(_write_deeper, write) if layout.nests else write

    def _structure(self, layout: Layout, *, aware: bool) -> Write:
        present = layout.fields_in(self._version)
        if layout.parts is not None:
            absent = len(layout.fields) - len(present)
            return _tuple_writer(layout.data_type, layout.parts, absent, [self._field(spec) for _, spec in present])
        return _record_writer(layout.data_type, aware, self._steps(present))

    def _steps(self, present: Iterable[tuple[str, Spec]]) -> list[Write]:
        steps: list[Write] = []
        for is_run, group in groupby(present, key=self._is_in_run):
            named = list(group)
            if is_run and len(named) > 1:
                layout = Struct(">" + "".join(RUNS[spec.kind] for _, spec in named))
                steps.append(_run_step(attrgetter(*(name for name, _ in named)), layout))
            else:
                steps.extend(_step(attrgetter(name), self._field(spec)) for name, spec in named)
        return steps

    def _is_in_run(self, field: tuple[str, Spec]) -> bool:
        return self._sink is LooseSink and field[1].kind in RUNS

    def _field(self, spec: Spec) -> Write:
        match spec.kind:
            case FieldKind.BOOLEAN:
                return self._sink.boolean
            case FieldKind.BYTE:
                return self._sink.byte
            case FieldKind.INT:
                return self._sink.integer
            case FieldKind.LONG:
                return self._sink.long
            case FieldKind.STRING:
                return self._sink.string
            case FieldKind.BYTES:
                return self._sink.byte_sequence
            case FieldKind.FIXED_BYTES:
                return _fixed_bytes(spec.size)
            case FieldKind.OBJECT:
                return partial(_write_cached, self._nested) if spec.cached and self._caching else self._nested
            case FieldKind.ARRAY:
                return partial(_write_array, self._nested)
            case FieldKind.THROWABLE:
                return self._throwable


# ---------------------------------------------------------------- structures


def _record_writer(data_type: int, aware: bool, steps: list[Write]) -> Write:
    def write(sink: LooseSink, value: Any) -> None:
        sink.out.append(data_type)
        if aware:
            sink.boolean(False)
        for step in steps:
            step(sink, value)

    return write


def _tuple_writer(
    data_type: int, parts: Callable[[Any], tuple[Any, ...]], absent: int, fields: list[Write]
) -> Write:  # fmt: skip
    def write(sink: LooseSink, value: Any) -> None:
        sink.out.append(data_type)
        for field, part in zip(fields, parts(value)[absent:], strict=True):
            field(sink, part)

    return write


def _by_class(layouts: Iterable[Layout], compiled: Callable[[Layout], Write]) -> dict[type, Write]:
    found: dict[type, Write] = {}
    destinations: dict[DestinationType, Write] = {}
    for layout in layouts:
        write = compiled(layout)
        if layout.types == (Destination,):
            destinations[DESTINATION_TYPES[layout.data_type]] = write
        else:
            found.update(dict.fromkeys(layout.types, write))
    found[Destination] = lambda sink, value: destinations[value.type](sink, value)
    return found


@cache
def _repeating(sink_type: type[LooseSink], data_type: int) -> Write:
    """Return a writer of a name with its numbers that knows what it wrote for those that repeat."""
    layout = LAYOUTS[data_type]
    assert layout.parts is not None
    parts = layout.parts
    write = _tuple_writer(data_type, parts, 0, [sink_type.string, *[sink_type.long] * (len(layout.fields) - 1)])

    @lru_cache(REMEMBERED)
    def remembered(value: Any) -> Any:
        sink = sink_type()
        write(sink, value)
        return sink.recorded()

    def write_repeating(sink: LooseSink, value: Any) -> None:
        name = parts(value)[0]
        if name is None or len(name) > REMEMBERED_MAX:
            write(sink, value)
        else:
            sink.replay(remembered(value))

    return write_repeating


def _step(get: Callable[[Any], Any], write: Write) -> Write:
    return lambda sink, value: write(sink, get(value))


def _run_step(get: Callable[[Any], tuple[Any, ...]], layout: Struct) -> Write:
    pack = layout.pack

    def step(sink: LooseSink, value: Any) -> None:
        sink.out += pack(*get(value))

    return step


# ---------------------------------------------------------------- fields


def _write_nested(table: Mapping[type, Write], sink: LooseSink, value: object) -> None:
    if value is None:
        sink.boolean(False)
        return
    kind = type(value)
    write = table.get(kind)
    if write is None:
        raise UnencodableOpenWire(f"{kind.__name__} is nothing that this version of OpenWire has")
    sink.boolean(True)
    write(sink, value)


def _write_deeper(write: Write, sink: LooseSink, value: Any) -> None:
    sink.deeper()
    write(sink, value)
    sink.levels += 1


def _write_cached(nested: Write, sink: LooseSink, value: Any) -> None:
    cache = sink.cache
    if cache is None or not _is_reusable(value):
        sink.boolean(True)
        sink.short(NOT_STORED)
        nested(sink, value)
        return
    index = cache.index_of(value)
    sink.boolean(index is None)
    if index is not None:
        sink.short(index)
    elif sink.INDEX_FIRST:
        sink.short(cache.add(value))
        nested(sink, value)
    else:
        place = len(sink.out)
        sink.short(NOT_STORED)
        nested(sink, value)
        SHORT.pack_into(sink.out, place, cache.add(value))


def _is_reusable(value: object) -> bool:
    """Only null and identifiers are: what can change is never the same for long."""
    return value is None or isinstance(value, tuple)


def _write_array(element: Write, sink: LooseSink, values: tuple[Any, ...] | None) -> None:
    sink.boolean(values is not None)
    if values is None:
        return
    if len(values) > _ARRAY_MAX:
        raise UnencodableOpenWire(f"an array of {len(values)} elements, where {_ARRAY_MAX} is the limit")
    sink.short(len(values))
    for value in values:
        element(sink, value)


def _fixed_bytes(size: int) -> Write:
    def write(sink: LooseSink, value: bytes) -> None:
        if len(value) != size:
            raise UnencodableOpenWire(f"{len(value)} bytes where {size} belong")
        sink.out += value

    return write


def _write_throwable(stack_traces: bool, sink: LooseSink, value: Throwable | None) -> None:
    for _ in range(CAUSES_MAX):
        sink.boolean(value is not None)
        if value is None:
            return
        sink.string(value.class_name)
        sink.string(value.message)
        if not stack_traces:
            return
        sink.short(len(value.stack))
        for frame in value.stack:
            sink.string(frame.class_name)
            sink.string(frame.method)
            sink.string(frame.file)
            sink.integer(frame.line)
        value = value.cause
    raise UnencodableOpenWire(f"an exception with more than {CAUSES_MAX - 1} causes")
