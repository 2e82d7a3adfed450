"""Silence in both directions: what OpenWire's inactivity monitor and STOMP's heart-beats come down to for a client.

Source: ActiveMQ 5.17, `AbstractInactivityMonitor`.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Pulse:
    """Whether the peer is still there, and whether it is time to say that we are; times in seconds.

    Each side sends something every third of the agreed duration, and gives the other up after the whole of it; with a
    check every duration, a silent peer is noticed between one and two durations after its last byte.
    """

    duration: float
    read_at: float
    write_at: float
    has_read: bool = True
    has_written: bool = True

    def is_dead(self, now: float) -> bool:
        """Check whether the peer has been silent for too long, if that is due."""
        if now < self.read_at:
            return False
        heard, self.has_read, self.read_at = self.has_read, False, now + self.duration
        return not heard

    def is_due(self, now: float) -> bool:
        """Check whether we have been silent for so long that a sign of life is due."""
        if now < self.write_at:
            return False
        wrote, self.has_written, self.write_at = self.has_written, False, now + self.duration / 3
        return not wrote
