"""The plan of a follower's catch-up: what it does with its data files so that they become a beginning of the master's.

| the master's file            | the follower's file                           | action                             |
|------------------------------|-----------------------------------------------|------------------------------------|
| there                        | the same length and checksum                  | KEEP                               |
| there                        | missing                                       | FETCH from 0                       |
| there                        | shorter, the master's beginning has its CRC   | FETCH from its end                 |
| there                        | longer, its beginning has the master's CRC    | CUT, and keep what is cut off      |
| there                        | anything else                                 | REPLACE as a whole, and keep it    |
| missing                      | below a file that both have                   | REMOVE: it was collected           |
| missing                      | of the master's term, below its newest        | REMOVE: it was collected           |
| missing                      | anything else                                 | DROP, and keep it                  |

A file that is missing in the master was collected, or is a former master's that was never confirmed. Both hold for a
file behind the last common one. Below that one both have the same history, so the file was collected. So it was if its
number was first used in this master's term: the follower has it from this master, whose file is gone.

A plan that only appends to what the follower has leaves a store at each moment that is a beginning of the master's. The
others pass through states that are not, in which the follower must not become the master; see `is_orderly`.

Source: specification of replication, 4.3.
"""

import enum
import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from pybroker.broker.domain.replica.manifest import (
    COUNT,
    MANIFEST_FILES_MAX,
    MalformedFrame,
    Manifest,
    as_journal,
    entries,
)
from pybroker.broker.domain.replica.operations import Journal

_ENTRY: Final = struct.Struct(">BIBII")
_ENTRIES_MAX: Final = 2 * MANIFEST_FILES_MAX
PLAN_BYTES_MAX: Final = COUNT.size + _ENTRIES_MAX * _ENTRY.size


class PlanAction(enum.IntEnum):
    """The action for one data file. The numbers are those of the stream."""

    KEEP = 0
    FETCH = 1
    CUT = 2
    REPLACE = 3
    REMOVE = 4
    DROP = 5


class PlanEntry(NamedTuple):
    """The plan for one data file.

    Attributes:
        journal: its journal.
        file_id: its number.
        action: the action.
        length: bytes that the follower has afterwards, before anything is fetched: where FETCH goes on, where CUT ends.
        total: bytes of the master's logical contents when the plan was made; 0 if it has none.
    """

    journal: Journal
    file_id: int
    action: PlanAction
    length: int
    total: int


Place = tuple[Journal, int]
Prefix = tuple[Journal, int, int]
"""A journal, the number of a data file, and the length of its beginning."""


class WantedPrefixes(NamedTuple):
    """The beginnings of files whose checksums decide a plan.

    Attributes:
        of_master: those of the master's files, which are longer.
        of_follower: those of the follower's files, which are longer.
    """

    of_master: Sequence[Prefix]
    of_follower: Sequence[Prefix]


def wanted_prefixes(master: Manifest, follower: Manifest) -> WantedPrefixes:
    """Return the beginnings whose checksums `make_plan` needs."""
    theirs = {(each.journal, each.file_id): each.length for each in follower}
    of_master: list[Prefix] = []
    of_follower: list[Prefix] = []
    for journal, file_id, length, _ in master:
        found = theirs.get((journal, file_id), 0)
        if 0 < found < length:
            of_master.append((journal, file_id, found))
        elif 0 < length < found:
            of_follower.append((journal, file_id, length))
    return WantedPrefixes(of_master, of_follower)


def make_plan(
    master: Manifest,
    follower: Manifest,
    of_master: Mapping[Prefix, int],
    of_follower: Mapping[Prefix, int],
    first_files: Mapping[Journal, int] | None = None,
) -> Sequence[PlanEntry]:
    """Return the plan, an entry for each file that one of the two has, in ascending order.

    Args:
        master: the master's files.
        follower: the follower's.
        of_master: checksums of beginnings of the master's files, see `wanted_prefixes`.
        of_follower: checksums of beginnings of the follower's.
        first_files: the first number of the master's term, for each journal that it is known of.
    """
    theirs = {(each.journal, each.file_id): each for each in follower}
    newest = {each.journal: each.file_id for each in master}
    plan: list[PlanEntry] = []
    common: dict[Journal, int] = {}
    """The last file of each journal whose contents in the one are a beginning of those in the other."""
    for journal, file_id, length, crc in master:
        found = theirs.pop((journal, file_id), None)
        if found is None:
            action, start = PlanAction.FETCH, 0
        elif found.length == length:
            action, start = (PlanAction.KEEP, length) if found.crc == crc else (PlanAction.REPLACE, 0)
        elif found.length < length:
            prefix = (journal, file_id, found.length)
            is_beginning = found.length == 0 or of_master.get(prefix) == found.crc
            action, start = (PlanAction.FETCH, found.length) if is_beginning else (PlanAction.REPLACE, 0)
        else:
            is_beginning = length == 0 or of_follower.get((journal, file_id, length)) == crc
            action, start = (PlanAction.CUT, length) if is_beginning else (PlanAction.REPLACE, 0)
        if found is not None and action is not PlanAction.REPLACE:
            common[journal] = file_id
        plan.append(PlanEntry(journal, file_id, action, start, length))
    for journal, file_id in theirs:
        first = (first_files or {}).get(journal, file_id + 1)
        is_collected = file_id < common.get(journal, 0) or first <= file_id < newest.get(journal, 0)
        action = PlanAction.REMOVE if is_collected else PlanAction.DROP
        plan.append(PlanEntry(journal, file_id, action, 0, 0))
    return sorted(plan)


def is_orderly(plan: Sequence[PlanEntry]) -> bool:
    """Return True if the follower's store is at each moment of the plan one that it may become master with.

    So it is when bytes are only appended behind the journal's last file, when only that file is cut, or when files are
    removed in ascending order: the acknowledgements of a file's messages are in it or in later ones. It is not when an
    older file has to be fetched or replaced, or when files behind the last common one go.
    """
    newest: dict[Journal, int] = {}
    for entry in plan:
        if entry.action in (PlanAction.REPLACE, PlanAction.DROP):
            return False
        if entry.action is not PlanAction.FETCH or entry.length > 0:
            newest[entry.journal] = entry.file_id
    for entry in plan:
        last = newest.get(entry.journal, 0)
        if entry.action in (PlanAction.FETCH, PlanAction.CUT) and entry.file_id < last:
            return False
    return True


def left_bytes(plan: Sequence[PlanEntry]) -> int:
    """Return how many bytes have to be fetched."""
    return sum(each.total - each.length for each in plan if each.action in (PlanAction.FETCH, PlanAction.REPLACE))


def encode_plan(plan: Sequence[PlanEntry]) -> bytes:
    """Return the plan's bytes: a count, and per entry journal, file, action, length and total."""
    return COUNT.pack(len(plan)) + b"".join(_ENTRY.pack(*each) for each in plan)


def decode_plan(data: bytes | memoryview) -> Sequence[PlanEntry]:
    """Return the plan that these bytes are.

    Raises:
        MalformedFrame: they are none.
    """
    plan: list[PlanEntry] = []
    for journal, file_id, action, length, total in entries(_ENTRY, data, _ENTRIES_MAX):
        try:
            known = PlanAction(action)
        except ValueError:
            raise MalformedFrame(f"there is no action {action} in a plan") from None
        entry = PlanEntry(as_journal(journal), file_id, known, length, total)
        if plan and plan[-1][:2] >= entry[:2]:
            raise MalformedFrame(f"data file {file_id} is out of order")
        plan.append(entry)
    return plan
