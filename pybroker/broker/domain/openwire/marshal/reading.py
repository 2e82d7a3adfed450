"""The declarations compiled into readers, once per version and encoding.

A reader takes a structure's fields from a source that stands behind the data type. It is made of one function per
field; in loose encoding a run of numbers and booleans is taken at once. Which encoding it is, is the source's business
alone: flags, longs and strings are its methods.

Source: OpenWire, loose and tight encoding, wire versions 1 to 12.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from functools import cache, lru_cache, partial
from itertools import groupby, takewhile
from struct import Struct
from struct import error as StructError
from typing import Any, Final, TypeAlias

from pybroker.broker.domain.big_endian import BYTE_AND_UNSIGNED_SHORT
from pybroker.broker.domain.openwire.loose import MalformedOpenWire, decode_mutf8
from pybroker.broker.domain.openwire.marshal.layouts import LAYOUTS, MARSHAL_AWARE, Layout
from pybroker.broker.domain.openwire.marshal.schema import FieldKind, Spec
from pybroker.broker.domain.openwire.marshal.sources import LooseSource, TightSource
from pybroker.broker.domain.openwire.throwables import CAUSES_MAX, StackFrame, Throwable

Read: TypeAlias = Callable[[Any], Any]
"""Takes a value from a source (`Any`, because each is compiled for one of the two kinds)."""
Step: TypeAlias = Callable[[Any, Any], None]
"""Sets one or more attributes of a record to what it takes from a source."""

RUNS: Final = {FieldKind.BOOLEAN: "?", FieldKind.BYTE: "b", FieldKind.INT: "i", FieldKind.LONG: "q"}
"""Kinds of fixed width in loose encoding, as `struct` names them."""

_name_length_at = BYTE_AND_UNSIGNED_SHORT.unpack_from
REMEMBERED: Final = 512
"""Identifiers of each type whose decoded form is kept, because they come with frame after frame."""
REMEMBERED_MAX: Final = 256
"""Longer ones are not cached, so that unusual names cannot fill the memory."""
_STACK_FRAME_BYTES_MIN = 4
"""Three strings may be null, the line is an int."""


@lru_cache
def readers(version: int, *, tight: bool, caching: bool, stack_traces: bool) -> Mapping[int, Read]:
    """Return the readers of a version's data types, as top-level frames have them."""
    return _ReadCompiler(version, tight, caching, stack_traces).top_level


