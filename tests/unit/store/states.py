"""The relevant parts of a store's state, in a form that can be compared; and small journals, written by hand."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pybroker.broker.domain.destination import queue
from pybroker.store.journal.commands import AddMessage, Command, RemoveMessage, encode
from pybroker.store.journal.format import EOF_MARKER, data_file_name, encode_batch, encode_record
from pybroker.store.journal.replay import ReplayResult, replay
from pybroker.store.journal.state import StoreState

ORDERS = queue("ORDERS")
PRODUCER = "ID:host-1-1:1:1:1"


def described(state: StoreState) -> dict[str, Any]:
    """Return all that matters of a state. Destinations without contents may or may not be remembered."""
    return {
        "destinations": {
            str(destination): (
                list(contents.messages.items()),
                {each: sorted(files) for each, files in contents.superseded.items()},
                contents.pending_counts,
                {
                    key: (each.info, each.location, each.files, each.pending)
                    for key, each in contents.subscriptions.items()
                },
            )
            for destination, contents in state.destinations.items()
            if contents.messages or contents.subscriptions
        },
        "inflight": {str(each): (found.operations, found.files) for each, found in state.inflight.items()},
        "prepared": {str(each): (found.operations, found.files) for each, found in state.prepared.items()},
        "live": state.usage.live,
        "compacted": state.compacted,
        "kept": {str(each): list(recorded_in) for each, recorded_in in state.declared.items()},
    }


def replayed(directory: Path) -> tuple[StoreState, ReplayResult]:
    """Read a journal from its first file."""
    state = StoreState()
    return state, replay(directory, state)


def message_id(number: int) -> str:
    """Return the id of a producer's message."""
    return f"{PRODUCER}:{number}"


def add(number: int, size: int = 10) -> AddMessage:
    """Return a command that adds a message; no one will look into it."""
    return AddMessage(ORDERS, message_id(number), b"x" * size)


def remove(number: int) -> RemoveMessage:
    """Return a command that removes a message."""
    return RemoveMessage(ORDERS, message_id(number))


def batch(*commands: Command, checksum: bool = True) -> bytes:
    """Return a batch, without the marker behind it."""
    return encode_batch([encode_record(encode(command)) for command in commands], checksum=checksum)


def write_file(directory: Path, file_id: int, batches: Iterable[bytes], *, preallocated: int = 0) -> Path:
    """Write a data file as a journal's writer does."""
    path = directory / data_file_name(file_id)
    content = b"".join(batches) + EOF_MARKER
    path.write_bytes(content.ljust(preallocated, b"\0"))
    return path


def append(path: Path, addition: bytes) -> None:
    """Write a batch over a file's EOF marker, and another marker behind it."""
    content = path.read_bytes()
    end = content.index(EOF_MARKER)
    whole = content[:end] + addition + EOF_MARKER
    with path.open("r+b") as stream:
        stream.write(whole)
