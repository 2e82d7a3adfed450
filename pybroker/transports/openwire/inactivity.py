"""The inactivity monitor of an OpenWire connection.

Each side sends a KeepAliveInfo when it has sent nothing for a third of the negotiated duration, and closes when it has
received nothing for the whole of it. Source: OpenWire, `MaxInactivityDuration`; ActiveMQ 5.17, `InactivityMonitor`: it
checks once per duration, so a silent peer is detected between one and two durations after its last byte.
"""


class Inactivity:
    """The checks of one connection; times by the link's clock.

    Attributes:
        has_read: bytes have come since the last check.
    """

    __slots__ = ("_duration", "_has_written", "_keeps_alive", "_read_at", "_write_at", "has_read")

    def __init__(self, duration_ms: int, initial_delay_ms: int, now: float) -> None:
        """Begin after the negotiation, which counts as read and written; a duration of 0 means no checks."""
        self.has_read = self._has_written = True
        self._keeps_alive = False
        self._duration = duration_ms / 1000
        first = now + initial_delay_ms / 1000
        self._read_at = first if duration_ms > 0 else float("inf")
        self._write_at = first if duration_ms > 0 else float("inf")

    @property
    def seconds(self) -> float:
        """The negotiated duration."""
        return self._duration

    @property
    def next_check(self) -> float:
        """The time of the next check; infinite without checks."""
        return min(self._read_at, self._write_at)

    def wrote(self) -> None:
        """Record that bytes were sent; those of a KeepAliveInfo do not delay the next one."""
        if self._keeps_alive:
            self._keeps_alive = False
        else:
            self._has_written = True

    def is_peer_dead(self, now: float, reading_since: float | None) -> bool:
        """Return True if a check is due and finds that the peer has been silent for too long.

        Args:
            now: the present time.
            reading_since: the time since which the peer is read without a break; None while it is not.
        """
        if now < self._read_at:
            return False
        heard = self.has_read or reading_since is None or now - reading_since < self._duration
        self.has_read = False
        self._read_at = now + self._duration
        return not heard

    def is_keep_alive_due(self, now: float) -> bool:
        """Return True if nothing was sent for so long that a KeepAliveInfo is due."""
        if now < self._write_at:
            return False
        is_due = self._keeps_alive = not self._has_written
        self._has_written = False
        self._write_at = now + self._duration / 3
        return is_due
