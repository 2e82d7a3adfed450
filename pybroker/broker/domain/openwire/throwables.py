"""Java's exceptions with their stack traces: why a message could not be consumed, or a command failed.

Source: OpenWire, throwables.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

CAUSES_MAX: Final = 100
"""Exceptions that caused one another."""


class StackFrame(NamedTuple):
    """One call in a Java stack trace; line -1 is unknown, -2 native code."""

    class_name: str | None
    method: str | None
    file: str | None
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Throwable:
    """A Java exception."""

    class_name: str | None
    message: str | None = None
    stack: tuple[StackFrame, ...] = ()
    cause: "Throwable | None" = None
