"""Heart-beats of a STOMP connection. Pure; the session owns the timer.

Source: STOMP 1.2, "Heart-beating"; ActiveMQ 5.17 for its tolerance.

```text
CONNECT    heart-beat:cx,cy    the client sends at least every cx ms, and wants something at least every cy ms
CONNECTED  heart-beat:sx,sy    so does the server with sx = cy, sy = cx; 0 (or less): none
```
"""

import re
from dataclasses import dataclass

from pybroker.broker.domain.stomp.errors import StompProtocolError
from pybroker.broker.domain.stomp.frames import shortened

_HEADER = re.compile(r"([+-]?\d{1,10}),([+-]?\d{1,10})", re.ASCII)
_INTEGER_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatIntervals:
    """The negotiated intervals in milliseconds; 0 or less means none.

    Attributes:
        server_ms: the server sends at least this often.
        client_ms: the client does.
    """

    server_ms: int
    client_ms: int

    def __str__(self) -> str:
        """Return the `heart-beat` header of CONNECTED."""
        return f"{self.server_ms},{self.client_ms}"


def negotiate(header: str, *, minimum_ms: int) -> HeartbeatIntervals:
    """Return the intervals that a client's `heart-beat` header requests, but not below the minimum.

    Raises:
        ProtocolError: the header is not two integers.
    """
    match = _HEADER.fullmatch(header.strip())
    if match is None or max(int(match[1]), int(match[2])) > _INTEGER_MAX:
        raise StompProtocolError(
            f"Invalid heart-beat header:{shortened(header)}",
            "Write two integers (milliseconds) with a comma between them and no blanks, such as 10000,10000.",
        )
    client_ms, server_ms = int(match[1]), int(match[2])
    return HeartbeatIntervals(server_ms=_at_least(server_ms, minimum_ms), client_ms=_at_least(client_ms, minimum_ms))


def _at_least(interval_ms: int, minimum_ms: int) -> int:
    return max(interval_ms, minimum_ms) if interval_ms > 0 else interval_ms


class HeartBeat:
    """Decides when to send a heart-beat, and when the peer has been silent for too long.

    The outgoing direction is checked twice per interval: no beat is due if a frame was sent since the last check. So
    the longest silence stays within one interval, without reading the clock at every frame.

    Attributes:
        wrote: to be set at every write.
    """

    __slots__ = ("_check_at", "_check_seconds", "_received_at", "_silence_seconds_max", "wrote")

    def __init__(self, intervals: HeartbeatIntervals, *, grace: float, now: float) -> None:
        self.wrote = True
        self._check_seconds = intervals.server_ms / 2000 if intervals.server_ms > 0 else None
        self._check_at = now + (self._check_seconds or 0)
        self._silence_seconds_max = intervals.client_ms / 1000 * grace if intervals.client_ms > 0 else None
        self._received_at = now

    @property
    def silence_seconds_max(self) -> float | None:
        """The longest silence of the peer; None for no limit."""
        return self._silence_seconds_max

    def received(self, now: float) -> None:
        """Record that bytes were received: any bytes count."""
        self._received_at = now

    def not_read_until(self, when: float) -> None:
        """Record that the peer was not read until then, so that its silence begins there."""
        self._received_at = max(self._received_at, when)

    def is_peer_dead(self, now: float) -> bool:
        """Return True if the peer has been silent for too long."""
        return self._silence_seconds_max is not None and now - self._received_at >= self._silence_seconds_max

    def is_beat_due(self, now: float) -> bool:
        """Check the outgoing direction; True if a beat must be sent now."""
        if self._check_seconds is None or now < self._check_at:
            return False
        self._check_at = now + self._check_seconds
        due = not self.wrote
        self.wrote = due  # the beat itself counts: without other frames there is one per interval
        return due

    def next_check(self) -> float | None:
        """Return the time of the next check, by the same clock; None: never."""
        times: list[float] = []
        if self._check_seconds is not None:
            times.append(self._check_at)
        if self._silence_seconds_max is not None:
            times.append(self._received_at + self._silence_seconds_max)
        return min(times, default=None)
