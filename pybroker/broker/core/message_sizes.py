"""The sizes of the messages that were sent to a destination."""

from pybroker.broker.domain.admin import Counters


class MessageSizes:
    """The sum of the sizes, the largest and the smallest, as ActiveMQ counts them; 0 before the first."""

    __slots__ = ("largest", "smallest", "total")

    def __init__(self) -> None:
        self.total: int = 0
        self.largest: int = 0
        self.smallest: int = 0

    def add(self, size: int) -> None:
        """Count a message."""
        self.total += size
        if size > self.largest:
            self.largest = size
        if size < self.smallest or not self.smallest:
            self.smallest = size

    def added_to(self, counters: Counters) -> Counters:
        """Return counts with these sizes."""
        # Named one by one: `dataclasses.replace` takes four times as long, and a page may need thousands.
        return Counters(
            size=counters.size,
            enqueued=counters.enqueued,
            dispatched=counters.dispatched,
            dequeued=counters.dequeued,
            expired=counters.expired,
            in_flight=counters.in_flight,
            wait_seconds=counters.wait_seconds,
            wait_seconds_max=counters.wait_seconds_max,
            wait_seconds_min=counters.wait_seconds_min,
            message_bytes=self.total,
            message_bytes_max=self.largest,
            message_bytes_min=self.smallest,
            forwarded=counters.forwarded,
        )
