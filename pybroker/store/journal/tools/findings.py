"""Findings of a check: place, damage, effect on each broker, and remedy.

The effect on ActiveMQ depends on the place of the damage. It verifies the file that it wrote last, when it starts. Of
other files it sees what it reads: all of them, record after record, when it has to rebuild its index; nothing before a
message is loaded, while it has one.

| damage in a file that is not the last       | ActiveMQ, rebuilding its index             |
|---------------------------------------------|--------------------------------------------|
| in a payload                                | delivers the changed message               |
| in a record's header or protobuf            | refuses to start                           |
| in the control record's first 16 bytes      | refuses to start                           |
| zeros where a batch should begin            | loses the rest of the file, without a word |
| the file ends inside a batch                | refuses to start                           |
| in a batch's length or checksum             | notices and loses nothing                  |

Source: experiments with ActiveMQ 5.17 and its defaults: no `checkForCorruptJournalFiles`.
"""

import enum
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any

from pybroker.counted import counted
from pybroker.store.journal.commands import (
    AddMessage,
    CommandType,
    RemoveMessage,
    UpdateMessage,
    decode,
)
from pybroker.store.journal.format import BATCH_MAGIC, data_file_name
from pybroker.store.journal.tools.scan import Gap, Record, RecordIntegrity

EXAMPLES_MAX = 3
"""Ids that a finding names."""


