"""Reads large messages back in a thread: 90 MB from the disk would stop the event loop for 100 ms.

```text
read -> NotReadYet        thread: reads        on_readable -> read -> the message
```

One message is read at a time, and is kept until it is requested again. So at most one such body is in memory that no
backlog counts.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from pybroker.broker.domain.errors import NotReadYet
from pybroker.broker.domain.message import Message
from pybroker.store.journal.bodies import BodyReader, Place
from pybroker.store.journal.reader import Damage
from pybroker.store.runtime import Later, StoreRuntime

LARGE_BODY_BYTES: Final = 4 << 20
"""The length from which a message is read in the thread: the loop takes some five milliseconds to read as much."""

KEPT_SECONDS: Final = 1.0
"""The time for which a message is kept that is not requested again, as its backlog was deleted."""

_log = logging.getLogger(__name__)


class _Found(NamedTuple):
    """The result of one read in the thread: the message or its damage, or the error that the read raised."""

    place: Place
    messages: Sequence[Message]
    damages: Sequence[Damage]
    error: Exception | None


class LargeBodies:
    """Reads large messages of a journal.

    Attributes:
        on_readable: called once a message may be read that could not be read yet.
    """

    def __init__(self, directory: Path, runtime: StoreRuntime, call_later: Later) -> None:
        """Read nothing yet.

        Args:
            directory: the journal.
            runtime: starts the thread.
            call_later: calls back after so many seconds.
        """
        self.on_readable: Callable[[], None] = _ignore
        self._directory = directory
        self._runtime = runtime
        self._call_later = call_later
        self._under_way: Place | None = None
        self._found: _Found | None = None
        self._has_refused = False
        """Another message was requested meanwhile."""

    def read(self, place: Place) -> tuple[Sequence[Message], Sequence[Damage]]:
        """Return a message, or its damage.

        Raises:
            NotReadYet: it is being read, or another one is; `on_readable` follows.
            StoreUnavailable: its data file cannot be read.
        """
        found = self._found
        if found is not None and found.place == place:
            self._release()
            if found.error is not None:
                raise found.error
            return found.messages, found.damages
        if found is not None or self._under_way is not None:
            self._has_refused |= self._under_way != place
        else:
            self._under_way = place
            self._runtime.spawn("large-message", partial(self._run, place))
        raise NotReadYet(f"message {place[0]} is being read")

    def _run(self, place: Place) -> None:
        """Read a message; in the thread."""
        found = _Found(place, (), (), None)
        try:
            with BodyReader(self._directory) as reader:
                found = _Found(place, list(reader.page((place,))), reader.damages, None)
        except Exception as error:  # of any kind, it is raised where the message is requested
            found = _Found(place, (), (), error)
        self._runtime.post(partial(self._on_read, found))

    def _on_read(self, found: _Found) -> None:
        self._found, self._under_way = found, None
        self._call_later(KEPT_SECONDS, partial(self._drop, found))
        self.on_readable()

    def _drop(self, found: _Found) -> None:
        if self._found is found:
            _log.debug("message %s was read, and is not wanted any more", found.place[0])
            self._release()

    def _release(self) -> None:
        """Free what was read, and have the next message read that was requested."""
        self._found = None
        if self._has_refused:
            self._has_refused = False
            self._runtime.call_soon(self.on_readable)


def _ignore() -> None:
    """Do nothing: no core is there yet."""
