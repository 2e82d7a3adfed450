"""`HeartbeatMonitor`, the timing of OpenWire's inactivity monitor and of STOMP's heart-beats.

Source: ActiveMQ 5.17, `AbstractInactivityMonitor`.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class HeartbeatMonitor:
    """Detects a silent peer, and when this side must send a heart-beat. Times are in seconds.

    Each side sends at least one byte in every third of the agreed duration, and treats the other as dead after a whole
    duration of silence. The check runs once per duration, so it finds a silent peer one to two durations after its last
    byte.

    Attributes:
        duration: the agreed duration.
        read_at: the time of the next check of the peer.
        write_at: the time of the next check whether to send a heart-beat.
        has_read: bytes were received since the last check.
        has_written: bytes were sent since the last check.
    """

    duration: float
    read_at: float
    write_at: float
    has_read: bool = True
    has_written: bool = True

    def has_timed_out(self, now: float) -> bool:
        """Return whether the peer was silent for a whole duration; False before the check is due."""
        if now < self.read_at:
            return False
        has_read, self.has_read, self.read_at = self.has_read, False, now + self.duration
        return not has_read

    def is_heartbeat_due(self, now: float) -> bool:
        """Return whether this side must send a heart-beat; False before the check is due."""
        if now < self.write_at:
            return False
        has_written, self.has_written, self.write_at = self.has_written, False, now + self.duration / 3
        return not has_written
