"""Heart-beats: when to send one, and when to give a silent peer up. Pure; the session owns the timer.

Source: STOMP 1.2, "Heart-beating"; ActiveMQ 5.17 for what it tolerates.

```text
CONNECT    heart-beat:cx,cy    the client sends at least every cx ms, and wants something at least every cy ms
CONNECTED  heart-beat:sx,sy    so does the server with sx = cy, sy = cx; 0 (or less): none
```
"""

import re
from dataclasses import dataclass

from pybroker.broker.domain.stomp.errors import Broken
from pybroker.broker.domain.stomp.frames import shortened

_HEADER = re.compile(r"([+-]?\d{1,10}),([+-]?\d{1,10})", re.ASCII)
_INTEGER_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatIntervals:
    """What was agreed, in milliseconds; 0 or less means none.

    Attributes:
        server_ms: the server sends at least this often.
        client_ms: the client does.
    """

    server_ms: int
    client_ms: int

    def __str__(self) -> str:
        """Return the `heart-beat` header of CONNECTED."""
        return f"{self.server_ms},{self.client_ms}"


def agree(header: str, *, minimum_ms: int) -> HeartbeatIntervals:
    """Answer a client's `heart-beat` header: as often as it asks, down to the minimum.

    Raises:
        RemoteProtocolError: the header is not two integers.
    """
    match = _HEADER.fullmatch(header.strip())
    if match is None or max(int(match[1]), int(match[2])) > _INTEGER_MAX:
        raise Broken(
            f"Invalid heart-beat header:{shortened(header)}",
            "Write two integers (milliseconds) with a comma between them and no blanks, such as 10000,10000.",
        )
    client_ms, server_ms = int(match[1]), int(match[2])
    return HeartbeatIntervals(server_ms=_at_least(server_ms, minimum_ms), client_ms=_at_least(client_ms, minimum_ms))


def _at_least(interval_ms: int, minimum_ms: int) -> int:
    return max(interval_ms, minimum_ms) if interval_ms > 0 else interval_ms


class HeartBeat:
    """Keeps both directions' time.

    The outgoing direction is looked at twice per interval: whoever wrote since the last look owes no beat, and the
    longest silence stays within one interval, without reading the clock at every frame.

    Attributes:
        wrote: set it whenever something is written.
    """

    __slots__ = ("_look_at", "_look_seconds", "_received_at", "_silence_seconds_max", "wrote")

    def __init__(self, agreement: HeartbeatIntervals, *, grace: float, now: float) -> None:
        self.wrote = True
        self._look_seconds = agreement.server_ms / 2000 if agreement.server_ms > 0 else None
        self._look_at = now + (self._look_seconds or 0)
        self._silence_seconds_max = agreement.client_ms / 1000 * grace if agreement.client_ms > 0 else None
        self._received_at = now

    @property
    def silence_seconds_max(self) -> float | None:
        """How long the peer may be silent; None: for ever."""
        return self._silence_seconds_max

    def received(self, now: float) -> None:
        """Note that bytes came: any bytes count."""
        self._received_at = now

    def not_read_until(self, when: float) -> None:
        """Note that the peer was not read until then: silence that is ours is none of the peer's."""
        self._received_at = max(self._received_at, when)

    def is_peer_dead(self, now: float) -> bool:
        """Tell whether the peer has been silent for too long."""
        return self._silence_seconds_max is not None and now - self._received_at >= self._silence_seconds_max

    def is_beat_due(self, now: float) -> bool:
        """Look at the outgoing direction; True when a beat must be written now."""
        if self._look_seconds is None or now < self._look_at:
            return False
        self._look_at = now + self._look_seconds
        due = not self.wrote
        self.wrote = due  # the beat itself counts: with nothing else to say there is one per interval
        return due

    def next_look(self) -> float | None:
        """Return when to ask again, in the same clock's seconds; None: never."""
        times: list[float] = []
        if self._look_seconds is not None:
            times.append(self._look_at)
        if self._silence_seconds_max is not None:
            times.append(self._received_at + self._silence_seconds_max)
        return min(times, default=None)
