"""Values of AMQP in all their forms, as bytes: nested, empty, described, some with a wrong size or count."""

import struct
from random import Random
from typing import Final

_WRONG: Final = 0.02
"""The share of sizes and counts that are wrong."""
_FIXED: Final = {
    **dict.fromkeys((0x40, 0x41, 0x42, 0x43, 0x44, 0x45), 0),
    **dict.fromkeys((0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56), 1),
    **dict.fromkeys((0x60, 0x61), 2),
    **dict.fromkeys((0x70, 0x71, 0x72, 0x73, 0x74), 4),
    **dict.fromkeys((0x80, 0x81, 0x82, 0x83, 0x84), 8),
    **dict.fromkeys((0x94, 0x98), 16),
}
"""Constructors and the bytes behind them."""
_SIZED: Final = (0xA0, 0xA1, 0xA3, 0xB0, 0xB1, 0xB3)
_TEXTS: Final = (b"", b"a", b"x-opt-jms-dest", b"queue://q", b"\xc3\xa9", b"\xff", b"x" * 255, b"x" * 256)


def value(dice: Random, levels: int = 4) -> bytes:
    """Return a value with its constructor."""
    form = dice.random()
    if not levels or form < 0.6:
        code = dice.choice((*_FIXED, *_SIZED))
        return bytes((code,)) + _body(dice, code)
    if form < 0.7:
        return b"\0" + dice.choice((b"\x53" + bytes((dice.randrange(256),)), b"\xa3\1x")) + value(dice, levels - 1)
    if form < 0.8:
        code = dice.choice((*_FIXED, *_SIZED))
        elements = [_body(dice, code) for _ in range(dice.choice((0, 1, 3)))]
        return _compound(dice, dice.choice((0xE0, 0xF0)), len(elements), bytes((code,)) + b"".join(elements))
    count = 2 * dice.choice((0, 1, 2, 4))
    values = [value(dice, levels - 1) for _ in range(count)]
    return _compound(dice, dice.choice((0xC0, 0xC1, 0xD0, 0xD1)), count, b"".join(values))


def _body(dice: Random, code: int) -> bytes:
    """Return what follows a constructor."""
    if code in _FIXED:
        return dice.choice((bytes(_FIXED[code]), dice.randbytes(_FIXED[code])))
    text = dice.choice(_TEXTS[:-1] if code < 0xB0 else _TEXTS)
    return (struct.pack(">I", len(text)) if code >= 0xB0 else bytes((len(text),))) + text


def _compound(dice: Random, code: int, count: int, content: bytes) -> bytes:
    """Return the content of a list, map or array behind constructor, size and count, in the wide form if need be."""
    if code & 0x10 or len(content) > 254:
        size = len(content) + 4
        if dice.random() < _WRONG:
            size, count = dice.choice(((size + 1, count), (size, count + 1), (0xFFFFFFFF, count), (size, 0xFFFFFFFF)))
        return struct.pack(">BII", code | 0x10, size, count) + content
    size = len(content) + 1
    if dice.random() < _WRONG:
        size, count = dice.choice(((size - 1, count), (size, (count + 2) & 0xFF), (0xFF, count), (size, 0xFF)))
    return bytes((code, size, count)) + content


def message(dice: Random) -> bytes:
    """Return a message: sections in their order, each with the value that it should have, or with any."""
    out = b""
    for code, compound in ((0x70, 0xC0), (0x71, 0xC1), (0x72, 0xC1), (0x73, 0xC0), (0x74, 0xC1), (0x78, 0xC1)):
        if code == 0x78 and dice.random() < 0.9:
            out += dice.choice((b"\0\x53\x77" + value(dice), b"\0\x53\x75\xa0\4body", b"\0\x53\x76\x45\0\x53\x76\x45"))
        if dice.random() < 0.4:
            parts = [value(dice, 2) for _ in range(2 * dice.choice((0, 1, 2)))]
            any_value = value(dice) if dice.random() < 0.1 else _compound(dice, compound, len(parts), b"".join(parts))
            out += bytes((0, 0x53, code)) + any_value
    return out


def frame(dice: Random, body: bytes, kind: int = 0) -> bytes:
    """Return a frame, whose size is right."""
    return struct.pack(">IBBH", 8 + len(body), 2, kind, dice.choice((0, 0, 1, 65535))) + body


def performative(dice: Random) -> bytes:
    """Return a performative whose fields are of any type."""
    code = dice.choice((*range(0x10, 0x19), *range(0x40, 0x45), 0x1D, 0x24, 0x28, 0x34))
    parts = [value(dice, 3) for _ in range(dice.choice((0, 1, 3, 5, 10)))]
    return bytes((0, 0x53, code)) + _compound(dice, 0xC0, len(parts), b"".join(parts))
