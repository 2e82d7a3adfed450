"""Longest texts that the tables can hold, checked before a change is accepted. Pure except for `read_limits`.

A text that a column or an index cannot hold fails the transaction of a whole batch, and with it the master; then, when
the client tries again, the next one. So each text of a client is measured when it arrives:

* by its column's declared length, the smallest of all tables that have the column. PostgreSQL counts characters, or
  bytes where the database's encoding is `SQL_ASCII`. Tables that an administrator made may be narrower or wider than
  ActiveMQ's.
* by the size of an index row, which the server counts in bytes: a third of a page at most. The names of a durable
  subscription are in one such row.

Source: PostgreSQL 15, `BTMaxItemSize` in `nbtree.h`, "Character Types".
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pybroker.broker.domain.errors import RequestError, ResourceLimit
from pybroker.store.jdbc.postgres import DatabaseConnection

LENGTH_MAX = 250
"""Length of each text column as ActiveMQ declares it, in characters."""
MESSAGE_BYTES_MAX = 256 << 20
"""Limit of one message. The server takes up to 1 GB, but sends a message back as a hexadecimal text of twice its size,
which must fit 1 GB, too; half of the half leaves space for that text in the memory of both."""
BLOCK_BYTES = 8192
"""A page of a server as it is built by default."""

_PAGE_BYTES, _PER_PAGE, _HEAP_POINTER_BYTES = 56, 3, 8
"""B-tree page: bytes of its header, rows that it must hold, and bytes of a row beside its columns."""
_ROW_BYTES = 336
"""Bytes of an index row beside the texts: header, five lengths with padding, two numbers, a transaction's id."""

_LENGTHS = """
SELECT a.attname::text, min(a.atttypmod - 4)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relname::text = ANY(%s) AND pg_table_is_visible(c.oid) AND c.relkind IN ('r', 'p')
  AND a.atttypid = 'varchar'::regtype AND a.atttypmod >= 4
GROUP BY a.attname
"""
_SERVER = "SELECT current_setting('server_encoding') = 'SQL_ASCII', current_setting('block_size')::int"


def _index_bytes(block_bytes: int) -> int:
    """Return what the texts of one index row may have together, for a server with such pages."""
    return (block_bytes - _PAGE_BYTES) // _PER_PAGE // 8 * 8 - _HEAP_POINTER_BYTES - _ROW_BYTES


def _default_lengths() -> dict[str, int]:
    columns = ("container", "client_id", "sub_name", "sub_dest", "selector", "msgid_prod", "xid")
    return dict.fromkeys(columns, LENGTH_MAX)


@dataclass(frozen=True, slots=True)
class TextLimits:
    """Longest texts allowed.

    Attributes:
        lengths: by column, in characters, or bytes if `counts_bytes`; a column that is not named takes any length.
        counts_bytes: the database's encoding knows no characters.
        index_bytes: of all texts of one index row together.
    """

    lengths: Mapping[str, int] = field(default_factory=_default_lengths)
    counts_bytes: bool = False
    index_bytes: int = _index_bytes(BLOCK_BYTES)

    def check(self, column: str, text: str, what: str, refused: Callable[[str], RequestError]) -> None:
        """Refuse a text that its column, or PostgreSQL's text, cannot hold.

        Raises:
            RequestError: it does not fit; made by `refused`.
        """
        if "\0" in text or _has_half(text):
            raise refused(f"the {what} has a character that a database cannot hold")
        length = self.lengths.get(column)
        size = len(text) if text.isascii() or not self.counts_bytes else len(text.encode())
        if length is not None and size > length:
            unit = "bytes" if self.counts_bytes else "characters"
            raise refused(f"the {what} is longer than the {length} {unit} that the database's tables allow")

    def check_index(self, what: str, refused: Callable[[str], RequestError], *texts: str) -> None:
        """Refuse texts that are too long for one row of an index together; each has passed `check`.

        Raises:
            RequestError: they do not fit; made by `refused`.
        """
        if sum(map(len, texts)) * 4 > self.index_bytes:  # else they fit, whatever their characters
            size = sum(len(text.encode()) for text in texts)
            if size > self.index_bytes:
                raise refused(f"the {what} is {size} bytes, and the database's indexes take {self.index_bytes}")


def check_size(data: bytes) -> None:
    """Refuse a message that the database could not give back.

    Raises:
        ResourceLimit: it is too large.
    """
    if len(data) > MESSAGE_BYTES_MAX:
        raise ResourceLimit(
            f"the message has {len(data)} bytes, and a store in a database takes {MESSAGE_BYTES_MAX} at most"
        )


def read_limits(connection: DatabaseConnection, tables: list[str]) -> TextLimits:
    """Return the limits of a database's tables. Blocks.

    Raises:
        StoreUnavailable: the database fails.
    """
    ((counts_bytes, block_bytes),) = connection.rows(_SERVER)
    return TextLimits(dict(connection.rows(_LENGTHS, (tables,))), counts_bytes, _index_bytes(block_bytes))


def _has_half(text: str) -> bool:
    """Return True if a text has surrogates, halves of characters."""
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)
