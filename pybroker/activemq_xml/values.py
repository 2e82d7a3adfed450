"""Values of attributes, as ActiveMQ 5.17 reads them, and as pybroker's settings are written.

Sizes are in multiples of 1024, as pybroker's; times are in milliseconds, where a bare number of pybroker's is seconds.
"""

import re
from typing import Final

from pybroker.units import format_duration, format_size, parse_size

_SIZE: Final = re.compile(r"\d{1,18} ?(b|k|kb|m|mb|g|gb)?", re.ASCII | re.IGNORECASE)
_MEMBER_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_WHOLE: Final = re.compile(r"[+-]?\d{1,18}", re.ASCII)


def flag(value: str) -> bool:
    """Return the value of a boolean, which `schema` has checked."""
    return value.strip() in ("true", "1")


def is_member_name(value: str) -> bool:
    """Return True for a text that can be the name of a member."""
    return _MEMBER_NAME.fullmatch(value) is not None


def whole(value: str) -> int:
    """Return a whole number.

    Raises:
        ValueError: it is none.
    """
    if not _WHOLE.fullmatch(value.strip()):
        raise ValueError("it must be a whole number")
    return int(value)


def size(value: str) -> str:
    """Return the text of a size in bytes, such as `64mb`.

    Raises:
        ValueError: ActiveMQ would not read it.
    """
    if not _SIZE.fullmatch(value.strip()):
        raise ValueError("it must be a size, such as 65536, 512kb, 64 mb or 2gb")
    return format_size(parse_size(value))


def duration(value: str) -> str:
    """Return the text of a time in milliseconds, such as `30s`.

    Raises:
        ValueError: it is no whole number, or negative.
    """
    milliseconds = whole(value)
    if milliseconds < 0:
        raise ValueError("it must not be negative")
    return format_duration(milliseconds / 1000)
