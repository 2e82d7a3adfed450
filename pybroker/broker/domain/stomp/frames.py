r"""STOMP frames: versions, commands, limits, and the escapes in header values.

Source: STOMP 1.0, 1.1 and 1.2, "Augmented BNF" and "Value Encoding", as ActiveMQ 5.17 applies them:
escapes are understood in *values* of every version (also 1.0's), and written in values of 1.1 and 1.2 only.
Header names are neither escaped nor unescaped.

```text
escape   \n    \c    \\    \r
means    LF    :     \     CR        (\r in 1.2 only; any other backslash stands for itself)
```
"""

import enum
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple


class Version(enum.Enum):
    """A protocol version. The member's order is the protocol's: later is higher."""

    V1_0 = "1.0"
    V1_1 = "1.1"
    V1_2 = "1.2"


class Command(enum.StrEnum):
    """The commands of clients."""

    CONNECT = "CONNECT"
    STOMP = "STOMP"
    SEND = "SEND"
    SUBSCRIBE = "SUBSCRIBE"
    UNSUBSCRIBE = "UNSUBSCRIBE"
    ACK = "ACK"
    NACK = "NACK"
    BEGIN = "BEGIN"
    COMMIT = "COMMIT"
    ABORT = "ABORT"
    DISCONNECT = "DISCONNECT"


class Frame(NamedTuple):
    """One frame of a client.

    Attributes:
        command: as it came; not necessarily one of `Command`.
        headers: unescaped; of a repeated header the first one. The frame's own: its reader may take it apart.
        body: without the NUL that ends it.
    """

    command: str
    headers: dict[str, str]
    body: bytes

    def __repr__(self) -> str:
        """Return the frame without values, one of which may be a password, and without its body."""
        return f"Frame({self.command!r}, {list(self.headers)}, {len(self.body)} bytes)"


@dataclass(frozen=True, slots=True, kw_only=True)
class StompLimits:
    """Limits on what one peer may make the broker hold. Those of frames are ActiveMQ's defaults.

    Attributes:
        command_bytes: length of a command; the longest real one has 11 bytes.
        header_line_bytes: length of one header line.
        header_count: headers of one frame.
        head_bytes: command and headers together: 1000 lines of 10 KB would be 10 MB before anything is checked.
        body_bytes: a frame's body; one message must not be able to fill the broker's memory.
        unconnected_body_bytes: the same before CONNECT, when no frame needs a body.
        unconnected_head_bytes: command and headers before CONNECT, which may have a token of some kB as password.
        connect_seconds: time until the first CONNECT, after which the connection is closed.
        heart_beat_min_ms: the shortest interval that is agreed to, so that timers do not fire all the time.
        heart_beat_grace: how many of its beats a peer may miss; 3 is the most patient ActiveMQ ever is.
        subscriptions: consumers of one connection.
        transactions: open transactions of one connection.
        temporary_destinations: temporary destinations of one connection.
    """

    command_bytes: int = 1024
    header_line_bytes: int = 10 * 1024
    header_count: int = 1000
    head_bytes: int = 1024 * 1024
    body_bytes: int = 100 * 1024 * 1024
    unconnected_body_bytes: int = 64 * 1024
    unconnected_head_bytes: int = 64 * 1024
    connect_seconds: float = 30.0
    heart_beat_min_ms: int = 100
    heart_beat_grace: float = 3.0
    subscriptions: int = 1000
    transactions: int = 1000
    temporary_destinations: int = 1000


# ---------------------------------------------------------------- escapes

_NUL_STAND_IN = "\ufffd"
"""A NUL in a header (JMS allows it) would end the frame, and STOMP has no escape for it."""

_MEANINGS: Final = (("n", "\n"), ("c", ":"), ("r", "\r"))
"""The letters behind a backslash, except for the backslash itself, and what they mean."""


def unescape(value: str, version: Version) -> str:
    """Return what a received header value means; a backslash that begins no escape stays.

    By replacing, not by a pattern: a peer can fill a megabyte with escapes, and each match is a call.
    """
    if "\\" not in value:
        return value
    parts: list[str] = value.split(r"\\")
    for letter, meaning in _MEANINGS:
        if letter in value and (letter != "r" or version is Version.V1_2):
            parts = [part.replace(f"\\{letter}", meaning) for part in parts]
    return "\\".join(parts)


def _escape_1_0(value: str) -> str:
    """Return a value for STOMP 1.0, which has no escapes: a line feed would begin a new header, and becomes a space."""
    return value.replace("\n", " ").replace("\0", _NUL_STAND_IN)


def _escape_1_1(value: str) -> str:
    if value.isalnum():
        return value
    if "\0" in value:
        value = value.replace("\0", _NUL_STAND_IN)
    return value.replace("\\", r"\\").replace("\n", r"\n").replace(":", r"\c")


def _escape_1_2(value: str) -> str:
    if value.isalnum():
        return value
    if "\0" in value:
        value = value.replace("\0", _NUL_STAND_IN)
    return value.replace("\\", r"\\").replace("\n", r"\n").replace(":", r"\c").replace("\r", r"\r")


ESCAPERS: dict[Version, Callable[[str], str]] = {
    Version.V1_0: _escape_1_0,
    Version.V1_1: _escape_1_1,
    Version.V1_2: _escape_1_2,
}
"""Per version: how a header value is written."""


def shortened(text: str) -> str:
    """Return a peer's own words at a length fit for an error or a log."""
    return text if len(text) <= _QUOTED_MAX else text[:_QUOTED_MAX] + "…"


_QUOTED_MAX = 120


def readable_name(name: str) -> str:
    """Return a header name that cannot be mistaken for anything else on the wire.

    Names are not escaped in what ActiveMQ speaks, and STOMP producers and JMS keep separators out of them. One that
    has a colon, a line end or a NUL all the same (OpenWire lets it through) gets underscores instead.
    """
    return _UNWRITABLE_IN_NAMES.sub("_", name)


_UNWRITABLE_IN_NAMES = re.compile(r"[\r\n:\x00]")
