"""Numbers of fixed width, big-endian, as Java's `DataOutput`, KahaDB, PostgreSQL and a network write them."""

from struct import Struct
from typing import Final

BYTE: Final = Struct(">b")
SHORT: Final = Struct(">h")
UNSIGNED_SHORT: Final = Struct(">H")
INT: Final = Struct(">i")
UNSIGNED_INT: Final = Struct(">I")
LONG: Final = Struct(">q")
TWO_LONGS: Final = Struct(">qq")
FLOAT: Final = Struct(">f")
DOUBLE: Final = Struct(">d")

# A flag or tag, and the length of what follows.
BYTE_AND_UNSIGNED_SHORT: Final = Struct(">BH")
BYTE_AND_INT: Final = Struct(">Bi")
