"""Lists the records of a journal in file order, with the damaged stretches between them.

Records rescued from a damaged stretch are listed too, and marked: recovery skips them.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, assert_never

from pybroker.broker.domain.destination import Destination, matches
from pybroker.broker.domain.errors import MalformedData
from pybroker.broker.domain.openwire.objects import decode_subscription_info
from pybroker.store.journal.commands import (
    AckMessageFileMap,
    AddMessage,
    AddScheduledJob,
    Command,
    CommandType,
    Commit,
    DestroyScheduler,
    Prepare,
    ProducerAudit,
    RemoveDestination,
    RemoveMessage,
    RemoveScheduledJob,
    RemoveScheduledJobs,
    RescheduleJob,
    RewrittenDataFile,
    Rollback,
    Subscribe,
    Trace,
    Unsubscribe,
    UpdateMessage,
    decode,
)
from pybroker.store.journal.format import Location
from pybroker.store.journal.tools.journal_snapshot import JournalSnapshot, Progress
from pybroker.store.journal.tools.scan import Gap, Record, RecordIntegrity
from pybroker.store.journal.tools.stored_message_json import message_as_json

_KINDS = {
    CommandType.ADD_MESSAGE: "message",
    CommandType.UPDATE_MESSAGE: "message",
    CommandType.REMOVE_MESSAGE: "acknowledgement",
    CommandType.SUBSCRIPTION: "subscription",
    CommandType.PREPARE: "transaction",
    CommandType.COMMIT: "transaction",
    CommandType.ROLLBACK: "transaction",
    CommandType.REMOVE_DESTINATION: "destination",
    CommandType.ADD_SCHEDULED_JOB: "scheduled",
    CommandType.RESCHEDULE_JOB: "scheduled",
    CommandType.REMOVE_SCHEDULED_JOB: "scheduled",
    CommandType.REMOVE_SCHEDULED_JOBS: "scheduled",
    CommandType.DESTROY_SCHEDULER: "scheduled",
}
"""Kinds of commands; all others are the journal's metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedRecord:
    """A record.

    Attributes:
        location: its location.
        size: its bytes, header included.
        type: its command's type by name, or `TYPE 17` for one that is unknown.
        kind: the kind of its command.
        integrity: how far it can be trusted.
        destination: its destination, if it has just one.
        message_id: likewise.
        transaction: likewise.
        subscription: the key of a durable subscription.
        text: of a `Trace`.
        problem: the reason why nothing else is known of it.
        details: its other fields, by name.
        message: with bodies, the message in it, see `message_as_json`.
    """

    location: Location
    size: int
    type: str
    kind: str
    integrity: RecordIntegrity
    destination: Destination | None = None
    message_id: str | None = None
    transaction: str | None = None
    subscription: str | None = None
    text: str | None = None
    problem: str | None = None
    details: dict[str, Any] = field(default_factory=dict[str, Any])
    message: dict[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as an object for JSON, without the fields it does not have."""
        optional = {
            "destination": None if self.destination is None else str(self.destination),
            "message_id": self.message_id,
            "transaction": self.transaction,
            "subscription": self.subscription,
            "text": self.text,
            "problem": self.problem,
        }
        return {
            "kind": self.kind,
            "record": self.type,
            "file": self.location.file_id,
            "offset": self.location.offset,
            "size": self.size,
            **({} if self.integrity is RecordIntegrity.SOUND else {"integrity": self.integrity.value}),
            **{name: value for name, value in optional.items() if value is not None},
            **self.details,
            **(self.message or {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedGap:
    """A damaged stretch.

    Attributes:
        gap: the scan's result.
        is_damage: False for a torn tail: the last write may have been interrupted there.
    """

    gap: Gap
    is_damage: bool

    def as_json(self) -> dict[str, Any]:
        """Return it as an object for JSON."""
        file_id, offset, length, reason, _ = self.gap.damage
        kind = "damage" if self.is_damage else "torn tail"
        return {"kind": kind, "file": file_id, "offset": offset, "size": length, "problem": reason}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFilter:
    """Selects the records to list; fields that are None or empty select all.

    Attributes:
        destinations: those about one of these; patterns are fine. A name of no type is of any.
        types: those of one of these types.
        file_ids: those in one of these files.
        start: those from this location on.
        stop: those before this location.
    """

    destinations: Collection[Destination | str] = ()
    types: Collection[CommandType] = ()
    file_ids: Collection[int] = ()
    start: Location | None = None
    stop: Location | None = None

    def has_file(self, file_id: int) -> bool:
        """Return True if records of a file may match."""
        return (
            (not self.file_ids or file_id in self.file_ids)
            and (self.start is None or self.start.file_id <= file_id)
            and (self.stop is None or file_id <= self.stop.file_id)
        )

    def has_place(self, location: Location) -> bool:
        """Return True if a record at this location may match."""
        return (self.start is None or self.start <= location) and (self.stop is None or location < self.stop)

    def has(self, record: DumpedRecord) -> bool:
        """Return True if a record's fields match."""
        return not self.destinations or any(_is_about(record.destination, each) for each in self.destinations)


def dump(
    snapshot: JournalSnapshot,
    wanted: RecordFilter | None = None,
    *,
    bodies: bool = False,
    progress: Progress | None = None,
) -> Iterator[DumpedRecord | DumpedGap]:
    """Yield records in journal order, and damaged stretches where they lie.

    Args:
        snapshot: the data files.
        wanted: which records; None for all.
        bodies: decode the messages in them.
        progress: receives the progress.

    Raises:
        StoreUnavailable: a file cannot be read.
    """
    wanted = wanted or RecordFilter()
    codes = {int(kind) for kind in wanted.types}
    done = 0
    for file in snapshot.files.values():
        if wanted.has_file(file.file_id):
            for item in snapshot.scan(file.file_id):
                if isinstance(item, Gap):
                    if wanted.has_place(Location(item.damage.file_id, item.damage.offset)):
                        yield DumpedGap(gap=item, is_damage=not item.is_torn)
                elif wanted.has_place(item.location) and (not codes or item.payload[0] in codes):
                    record = dumped(item, bodies=bodies)
                    if wanted.has(record):
                        yield record
        done += file.size
        if progress is not None:
            progress(done, snapshot.size)


def dumped(record: Record, *, bodies: bool = False) -> DumpedRecord:
    """Return a record's description."""
    kind = record.payload[0] if record.payload else -1
    known = CommandType(kind) if 0 <= kind < len(CommandType) else None
    problem: str | None = None
    about: dict[str, Any] = {}
    try:
        about = _about(decode(record.payload), bodies)
    except MalformedData as error:
        problem = str(error)
    return DumpedRecord(
        location=record.location,
        size=record.size,
        type=f"TYPE {kind}" if known is None else known.name,
        kind="journal" if known is None else _KINDS.get(known, "journal"),
        integrity=record.integrity,
        problem=problem,
        **about,
    )


def _about(command: Command, bodies: bool) -> dict[str, Any]:
    # One flat table with a line or two per command: it reads better whole.
    match command:
        case AddMessage():
            return _about_message(command, bodies)
        case UpdateMessage(message):
            return _about_message(message, bodies)
        case RemoveMessage(destination, message_id, ack, key, transaction):
            return {
                "destination": destination,
                "message_id": message_id,
                "subscription": key,
                "transaction": None if transaction is None else str(transaction),
                "details": {} if ack is None else {"ack_bytes": len(ack)},
            }
        case Prepare(transaction) | Commit(transaction) | Rollback(transaction):
            return {"transaction": str(transaction)}
        case RemoveDestination(destination):
            return {"destination": destination}
        case Subscribe(destination, key, info, retroactive):
            terms = decode_subscription_info(info)
            details = {
                "made": True,
                "client_id": terms.client_id,
                "name": terms.name,
                "selector": terms.selector,
                "subscribed_destination": str(terms.subscribed_destination),
                "retroactive": retroactive,
            }
            return {"destination": destination, "subscription": key, "details": details}
        case Unsubscribe(destination, key):
            return {"destination": destination, "subscription": key, "details": {"made": False}}
        case Trace(text):
            return {"text": text}
        case ProducerAudit(data) | AckMessageFileMap(data):
            return {"details": {"bytes": len(data)}}
        case RewrittenDataFile(source_file_id, _, skip):
            return {"details": {"source_file": source_file_id, "skip_if_source_exists": skip}}
        case AddScheduledJob():
            details = {name: value for name, value in command._asdict().items() if name != "payload"}
            details["bytes"] = len(command.payload)
            return {"details": details, "message": message_as_json(command.payload) if bodies else None}
        case RescheduleJob() | RemoveScheduledJob() | RemoveScheduledJobs() | DestroyScheduler():
            return {"details": command._asdict()}
    assert_never(command)


def _about_message(command: AddMessage, bodies: bool) -> dict[str, Any]:
    return {
        "destination": command.destination,
        "message_id": command.message_id,
        "transaction": None if command.transaction is None else str(command.transaction),
        "details": {"bytes": len(command.data), "priority": command.priority},
        "message": message_as_json(command.data) if bodies else None,
    }


def _is_about(destination: Destination | None, wanted: Destination | str) -> bool:
    if destination is None:
        return False
    if isinstance(wanted, Destination):
        return destination.type is wanted.type and matches(wanted.name, destination.name)
    return matches(wanted, destination.name)
