"""The limits of a broker."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on what clients may make one broker hold.

    Attributes:
        unwritten_bytes_max: bytes waiting for the disk above which producers are slowed down: four journal batches.
        destinations_max: number of queues and topics that clients may create.
        memory_bytes_max: memory of all messages above which producers are slowed down; 0 for no limit.
        connections_per_user: number of connections of one user who has logged in; 0 for no limit.
    """

    unwritten_bytes_max: int = 16 << 20
    destinations_max: int = 100_000
    memory_bytes_max: int = 0
    connections_per_user: int = 0