class _ReadCompiler:
    """Compiles one version and encoding.

    Attributes:
        top_level: readers by data type.
    """

    def __init__(self, version: int, tight: bool, caching: bool, stack_traces: bool) -> None:
        self._version = version
        self._source = TightSource if tight else LooseSource
        self._caching = caching
        self._throwable = partial(_read_throwable, stack_traces)
        self._any: dict[int, Read] = {}
        self._restricted: dict[tuple[type | str, ...], dict[int, Read]] = {(): self._any}
        layouts = [layout for layout in LAYOUTS.values() if layout.since <= version]
        self.top_level = {layout.data_type: self._structure(layout) for layout in layouts}
        for layout in layouts:
            self._any[layout.data_type] = self._nested(layout, self.top_level[layout.data_type], tight)
        for types, table in self._restricted.items():
            if types:
                table.update(self._only(types, layouts))

    def _nested(self, layout: Layout, read: Read, tight: bool) -> Read:
        if tight and layout.types[0] in MARSHAL_AWARE:
            read = partial(_read_aware, read)
        if layout.nests:
            read = partial(_read_deeper, read)
        return _repeating(layout.data_type) if layout.repeats and not tight else read

    def _only(self, types: tuple[type | str, ...], layouts: Iterable[Layout]) -> Iterable[tuple[int, Read]]:
        for layout in layouts:
            accepted = [kind for kind in layout.types if kind in types or kind.__name__ in types]
            if accepted:
                read = self._any[layout.data_type]
                whole = len(accepted) == len(layout.types)
                yield layout.data_type, read if whole else partial(_read_only, tuple(accepted), read)

    def _structure(self, layout: Layout) -> Read:
        present = layout.fields_in(self._version)
        if layout.build is not None:
            absent = len(layout.fields) - len(present)
            # Only the text view of a message id is younger than its structure, and it stands first.
            build = partial(layout.build, *[None] * absent) if absent else layout.build
            return self._tuple(build, [spec for _, spec in present])
        record = layout.types[0]
        return _record_reader(record, self._defaults(layout), self._steps(record, present))

    def _tuple(self, build: Callable[..., Any], specs: list[Spec]) -> Read:
        numbers = list(takewhile(self._is_in_run, reversed(specs)))[::-1]
        if len(numbers) < 2:
            return _tuple_reader(build, [self._field(spec) for spec in specs])
        layout = Struct(">" + "".join(RUNS[spec.kind] for spec in numbers))
        parts = [self._field(spec) for spec in specs[: -len(numbers)]]
        return lambda source: build(*[part(source) for part in parts], *source.unpack(layout))

    def _defaults(self, layout: Layout) -> list[tuple[Step, Any]]:
        record = layout.types[0]
        return [
            (_setter(record, field.name), field.default)
            for field, (_, spec) in zip(fields(record), layout.fields, strict=True)
            if field.default is not MISSING and not spec.is_in(self._version)
        ]

    def _steps(self, record: type, present: Iterable[tuple[str, Spec]]) -> list[Step]:
        steps: list[Step] = []
        for is_run, group in groupby(present, key=lambda field: self._is_in_run(field[1])):
            named = [(_setter(record, name), spec) for name, spec in group]
            if is_run and len(named) > 1:
                layout = Struct(">" + "".join(RUNS[spec.kind] for _, spec in named))
                steps.append(_run_step([setter for setter, _ in named], layout))
            else:
                steps.extend(_step(setter, self._field(spec)) for setter, spec in named)
        return steps

    def _is_in_run(self, spec: Spec) -> bool:
        return self._source is LooseSource and spec.kind in RUNS

    def _field(self, spec: Spec) -> Read:
        match spec.kind:
            case FieldKind.BOOLEAN:
                return self._source.boolean
            case FieldKind.BYTE:
                return self._source.byte
            case FieldKind.INT:
                return self._source.integer
            case FieldKind.LONG:
                return self._source.long
            case FieldKind.STRING:
                return self._source.string
            case FieldKind.BYTES:
                return self._source.byte_sequence
            case FieldKind.FIXED_BYTES:
                return _fixed_bytes(spec.size)
            case FieldKind.OBJECT:
                nested = self._nested_field(spec)
                return _cached(nested, spec) if spec.cached and self._caching else nested
            case FieldKind.ARRAY:
                return partial(_read_array, self._nested_field(spec))
            case FieldKind.THROWABLE:
                return self._throwable

    def _nested_field(self, spec: Spec) -> Read:
        # The table of a field's types is filled in when all are compiled: types are recursive.
        table = self._restricted.setdefault(spec.types, {})
        return _loose_nested(table) if self._source is LooseSource else _nested(table)


# ---------------------------------------------------------------- structures


def _record_reader(record: type[Any], defaults: list[tuple[Step, Any]], steps: list[Step]) -> Read:

    new: Callable[[type[Any]], Any] = object.__new__

    def read(source: LooseSource) -> Any:
        value = new(record)
        for step in steps:
            step(value, source)
        return value

    def read_with_defaults(source: LooseSource) -> Any:
        value = read(source)
        for setter, default in defaults:
            setter(value, default)
        return value

    return read_with_defaults if defaults else read


def _tuple_reader(build: Callable[..., Any], parts: list[Read]) -> Read:
    if len(parts) == 1:
        (part,) = parts
        return lambda source: build(part(source))
    return lambda source: build(*[part(source) for part in parts])


def _setter(record: type, name: str) -> Step:
    setter: Step = getattr(record, name).__set__
    return setter


def _step(setter: Step, read: Read) -> Step:
    return lambda value, source: setter(value, read(source))


def _run_step(setters: list[Step], layout: Struct) -> Step:
    unpack_from, size = layout.unpack_from, layout.size

    def step(value: Any, source: LooseSource) -> None:
        offset = source.offset
        try:
            numbers = unpack_from(source.data, offset)
        except StructError:
            raise MalformedOpenWire(f"{size} bytes wanted at offset {offset}, {source.remaining} left") from None
        source.offset = offset + size
        for setter, number in zip(setters, numbers, strict=True):
            setter(value, number)

    return step


def _read_aware(read: Read, source: LooseSource) -> Any:
    """Read a structure that has one more bit when nested; set, a whole frame would follow. No peer writes that."""
    if source.boolean():
        raise MalformedOpenWire(f"a frame inside a frame at offset {source.offset}")
    return read(source)


def _read_deeper(read: Read, source: LooseSource) -> Any:
    """Read what may nest other structures in turn."""
    source.deeper()
    value = read(source)
    source.levels += 1
    return value