class Level(enum.Enum):
    """How bad a finding is. Only damage makes a store unsound."""

    DAMAGE = "damage"
    """Bytes are not what was written, or records are gone."""
    HAZARD = "hazard"
    """All bytes are as they were written, but a broker would lose, revive or refuse something."""
    NOTICE = "notice"
    """Good to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A finding of a check.

    Attributes:
        level: how bad it is.
        kind: a short name, for programs.
        path: the data file, or the directory.
        offset: its offset there; None for a finding without a single place.
        length: how many bytes; None likewise.
        what: the finding, in words.
        activemq: what ActiveMQ does about it.
        pybroker: what pybroker does about it.
        remedy: what to do.
    """

    level: Level
    kind: str
    path: str
    offset: int | None = None
    length: int | None = None
    what: str
    activemq: str
    pybroker: str
    remedy: str

    def as_json(self) -> dict[str, Any]:
        """Return it as an object for JSON."""
        return {
            "kind": "finding",
            "level": self.level.value,
            "finding": self.kind,
            "path": self.path,
            "offset": self.offset,
            "length": self.length,
            "what": self.what,
            "activemq": self.activemq,
            "pybroker": self.pybroker,
            "remedy": self.remedy,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DamageContext:
    """Facts that decide the consequences of damage.

    Attributes:
        path: the data file.
        is_last: it has the highest id.
        is_in_use: a master holds the store's lock.
        has_index: ActiveMQ's index is there.
        records_behind: count of sound records that follow in the file.
        consumed: of the rescued messages, those that were acknowledged later.
    """

    path: str
    is_last: bool
    is_in_use: bool
    has_index: bool
    records_behind: int
    consumed: frozenset[str] = frozenset()


NOTHING = "nothing"
SALVAGE = "`pybroker journal salvage`"


def complete_until(adding: Collection[int]) -> int:
    """Return the data file up to which no message can be missing: files 1 to this one all add messages.

    A file without any message may have been compacted in place, and its messages meant to be gone.
    """
    return next(file_id for file_id in count(1) if file_id not in adding) - 1


def unfinished_transaction(
    path: str,
    transaction: str,
    *,
    offset: int = 0,
    added: int,
    removed: int,
    file_ids: Iterable[int],
    is_prepared: bool,
    is_in_use: bool = False,
) -> Finding:
    """Describe a transaction that is neither committed nor rolled back by the journal's end."""
    if is_prepared:
        state = "is prepared, and waits for its coordinator"
        remedy = "have the transaction manager commit or roll it back; it finds it by XA recover"
    else:
        state = "is under way" if is_in_use else "was never ended; it is rolled back at the next start"
        remedy = "none is needed"
    names = ", ".join(data_file_name(file_id) for file_id in sorted(file_ids))
    return Finding(
        level=Level.NOTICE,
        kind="in doubt" if is_prepared else "unfinished transaction",
        path=path,
        offset=offset,
        what=f"{transaction} {state}: {counted(added, 'message')}, {counted(removed, 'acknowledgement')} in {names}",
        activemq="the same",
        pybroker="the same",
        remedy=remedy,
    )


def damaged_stretch(gap: Gap, where: DamageContext) -> Finding:
    """Return the finding about a damaged stretch."""
    if gap.is_torn:
        return _torn_tail(gap, where)
    damage = gap.damage
    return Finding(
        level=Level.DAMAGE,
        kind="damaged batch",
        path=where.path,
        offset=damage.offset,
        length=damage.length,
        what=f"{damage.reason}; in it {_contents(gap, where.consumed)}",
        activemq=_activemq(gap, where),
        pybroker="skips these bytes and goes on at the next sound batch; logs them as damaged",
        remedy=_remedy(gap),
    )


def _torn_tail(gap: Gap, where: DamageContext) -> Finding:
    damage = gap.damage
    if where.is_in_use:
        kind, explanation = "being written", "the master is writing here"
        activemq = pybroker = NOTHING
    else:
        kind, explanation = "torn tail", "the last write was cut short; nothing in it was acknowledged"
        activemq = "drops it and writes over it; refuses to start with checkForCorruptJournalFiles alone"
        pybroker = "drops it, and cuts the file there"
    return Finding(
        level=Level.NOTICE,
        kind=kind,
        path=where.path,
        offset=damage.offset,
        length=damage.length,
        what=f"{damage.reason}: {explanation}",
        activemq=activemq,
        pybroker=pybroker,
        remedy="none is needed",
    )


def _activemq(gap: Gap, where: DamageContext) -> str:
    if where.is_last:
        return "drops the batch with a warning; refuses to start with checkForCorruptJournalFiles alone"
    does = _on_rebuild(gap, where.records_behind)
    if where.has_index:
        return f"notices nothing until it loads a message from here, and then stops; without its index it {does}"
    return does


def _on_rebuild(gap: Gap, records_behind: int) -> str:
    if not gap.beginning[:5].strip(b"\0"):
        return f"silently loses the rest of this file, {counted(records_behind, 'sound record')} behind this"
    if _is_cut(gap) or not gap.beginning.startswith(BATCH_MAGIC):
        return "refuses to start"
    if gap.lost_bytes:
        return "refuses to start, or delivers what is left of the records as it is"
    if all(record.integrity is RecordIntegrity.PROVEN for record in gap.rescued):
        return "notices nothing, and loses nothing"
    return "silently takes these records as they are, changed bytes included"


def _is_cut(gap: Gap) -> bool:
    """Return True if the file ends inside the batch."""
    return gap.damage.at_end and gap.damage.reason.startswith("the file ends")


def _remedy(gap: Gap) -> str:
    copy = "put a copy of the file from a backup in its place"
    if not gap.rescued:
        return f"{copy}; nothing can be rescued from here"
    proven = all(record.integrity is RecordIntegrity.PROVEN for record in gap.rescued)
    doubt = "" if proven else ", whose contents are not proven"
    return f"{copy}, or let {SALVAGE} rescue {counted(len(gap.rescued), 'record')}{doubt}"


def _contents(gap: Gap, consumed: frozenset[str]) -> str:
    """Describe the readable records of a stretch, and which of them are consumed already."""
    if not gap.rescued:
        return "nothing is readable"
    parts = [described(gap.rescued)]
    gone = [message_id for message_id in message_ids(gap.rescued) if message_id in consumed]
    if gone:
        parts.append(f"of the messages {len(gone)} had been consumed")
    if gap.lost_bytes:
        parts.append(f"{counted(gap.lost_bytes, 'byte')} unreadable")
    return ", ".join(parts)


def described(records: Iterable[Record]) -> str:
    """Return a count of records by type, with the first ids of messages."""
    records = list(records)
    counts = Counter(CommandType(record.payload[0]) for record in records)
    texts = [f"{count} x {kind.name}" for kind, count in sorted(counts.items())]
    ids = message_ids(records)[:EXAMPLES_MAX]
    return ", ".join(texts) + (f" ({', '.join(ids)}{', …' if len(records) > len(ids) else ''})" if ids else "")


def message_ids(records: Iterable[Record]) -> list[str]:
    """Return the ids of the messages that records add, update or remove."""
    found: list[str] = []
    for record in records:
        command = decode(record.payload)
        if isinstance(command, UpdateMessage):
            command = command.message
        if isinstance(command, AddMessage | RemoveMessage):
            found.append(command.message_id)
    return found
