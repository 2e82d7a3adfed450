"""Parsing and formatting of sizes and durations: `64mb`, `500ms`.

Sizes are multiples of 1024 as in ActiveMQ's configuration; a bare number means bytes, or seconds.
"""

import re

_SIZES = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}
_DURATIONS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE = re.compile(r"\s*(\d{1,18})\s*([a-z]*)\s*", re.ASCII)
_DURATION = re.compile(r"\s*(\d{1,12}(?:\.\d{1,9})?)\s*([a-z]*)\s*", re.ASCII)


def parse_size(text: object) -> int:
    """Return a size in bytes.

    Raises:
        ValueError: it is not a size.
    """
    match = _SIZE.fullmatch(str(text).lower())
    if match is None or match[2] not in _SIZES:
        raise ValueError(f"{text!r} is not a size: write for example 65536, 512kb, 64mb or 2gb")
    return int(match[1]) * _SIZES[match[2]]


def parse_duration(text: object) -> float:
    """Return a duration in seconds.

    Raises:
        ValueError: it is not a duration.
    """
    match = _DURATION.fullmatch(str(text).lower())
    if match is None or match[2] not in _DURATIONS:
        raise ValueError(f"{text!r} is not a duration: write for example 500ms, 30s, 5min or 1h")
    return float(match[1]) * _DURATIONS[match[2]]


def format_size(size: int) -> str:
    """Return the text of a size, in the largest exact unit."""
    for unit in ("gb", "mb", "kb"):
        if size and size % _SIZES[unit] == 0:
            return f"{size // _SIZES[unit]}{unit}"
    return str(size)


def format_duration(seconds: float) -> str:
    """Return the text of a duration."""
    if seconds < 1 and seconds:
        return f"{seconds * 1000:g}ms"
    for unit in ("h", "min"):
        if seconds and seconds % _DURATIONS[unit] == 0:
            return f"{seconds / _DURATIONS[unit]:g}{unit}"
    return f"{seconds:g}s"
