"""Mutations of binary frames: bits, lengths, counts, booleans, tags, nesting, truncation, repetition, pieces, order."""

import struct
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

_LENGTHS: Final = (0x7FFFFFFF, -1, -2, 0, 1, 0x7FFF, 0x8000, 0xFFFF, 1 << 20, -(1 << 31), 104_857_600, 104_857_601)
_TEXTS: Final = (
    b"\xff\xfe",
    b"\xc0\x80",
    b"\xed\xa0\xbd",
    b"\xf4\x90\x80\x80",
    b"\xe2\x82",
    b"\0",
    b"../../x",
    b"\x80",
)
_REPEATS: Final = (2, 3, 10, 100)
_NESTED: Final = (b"\x01\x17", b"\x01\x15", b"\x01\x02", b"\x01\x7b\x01\x00\x01x", b"\x01\x6e")
"""Presence and data type, with which a structure inside another one begins."""
_LONG_MAX: Final = 60_000


def mutated(frame: bytes, dice: Random, others: Sequence[bytes]) -> bytes:
    """Return a frame with one to four mutations; `others` are frames to take pieces from."""
    data = bytearray(frame)
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        dice.choice(_MUTATIONS)(data, dice, others)
        if len(data) > _LONG_MAX:
            del data[_LONG_MAX:]
    return bytes(data)


def rearranged(frames: Sequence[bytes], dice: Random) -> list[bytes]:
    """Return a conversation with up to three of its frames mutated, left out, twice, or in another order."""
    changed = list(frames)
    for _ in range(dice.randint(1, 3)):
        at = dice.randrange(len(changed))
        match dice.randrange(4):
            case 0:
                changed[at] = mutated(changed[at], dice, changed)
            case 1 if len(changed) > 1:
                del changed[at]
            case 2:
                changed.insert(at, changed[at])
            case _:
                other = dice.randrange(len(changed))
                changed[at], changed[other] = changed[other], changed[at]
    return changed


def _at(data: bytearray, dice: Random) -> int:
    return dice.randrange(len(data)) if data else 0


def _flip(data: bytearray, dice: Random, others: Sequence[bytes]) -> None:
    if data:
        data[_at(data, dice)] ^= 1 << dice.randrange(8)


def _byte(data: bytearray, dice: Random, others: Sequence[bytes]) -> None:
    """Write a byte: a boolean that is neither 0 nor 1, a tag or type that is another or unknown."""
    if data:
        data[_at(data, dice)] = dice.choice((0, 1, 2, 0x7F, 0x80, 0xFF, dice.randrange(256)))


def _type(data: bytearray, dice: Random, others: Sequence[bytes]) -> None:
    """Give the frame another data type."""
    if data:
        data[0] = dice.choice(
            (*range(1, 35), 50, 55, 60, 61, 65, 90, 91, 92, 100, 110, 111, 112, 120, 123, 124, 0, 255)
        )


def _length(data: bytearray, dice: Random, others: Sequence[bytes]) -> None:
    """Write a length or count that is none."""
    width, form = dice.choice(((4, ">i"), (4, ">i"), (2, ">H")))
    at, number = _at(data, dice), dice.choice((*_LENGTHS, len(data) + 1))
    data[at : at + width] = struct.pack(form, number & 0xFFFF if width == 2 else number)


def _nudge(data: bytearray, dice: Random, others: Sequence[bytes]) -> None:
    """Add or subtract one: of a length that is correct, the nearest that is not."""
    if data:
        at = _at(data, dice)
        data[at] = (data[at] + dice.choice((-1, 1))) & 0xFF


def _truncate(data: bytearray, dice: Random, others: Sequence[bytes]) -> None:
    del data[_at(data, dice) + 1 :]


def _delete(data: bytearray, dice: Random, others: Sequence[bytes]) -> None:
    at = _at(data, dice)
    del data[at : at + dice.randint(1, 8)]


def _insert(data: bytearray, dice: Random, others: Sequence[bytes]) -> None:
    at = _at(data, dice)
    data[at:at] = dice.choice((*_TEXTS, dice.randbytes(dice.randint(1, 8))))


def _repeat(data: bytearray, dice: Random, others: Sequence[bytes]) -> None:
    at = _at(data, dice)
    data[at:at] = data[at : at + dice.randint(1, 40)] * dice.choice(_REPEATS)


def _nest(data: bytearray, dice: Random, others: Sequence[bytes]) -> None:
    at = _at(data, dice)
    data[at:at] = dice.choice(_NESTED) * dice.choice(_REPEATS)


def _splice(data: bytearray, dice: Random, others: Sequence[bytes]) -> None:
    """Continue with the rest of another frame."""
    other = dice.choice(others)
    data[_at(data, dice) :] = other[dice.randrange(len(other) + 1) :]


_MUTATIONS: Final[tuple[Callable[[bytearray, Random, Sequence[bytes]], None], ...]] = (
    _flip, _flip, _byte, _byte, _type, _length, _length, _nudge, _truncate, _delete, _insert, _repeat, _nest, _splice,
)  # fmt: skip
