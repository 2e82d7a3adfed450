"""Finds single properties in a marshalled map: reads each entry's name and length, and decodes only what is asked for.

A selector names a property or two of a message that may have thousands, or one of many megabytes. What it does not name
is skipped, so that texts in it are not even checked for being UTF-8.

Source: OpenWire, primitive map (drawn in `values`).
"""

from struct import error as StructError
from typing import Final

from pybroker.broker.domain.big_endian import INT, UNSIGNED_SHORT
from pybroker.broker.domain.openwire.loose import MalformedOpenWire, encode_mutf8
from pybroker.broker.domain.openwire.values import DECODED_VALUES_MAX, NESTING_MAX, Value, decode_value

_FLOAT: Final = 8
_STRING: Final = 9
_BYTES: Final = 10
_MAP: Final = 11
_LIST: Final = 12
_BIG_STRING: Final = 13
_SIZES: Final = (1, 2, 2, 3, 3, 5, 9, 9, 5)
"""Bytes of a value with its tag, by tag; what has a greater tag than `_FLOAT` begins with its length or count."""

_int_at: Final = INT.unpack_from
_length_at: Final = UNSIGNED_SHORT.unpack_from


class PropertyIndex:
    """The places of all values in one marshalled map."""

    __slots__ = ("_data", "_places")

    def __init__(self, data: bytes) -> None:
        """Index a map; zero bytes and Java's null map are an empty one.

        Raises:
            MalformedOpenWire: it is no primitive map, has more than `DECODED_VALUES_MAX` values, or bytes left over.
        """
        self._data = data
        try:
            self._places = _places(data) if data else {}
        except (IndexError, StructError) as error:
            raise MalformedOpenWire(f"properties of {len(data)} bytes are cut short") from error

    def get(self, name: str) -> Value:
        """Return the value of a property, None if there is none. Raises `MalformedOpenWire` if it does not decode."""
        java_name, utf8_name = encode_mutf8(name), name.encode("utf-8", "surrogatepass")
        place = self._places.get(java_name)
        if utf8_name != java_name:  # some producers write this, and the last one counts
            utf8_place = self._places.get(utf8_name)
            if place is None or (utf8_place is not None and utf8_place > place):
                place = utf8_place
        return None if place is None else decode_value(self._data, place)


def _places(data: bytes) -> dict[bytes, int]:
    """Return where each value begins, with its tag, by its encoded name. Raises `IndexError` and `struct.error` too."""
    places: dict[bytes, int] = {}
    count = _int_at(data, 0)[0]
    skipper: _Skipper | None = None
    place = 4
    if not -1 <= count <= DECODED_VALUES_MAX:
        raise MalformedOpenWire(f"properties of {count} values, at most {DECODED_VALUES_MAX} are allowed")
    for _ in range(count):
        tag_place = place + 2 + (data[place] << 8 | data[place + 1])
        places[data[place + 2 : tag_place]] = tag_place
        tag = data[tag_place]
        if tag <= _FLOAT:
            place = tag_place + _SIZES[tag]
        elif tag == _STRING:
            place = tag_place + 3 + (data[tag_place + 1] << 8 | data[tag_place + 2])
        else:
            skipper = skipper or _Skipper(data, DECODED_VALUES_MAX - count)
            place = skipper.end(tag_place, NESTING_MAX)
    if place != len(data):
        raise MalformedOpenWire(f"properties that end at {place} of {len(data)} bytes")
    return places


class _Skipper:
    """Skips values, nested ones too, up to a number of them."""

    __slots__ = ("_data", "_left")

    def __init__(self, data: bytes, left: int) -> None:
        self._data = data
        self._left = left

    def end(self, place: int, levels: int) -> int:
        """Return where the value ends that begins at a place. Raises `IndexError` and `struct.error` too."""
        tag = self._data[place]
        if tag <= _FLOAT:
            return place + _SIZES[tag]
        if tag == _STRING:
            length: int = _length_at(self._data, place + 1)[0]
            return place + 3 + length
        count: int = _int_at(self._data, place + 1)[0]
        place += 5
        if count == -1 and tag in (_MAP, _BIG_STRING):
            return place  # null
        if tag in (_BYTES, _BIG_STRING) and count >= 0:
            return place + count
        self._left -= count
        if tag not in (_MAP, _LIST) or levels == 0 or count < 0 or self._left < 0:
            raise MalformedOpenWire(
                f"a value of tag {tag} and length {count}, {NESTING_MAX - levels} levels deep in properties"
            )
        for _ in range(count):
            if tag == _MAP:
                place += 2 + _length_at(self._data, place)[0]
            place = self.end(place, levels - 1)
        return place