@cache
def _repeating(data_type: int) -> Read:
    """Return a reader of a name with its numbers in loose encoding that gives the same value again when it repeats."""
    layout = LAYOUTS[data_type]
    assert layout.build is not None
    build = layout.build
    read = _tuple_reader(build, [LooseSource.string, *[LooseSource.long] * (len(layout.fields) - 1)])
    numbers = Struct(f">{len(layout.fields) - 1}q")
    least = BYTE_AND_UNSIGNED_SHORT.size + numbers.size

    @lru_cache(REMEMBERED)
    def remembered(raw: bytes) -> Any:
        end = len(raw) - numbers.size
        return build(decode_mutf8(raw[BYTE_AND_UNSIGNED_SHORT.size : end]), *numbers.unpack_from(raw, end))

    def read_repeating(source: LooseSource) -> Any:
        data, start = source.data, source.offset
        if source.remaining < least:
            return read(source)
        present, length = _name_length_at(data, start)
        end = start + least + length
        # What is null, cut short or too long to be kept is left to the reader proper.
        if not present or length > REMEMBERED_MAX or end > len(data):
            return read(source)
        source.offset = end
        return remembered(data[start:end])

    return read_repeating


def _read_only(types: tuple[type, ...], read: Read, source: LooseSource) -> Any:
    """Read what may turn out to be another type than the field has: an id that lacks a part."""
    value = read(source)
    if type(value) not in types:
        raise MalformedOpenWire(f"{type(value).__name__} where {' or '.join(kind.__name__ for kind in types)} belongs")
    return value


# ---------------------------------------------------------------- fields


def _nested(table: Mapping[int, Read]) -> Read:
    get = table.get

    def read_nested(source: LooseSource) -> Any:
        if not source.boolean():
            return None
        data_type = source.unsigned_byte()
        read = get(data_type)
        if read is None:
            raise _misplaced(data_type, source.offset - 1)
        return read(source)

    return read_nested


def _loose_nested(table: Mapping[int, Read]) -> Read:
    # The same with flag and data type read in place: in loose encoding most of the time goes into such calls.
    get = table.get

    def read_nested(source: LooseSource) -> Any:
        offset = source.offset
        try:
            if not source.data[offset]:
                source.offset = offset + 1
                return None
            data_type = source.data[offset + 1]
        except IndexError:
            raise MalformedOpenWire(f"a structure that is cut short at offset {offset}") from None
        read = get(data_type)
        if read is None:
            raise _misplaced(data_type, offset + 1)
        source.offset = offset + 2
        return read(source)

    return read_nested


def _misplaced(data_type: int, offset: int) -> MalformedOpenWire:
    return MalformedOpenWire(f"data type {data_type} does not belong at offset {offset}")


def _cached(nested: Read, spec: Spec) -> Read:
    types = spec.types

    def read(source: LooseSource) -> Any:
        cache = source.cache
        assert cache is not None, "compiled for a connection that caches"
        is_new = source.boolean()
        index = source.short()
        if is_new:
            start = source.offset
            value = nested(source)
            cache.store(index, value, source.offset - start)
            return value
        value = cache.known(index)
        if value is not None and types and type(value) not in types:
            raise MalformedOpenWire(f"cache index {index} holds {type(value).__name__}, which does not belong here")
        return value

    return read


def _read_array(element: Read, source: LooseSource) -> tuple[Any, ...] | None:
    if not source.boolean():
        return None
    return tuple([element(source) for _ in range(source.elements())])


def _fixed_bytes(size: int) -> Read:
    return lambda source: source.take(size)


def _read_throwable(stack_traces: bool, source: LooseSource) -> Throwable | None:
    # From the outermost to the root cause, then put together from the root on.
    found: list[tuple[str | None, str | None, tuple[StackFrame, ...]]] = []
    while source.boolean():
        if len(found) == CAUSES_MAX - 1:
            raise MalformedOpenWire(f"an exception with {CAUSES_MAX} causes or more")
        found.append((source.string(), source.string(), _read_stack(source) if stack_traces else ()))
        if not stack_traces:
            break
    value: Throwable | None = None
    for class_name, message, stack in reversed(found):
        value = Throwable(class_name=class_name, message=message, stack=stack, cause=value)
    return value


def _read_stack(source: LooseSource) -> tuple[StackFrame, ...]:
    count = source.short()
    if not 0 <= count <= source.remaining // _STACK_FRAME_BYTES_MIN:
        raise MalformedOpenWire(f"a stack trace of {count} frames")
    return tuple(
        [StackFrame(source.string(), source.string(), source.string(), source.integer()) for _ in range(count)]
    )
