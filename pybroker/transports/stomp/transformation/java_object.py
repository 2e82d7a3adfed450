"""Serialised Java objects of basic types: strings, boxed numbers, and for writing their lists and maps.

Nothing is deserialised. Each of these types begins with the same bytes in every stream, followed by the value; bytes
that begin otherwise are another class, which is not read.

Source: Java Object Serialization Specification, 6 (grammar); the first bytes are those that Java 17 writes.

```text
string          | magic | 74 | u16 n | modified UTF-8 |
longer string   | magic | 7c | i64 n | modified UTF-8 |
boxed number    | magic | 73 | description of the class, of its superclass | value |
ends with       | 79 |  a reset, which ActiveMQ's clients write
```
"""

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Final

from pybroker.broker.domain.big_endian import BYTE, DOUBLE, FLOAT, INT, LONG, SHORT, UNSIGNED_SHORT
from pybroker.broker.domain.openwire.loose import decode_mutf8, encode_mutf8
from pybroker.broker.domain.openwire.values import Byte, Char, Float, Long, Short, Value
from pybroker.transports.stomp.transformation.tree import NotTransformable

_MAGIC: Final = bytes.fromhex("aced0005")
_NULL, _STRING, _LONG_STRING, _RESET = b"\x70", b"\x74", b"\x7c", b"\x79"
_END_OF_BLOCK = b"\x78"
_SHORT_STRING_MAX: Final = 0xFFFF

_NUMBER = bytes.fromhex("7872") + b"\0\x10java.lang.Number" + bytes.fromhex("86ac951d0b94e08b02000078 70")
_NO_SUPERCLASS = bytes.fromhex("7870")


def _boxed(name: str, uid: str, code: str, superclass: bytes) -> bytes:
    """Return the bytes before the value of a class whose one field is `value`."""
    encoded = name.encode()
    head = b"\x73\x72" + UNSIGNED_SHORT.pack(len(encoded)) + encoded + bytes.fromhex(uid)
    return head + b"\x02\0\x01" + code.encode() + b"\0\x05value" + superclass


_BOOLEAN = (_boxed("java.lang.Boolean", "cd207280d59cfaee", "Z", _NO_SUPERCLASS), Struct(">?"))
_CHARACTER = (_boxed("java.lang.Character", "348b47d96b1a2678", "C", _NO_SUPERCLASS), UNSIGNED_SHORT)
_NUMBERS: Final[Mapping[type, tuple[bytes, Struct]]] = {
    Byte: (_boxed("java.lang.Byte", "9c4e6084ee50f51c", "B", _NUMBER), BYTE),
    Short: (_boxed("java.lang.Short", "684d37133460da52", "S", _NUMBER), SHORT),
    int: (_boxed("java.lang.Integer", "12e2a0a4f7818738", "I", _NUMBER), INT),
    Long: (_boxed("java.lang.Long", "3b8be490cc8f23df", "J", _NUMBER), LONG),
    Float: (_boxed("java.lang.Float", "daedc9a2db3cf0ec", "F", _NUMBER), FLOAT),
    float: (_boxed("java.lang.Double", "80b3c24a296bfb04", "D", _NUMBER), DOUBLE),
}
_BYTE_ARRAY = bytes.fromhex("7572 00025b42 acf317f8060854e0 020000 7870")
_ARRAY_LIST = (
    bytes.fromhex("7372")
    + b"\0\x13java.util.ArrayList"
    + bytes.fromhex("7881d21d99c7619d 03 0001 49 0004")
    + (b"size" + _NO_SUPERCLASS)
)
_LIST_SIZES = Struct(">iBBi")
_HASH_MAP = (
    bytes.fromhex("7372")
    + b"\0\x11java.util.HashMap"
    + bytes.fromhex("0507dac1c31660d1 03 0002 46 000a")
    + (b"loadFactor" + b"I\0\x09threshold" + _NO_SUPERCLASS)
)
_MAP_SIZES = Struct(">fiBBii")
_BLOCK_DATA = 0x77
_LOAD_FACTOR = 0.75


# ---------------------------------------------------------------- reading


def read_object(content: bytes) -> Value:
    """Return the string, boxed number or byte array of an ObjectMessage's content.

    Raises:
        NotTransformable: it is another class, or damaged.
    """
    if not content.startswith(_MAGIC):
        raise NotTransformable("The object is no Java serialisation stream")
    body = content.removesuffix(_RESET)[len(_MAGIC) :]
    if body == _NULL:
        return None
    if body[:1] == _STRING:
        return _text(body, UNSIGNED_SHORT)
    if body[:1] == _LONG_STRING:
        return _text(body, LONG)
    if body.startswith(_BYTE_ARRAY):
        array = body[len(_BYTE_ARRAY) + INT.size :]
        if body[len(_BYTE_ARRAY) :][: INT.size] == INT.pack(len(array)):
            return array
    return _number(body)


def _text(body: bytes, length: Struct) -> str:
    text = body[1 + length.size :]
    if body[1 : 1 + length.size] != length.pack(len(text)):
        raise NotTransformable("The object is a string whose length is wrong")
    return decode_mutf8(text)


def _number(body: bytes) -> Value:
    for kind, (head, layout) in (*_NUMBERS.items(), (bool, _BOOLEAN), (Char, _CHARACTER)):
        if body.startswith(head) and len(body) == len(head) + layout.size:
            (value,) = layout.unpack(body[len(head) :])
            return Char(chr(value)) if kind is Char else kind(value)
    raise NotTransformable(
        "Only strings, numbers, booleans, characters and byte arrays are transformed, and no other object"
    )


# ---------------------------------------------------------------- writing


def write_object(value: Value) -> bytes:
    """Return the content of an ObjectMessage; a list is an ArrayList there, and a map a HashMap.

    Raises:
        NotTransformable: it holds a byte array, which ActiveMQ does not allow here.
    """
    return _MAGIC + _serialised(value) + _RESET


def _serialised(value: Value) -> bytes:
    # Each class is described at every use. Java would refer back to the first one, and reads both.
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return _BOOLEAN[0] + _BOOLEAN[1].pack(value)
    if isinstance(value, Char):
        return _CHARACTER[0] + _CHARACTER[1].pack(ord(value))
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, Mapping):
        head = _HASH_MAP + _MAP_SIZES.pack(_LOAD_FACTOR, 0, _BLOCK_DATA, 8, 16, len(value))
        return b"".join((head, *(_string(key) + _serialised(item) for key, item in value.items()), _END_OF_BLOCK))
    if isinstance(value, bytes):
        raise NotTransformable("A byte array is no object to be sent: send a body with content-length")
    if isinstance(value, Sequence):
        head = _ARRAY_LIST + _LIST_SIZES.pack(len(value), _BLOCK_DATA, 4, len(value))
        return b"".join((head, *map(_serialised, value), _END_OF_BLOCK))
    head, layout = _NUMBERS[type(value)]
    return head + layout.pack(value)


def _string(text: str) -> bytes:
    encoded = encode_mutf8(text)
    if len(encoded) > _SHORT_STRING_MAX:
        return _LONG_STRING + LONG.pack(len(encoded)) + encoded
    return _STRING + UNSIGNED_SHORT.pack(len(encoded)) + encoded
