"""Serial numbers of 32 bits, which begin again after the last one: AMQP counts transfers and deliveries by them.

Source: RFC 1982.
"""

from collections.abc import Container, Iterable, Sequence
from typing import Final

MASK: Final = 0xFFFF_FFFF
_HALF: Final = 1 << 31


def add(number: int, count: int) -> int:
    """Return the number that is so many further."""
    return (number + count) & MASK


def distance(start: int, end: int) -> int:
    """Return how many numbers `end` is behind `start`; negative if it is before."""
    difference = (end - start) & MASK
    return difference - (1 << 32) if difference >= _HALF else difference


def within(first: int, last: int, known: Container[int], in_order: Iterable[int], count: int) -> Sequence[int]:
    """Return the known numbers of a range, which a peer has chosen and which may be huge.

    Args:
        first: the first number of the range.
        last: the last one.
        known: has a number.
        in_order: the known numbers.
        count: how many they are.
    """
    span = (last - first) & MASK
    if span < count:
        numbers = [(first + each) & MASK for each in range(span + 1)]
        return [number for number in numbers if number in known]
    return [number for number in in_order if (number - first) & MASK <= span]


def ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return numbers as ranges of successive ones, in their order: the first and the last number of each."""
    found: list[tuple[int, int]] = []
    first = last = numbers[0]
    for number in numbers[1:]:
        if number != (last + 1) & MASK:
            found.append((first, last))
            first = number
        last = number
    found.append((first, last))
    return found
