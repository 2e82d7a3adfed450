"""Joins bytes in steps, as one join of a large message would keep the interpreter for 50 ms and more.

Most of that time is not for copying, but for pages of memory that the system clears. So the memory is allocated without
being touched, and each step fills a portion of it.
"""

from collections.abc import Generator, Sequence
from io import BytesIO
from typing import Final

PORTION_BYTES: Final = 1 << 20
"""The bytes that a step copies: half a millisecond to one."""


def joining(parts: Sequence[bytes | memoryview]) -> Generator[None, None, bytes]:
    """Return the parts joined; yield before each portion but the first."""
    size = sum(map(len, parts))
    if size <= PORTION_BYTES:
        return b"".join(parts)
    # `bytes` takes memory that reads as zeros without clearing it; the buffer takes it over, and returns it again.
    buffer = BytesIO(bytes(size))
    at = space = 0
    for part in parts:
        rest = memoryview(part)
        while rest:
            if not space:
                if at:
                    yield
                space = PORTION_BYTES
            portion = rest[:space]
            with buffer.getbuffer() as whole:
                whole[at : at + len(portion)] = portion
            at += len(portion)
            space -= len(portion)
            rest = rest[len(portion) :]
    return buffer.getvalue()
