"""A spool in memory, whose writes end when a test lets them."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from pybroker.broker.domain.message import Message


class MemorySpool:
    """Implements `MessageSpool`; hands out each place once.

    Attributes:
        messages: the messages that have not been released, by place.
        limit: number of messages; further ones are refused.
    """

    def __init__(self, limit: int = 1 << 30) -> None:
        self.messages: dict[int, Message] = {}
        self.limit = limit
        self.read_count = 0
        self.is_full = False
        self.bytes_max = 1 << 40
        self.unwritten_bytes = 0
        self._jobs: list[tuple[list[int], int, Callable[[Sequence[int]], None]]] = []
        self._waiting: list[Callable[[], None]] = []
        self._next = 0

    @property
    def used_bytes(self) -> int:
        return sum(len(message.data) for message in self.messages.values())

    @property
    def is_writing(self) -> bool:
        return bool(self._jobs)

    def write(self, messages: Sequence[Message], when_written: Callable[[Sequence[int]], None]) -> bool:
        assert messages
        if len(self.messages) + len(messages) > self.limit:
            self.is_full = True
            return False
        places = list(range(self._next, self._next + len(messages)))
        self._next += len(messages)
        for place, message in zip(places, messages, strict=True):
            self.messages[place] = replace(message, decoded=None)
        size = sum(len(message.data) for message in messages)
        self.unwritten_bytes += size
        self._jobs.append((places, size, when_written))
        return True

    def when_written(self, callback: Callable[[], None]) -> None:
        assert self._jobs
        self._waiting.append(callback)

    def work(self, count: int = 1 << 30, *, fails: bool = False) -> None:
        """End so many writes."""
        while self._jobs and count:
            count -= 1
            places, size, when_written = self._jobs.pop(0)
            self.unwritten_bytes -= size
            if fails:
                for place in places:
                    self.release(place)
            when_written(() if fails else places)
            waiting, self._waiting = self._waiting, []
            for callback in waiting:
                callback()

    def read_page(self, places: Sequence[int], bytes_max: int) -> Sequence[Message | None]:
        found: list[Message | None] = []
        for place in places:
            self.read_count += 1
            message = replace(self.messages[place])
            found.append(message)
            bytes_max -= len(message.data)
            if bytes_max <= 0:
                break
        return found

    def release(self, place: int) -> None:
        del self.messages[place]

    def close(self) -> None:
        self.messages.clear()
