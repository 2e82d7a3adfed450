"""Records and reads how the last master stopped: if cleanly, then with the messages that consumers had seen.

A clean stop of pybroker's ends the journal with one `Trace` record, which ActiveMQ ignores. It names the messages that
consumers have seen, so that the next master marks just those as redelivered. ActiveMQ records in its index that it
stopped in order, and then nothing has to be marked. Without either any message may have been delivered.

```text
pybroker clean stop {"delivered": ["ID:…", …]}      null instead of the list: all of them, there were too many to name
```
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from pybroker import regular

CLEAN_STOP = "pybroker clean stop "

DELIVERED_MAX = 20_000
"""Ids a clean stop names, at some 60 bytes each. Beyond, it is cheaper to call every pending message delivered."""

INDEX_FILES = ("db.data", "db.redo", "db.free")
"""ActiveMQ's."""

_INDEX_HEADER_BYTES = 4096
"""Of ActiveMQ's page file: two copies of a properties text."""


def clean_stop(delivered: Iterable[str]) -> str:
    """Return the text of a clean stop; it calls everything delivered when there is too much to name."""
    named: set[str] = set()
    for message_id in delivered:
        named.add(message_id)
        if len(named) > DELIVERED_MAX:
            break
    return CLEAN_STOP + json.dumps({"delivered": sorted(named) if len(named) <= DELIVERED_MAX else None})


def is_clean_stop(closing: Sequence[str]) -> bool:
    """Return True if a journal's closing `Trace` records end with a clean stop."""
    return bool(closing) and closing[-1].startswith(CLEAN_STOP)


def read_delivered(closing: Sequence[str]) -> frozenset[str] | None:
    """Return which messages a journal's closing `Trace` records call delivered; None: any may have been."""
    if not is_clean_stop(closing):
        return None
    try:
        record: dict[str, list[str] | None] = json.loads(closing[-1].removeprefix(CLEAN_STOP))
        named = record["delivered"]
        return None if named is None else frozenset(named)
    except (ValueError, KeyError, TypeError):
        # Not our words after all. Calling everything delivered is always true enough.
        return None


def activemq_stopped_cleanly(directory: Path) -> bool:
    """Return True if an ActiveMQ was the last master, and stopped in order: then it marks nothing as redelivered.

    Only an ActiveMQ leaves an index, whose first page has the flag in plain text.
    """
    try:
        with open(directory / INDEX_FILES[0], "rb", opener=regular.opener) as index:
            return b"cleanShutdown=true" in index.read(_INDEX_HEADER_BYTES)
    except FileNotFoundError:
        return False
