"""Garbage collections that are short: each looks at the objects made since the last one, and rarely at all of them.

Python's collector stops the event loop, some 0.1 to 0.8 us for each object that it looks at. By its own rules it looks
at all of them whenever they have grown by a quarter: with 50,000 queues, or some million outstanding messages, that is
half a second in which no client is served. Nearly all of these objects are in use, or freed by their reference counts.

```text
new objects -> generation 0 -> generation 1 -> frozen: not looked at again, until a full collection
               every 10,000    every 30,000
```

What refers to itself, and ends after it was frozen, stays in memory until a full collection. The broker's connections,
consumers and destinations do not: they give up such references when they end. What is left is little, such as errors
with their tracebacks. So a full collection is a safety net. It runs when the objects have grown, and the process has
been idle for ten times as long as the last one took; or when they have grown by very many. If it finds little garbage,
the next ones run later.
"""

import asyncio
import gc
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

_log = logging.getLogger(__name__)

YOUNG_MAX: Final = 10_000
"""The objects made, and not freed, between two collections. A message makes some thirty, nearly all freed by their
reference count; at Python's default of 700 the collector would run every few dozen messages."""

YOUNG_COLLECTIONS: Final = 1
"""Collections of generation 0 before one of generation 1 is due, which looks at the objects of three: 10 to 30 ms. With
four, of 20,000 each, it took 103 ms while 5,000 durable subscriptions joined a new topic."""

_NEVER: Final = 1_000_000_000
"""Collections of generation 1 before Python begins a full one by its own rules."""

IDLE_GROWTH: Final = 50_000
"""The growth from which an idle process begins a full collection."""

FORCED_GROWTH: Final = 4_000_000
"""The growth at which a full collection does not wait: some 400 MB, if all of it were garbage."""

IDLE_FACTOR: Final = 10
"""The process has to be idle for so many times as long as the last full collection took: a client that comes during the
next one waits for it."""

GARBAGE_SHARE: Final = 10
"""A full collection that frees less than this part of the growth has found little: both growths count twice as much
from then on, up to `PATIENCE_MAX` times as much. One that finds more makes them count once."""

PATIENCE_MAX: Final = 4

IDLE_SHARE: Final = 0.002
"""The share of a processor up to which a process counts as idle: heart-beats, but not one client that sends 100
messages a second, which would notice a collection of seconds."""

TICK_SECONDS: Final = 1.0

_WARNING_SECONDS: Final = 0.1


class Collector(Protocol):
    """Python's module `gc`, as far as it is needed."""

    callbacks: list[Any]

    def set_threshold(self, threshold0: int, threshold1: int = ..., threshold2: int = ..., /) -> None:
        """Set when a collection begins."""
        ...

    def freeze(self) -> None:
        """Exclude all objects from collections."""
        ...

    def unfreeze(self) -> None:
        """Include them again."""
        ...

    def collect(self) -> int:
        """Look at all objects that are not frozen."""
        ...


class GarbageCollections:
    """The garbage collections of a broker's process.

    Attributes:
        growth: the objects by which the process has grown since the last full collection, garbage included.
    """

    def __init__(
        self,
        collector: Collector = gc,
        monotonic: Callable[[], float] = time.monotonic,
        processor_seconds: Callable[[], float] = time.process_time,
    ) -> None:
        """Keep Python's rules until `begin`.

        Args:
            collector: Python's module.
            monotonic: seconds.
            processor_seconds: the processor time that the process has used.
        """
        self.growth = 0
        self._collector = collector
        self._monotonic = monotonic
        self._processor_seconds = processor_seconds
        self._survivors = 0
        self._patience = 1
        self._full_seconds = 0.0
        """The time that the last full collection took."""
        self._idle_since = self._ticked_at = monotonic()
        self._used_at = processor_seconds()

    def begin(self) -> None:
        """Replace Python's rules."""
        self._collector.set_threshold(YOUNG_MAX, YOUNG_COLLECTIONS, _NEVER)
        self._collector.callbacks.append(self._on_collection)

    def end(self) -> None:
        """Freeze nothing any more."""
        self._collector.callbacks.remove(self._on_collection)

    async def watch(self) -> None:
        """Begin full collections when they are due, until cancelled."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self.tick()

    def tick(self) -> None:
        """Run a full collection if it is due."""
        now, used = self._monotonic(), self._processor_seconds()
        is_idle = used - self._used_at <= IDLE_SHARE * (now - self._ticked_at)
        self._ticked_at, self._used_at = now, used
        if not is_idle:
            self._idle_since = now
        is_quiet = is_idle and now - self._idle_since >= IDLE_FACTOR * self._full_seconds
        if self.growth >= self._patience * (IDLE_GROWTH if is_quiet else FORCED_GROWTH):
            self._collect(now)

    def _collect(self, begun: float) -> None:
        growth, self.growth, self._survivors = self.growth, 0, 0
        self._collector.unfreeze()
        freed = self._collector.collect()
        self._collector.freeze()
        has_found_little = GARBAGE_SHARE * freed < growth
        self._patience = min(2 * self._patience, PATIENCE_MAX) if has_found_little else 1
        now = self._monotonic()
        self._full_seconds = now - begun
        self._used_at = self._processor_seconds()
        self._ticked_at = now
        level = logging.INFO if now - begun >= _WARNING_SECONDS else logging.DEBUG
        _log.log(
            level,
            "a full garbage collection freed %d objects in %.0f ms, after a growth by %d",
            *(freed, (now - begun) * 1000, growth),
        )

    def _on_collection(self, phase: str, info: Mapping[str, int]) -> None:
        """Count the survivors, and freeze those of generation 1."""
        if phase == "start":
            return
        generation = info["generation"]
        if generation > 1:
            return
        self._survivors += YOUNG_MAX - info["collected"]
        if generation == 1:
            self.growth = max(0, self.growth + self._survivors)
            self._survivors = 0
            self._collector.freeze()
