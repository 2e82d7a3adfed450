"""Messages whose records this disk does not give back, from the copies of other members of a replicated cluster.

```text
read_page: a record is damaged --> message() --> ask another member   (NotReadYet)
                                                       |
on_readable -> read_page ------> message() -> its message, or none has it: it is reported as damaged
```

All damaged records of a page are asked for together. What comes is kept for a while, for the page is read again.
Used on the event loop.
"""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from pybroker.broker.domain.errors import MalformedData
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.prefix_cache import PrefixCache
from pybroker.store.journal.bodies import Place
from pybroker.store.journal.commands import AddMessage, UpdateMessage, decode
from pybroker.store.journal.format import RECORD_HEADER, RECORD_HEADER_BYTES, USER_RECORD, data_file_name
from pybroker.store.runtime import Later

KEPT_SECONDS: Final = 10.0
"""The time for which an answer is kept: the page with the message is read again soon, and may lack another one yet."""

ReadElsewhere = Callable[[int, int, Callable[[bytes], None]], None]
"""Asks other members for the record at an offset of a data file; see `ReplicatedJournal.read_elsewhere`."""

_log = logging.getLogger(__name__)


class RecordsElsewhere:
    """Asks for damaged records of one journal.

    Attributes:
        is_waiting: an answer is awaited that `message` was called for since this was last set to False.

    Args:
        directory: the journal.
        read_elsewhere: asks other members.
        on_readable: called after each answer.
        call_later: calls back after so many seconds.
    """

    def __init__(
        self, directory: Path, read_elsewhere: ReadElsewhere, on_readable: Callable[[], None], call_later: Later
    ) -> None:
        self.is_waiting = False
        self._directory = directory
        self._read_elsewhere = read_elsewhere
        self._on_readable = on_readable
        self._call_later = call_later
        self._asked: set[Place] = set()
        self._found: dict[Place, Message | None] = {}

    def was_asked(self, place: Place) -> bool:
        """Return True while a message is asked for, and for a while after the answer."""
        return place in self._asked or place in self._found

    def message(self, place: Place) -> Message | None:
        """Return a message from another member's copy; None if none has it, or while it is asked for (`is_waiting`)."""
        if place not in self._found and place not in self._asked:
            self._asked.add(place)
            self._read_elsewhere(place[1], place[2], partial(self._take, place))
        if place in self._found:
            return self._found[place]
        self.is_waiting = True
        return None

    def _take(self, place: Place, record: bytes) -> None:
        """Keep an answer: a record, or nothing."""
        self._asked.discard(place)
        message = _message(record, place[0])
        where = self._directory / data_file_name(place[1])
        if message is None:
            _log.error("%s: no other member has a sound copy of the record at offset %d", where, place[2])
        else:
            _log.warning(
                "%s: the record at offset %d is damaged on this disk, and was read from another member's: hand over to "
                "that one, and this store is repaired",
                where,
                place[2],
            )
        self._found[place] = message
        self._call_later(KEPT_SECONDS, partial(self._forget, place))
        self._on_readable()

    def _forget(self, place: Place) -> None:
        self._found.pop(place, None)


def _message(record: bytes, message_id: str) -> Message | None:
    """Return the message in a record; None if it is another one, or none."""
    if len(record) <= RECORD_HEADER_BYTES or RECORD_HEADER.unpack_from(record) != (len(record), USER_RECORD):
        return None
    try:
        command = decode(record[RECORD_HEADER_BYTES:])
        if isinstance(command, UpdateMessage):
            command = command.message
        if isinstance(command, AddMessage) and command.message_id == message_id:
            return PrefixCache().route(command.data, message_id)
    except MalformedData:
        pass  # of a checksum of 0, and damaged there as well: it counts as none
    return None
