"""`InactivityMonitor`, the timing of OpenWire's inactivity monitor, for both sides of a connection.

Each side sends a heart-beat when it has sent nothing for a third of the agreed duration, and closes when it has
received nothing for the whole of it. Source: OpenWire, `MaxInactivityDuration`; ActiveMQ 5.17, `InactivityMonitor`: it
checks once per duration, so a silent peer is detected between one and two durations after its last byte.
"""


class InactivityMonitor:
    """The checks of one connection; times in seconds, by the caller's clock.

    Attributes:
        seconds: the agreed duration.
        has_read: bytes have come since the last check.
    """

    __slots__ = ("_has_written", "_is_heartbeat", "_read_at", "_write_at", "has_read", "seconds")

    def __init__(self, seconds: float, read_at: float, write_at: float) -> None:
        """Begin after the negotiation, which counts as read and written.

        Args:
            seconds: the agreed duration; 0 for no checks.
            read_at: the time of the first check of the peer.
            write_at: the time of the first check for a heart-beat to send.
        """
        self.seconds = seconds
        self.has_read = self._has_written = True
        self._is_heartbeat = False
        self._read_at = read_at if seconds > 0 else float("inf")
        self._write_at = write_at if seconds > 0 else float("inf")

    @property
    def next_check(self) -> float:
        """The time of the next check; infinite without checks."""
        return min(self._read_at, self._write_at)

    def wrote(self) -> None:
        """Record that bytes were sent; those of a heart-beat do not delay the next one."""
        if self._is_heartbeat:
            self._is_heartbeat = False
        else:
            self._has_written = True

    def is_peer_dead(self, now: float, reading_since: float | None = float("-inf")) -> bool:
        """Return True if a check is due and finds that the peer has been silent for too long.

        Args:
            now: the present time.
            reading_since: the time since which the peer is read without a break; None while it is not.
        """
        if now < self._read_at:
            return False
        heard = self.has_read or reading_since is None or now - reading_since < self.seconds
        self.has_read = False
        self._read_at = now + self.seconds
        return not heard

    def is_heartbeat_due(self, now: float) -> bool:
        """Return True if nothing was sent for so long that a heart-beat is due, which the caller then sends."""
        if now < self._write_at:
            return False
        is_due = self._is_heartbeat = not self._has_written
        self._has_written = False
        self._write_at = now + self.seconds / 3
        return is_due
