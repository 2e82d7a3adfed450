"""Explains why data files stay: for each one that cannot be deleted, the reasons and the remedy.

The decision is `cleanup`'s. A file is held by its contents (live messages, records of unfinished transactions, durable
subscriptions), because it is being written, or because it voids records of files that stay, as acknowledgements do. The
last runs along chains; the explanation follows them down to a file that is held for another reason:

```text
db-9: 40 acknowledgements for db-7    <- db-7: 12 acknowledgements for db-3    <- db-3: 1 message of
queue://ActiveMQ.DLQ
```
"""

import enum
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.reserved_queues import RESERVED_QUEUES
from pybroker.counted import inflected
from pybroker.store.journal.cleanup import compactable, needed_files, oldest_place, renewable, unreferenced
from pybroker.store.journal.collector import DAMAGED_DIRECTORY
from pybroker.store.journal.commands import (
    AckMessageFileMap,
    Command,
    ProducerAudit,
    RemoveMessage,
)
from pybroker.store.journal.contents import FILE_SHIFT
from pybroker.store.journal.format import data_file_name
from pybroker.store.journal.relocation import MOVED_SHARE
from pybroker.store.journal.tools.journal_snapshot import DataFile, JournalSnapshot, Progress
from pybroker.store.journal.tools.observed_replay import ObservedReplay, read_jobs
from pybroker.store.journal.tools.scan import Record
from pybroker.store.scheduler.state import JobState
from pybroker.store.scheduler.state import removable as removable_jobs

EXAMPLES_MAX = 3
"""Example ids per reason: the oldest."""
_ANSWERED_SHOWN_MAX = 20
"""Example files whose records a file voids."""
_RESERVED_NAMES = frozenset(map(str, RESERVED_QUEUES))


class Cause(enum.Enum):
    """Causes for which a data file is kept."""

    WRITTEN = "being written"
    MESSAGES = "messages"
    TRANSACTION = "transaction"
    SUBSCRIPTION = "subscription"
    ANSWERS = "acknowledgements"
    """It has acknowledgements, outcomes or ends of subscriptions that records of staying files need."""
    JOBS = "scheduled messages"
    METADATA = "metadata"
    """It has metadata that no other file has; it is written again before the file is removed."""
    ACTIVEMQ = "ActiveMQ only"
    """It holds no record that pybroker needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """A reason why a data file is kept.

    Attributes:
        cause: its kind.
        what: the reason, in words.
        count: how many messages, operations or acknowledgements.
        examples: ids, the oldest first.
        remedy: what to do.
        files: for ANSWERS, the staying files whose records it answers.
        because: for ANSWERS, the chain of files down to one that is held by something else.
    """

    cause: Cause
    what: str
    count: int = 0
    examples: tuple[str, ...] = ()
    remedy: str
    files: tuple[int, ...] = ()
    because: tuple[int, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return it as an object for JSON."""
        return {
            "cause": self.cause.value,
            "what": self.what,
            "count": self.count,
            "examples": list(self.examples),
            "remedy": self.remedy,
            **({"files": list(self.files), "because": list(self.because)} if self.files else {}),
        }


_WRITTEN = Reason(
    cause=Cause.WRITTEN,
    what="it is being written, or was written last",
    remedy="none: the next file is begun when it is full, or when a master starts",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedFile:
    """A data file.

    Attributes:
        file_id: its id.
        path: where it is.
        size: its bytes.
        is_held: it cannot be deleted.
        reasons: why it is held; for one that is not held, why other brokers keep it.
        note: its future, in words.
    """

    file_id: int
    path: str
    size: int
    is_held: bool
    reasons: tuple[Reason, ...]
    note: str

    def as_json(self) -> dict[str, Any]:
        """Return it as an object for JSON."""
        return {
            "kind": "file",
            "file": self.file_id,
            "path": self.path,
            "size": self.size,
            "held": self.is_held,
            "reasons": [reason.as_json() for reason in self.reasons],
            "note": self.note,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Every data file of a journal.

    Attributes:
        files: in ascending order.
        is_damaged: a part could not be read, so more may be held.
    """

    files: Sequence[ExplainedFile]
    is_damaged: bool


@dataclass(slots=True, kw_only=True)
class RetentionFacts:
    """The facts that decide which data files of a message journal stay; `explain` decides.

    Attributes:
        sizes: bytes by file.
        keep_from: the lowest file that may be written.
        own: per file the reasons in its contents; see `held_by_messages` and the like.
        references: per file those whose records it makes void.
        acks: per acknowledging and acknowledged file, how many acknowledgements, and the first message ids.
    """

    sizes: dict[int, int] = field(default_factory=dict[int, int])
    keep_from: int = 0
    own: defaultdict[int, list[Reason]] = field(default_factory=lambda: defaultdict[int, list[Reason]](list))
    references: dict[int, set[int]] = field(default_factory=dict[int, set[int]])
    acks: dict[tuple[int, int], tuple[int, list[str]]] = field(
        default_factory=dict[tuple[int, int], tuple[int, list[str]]]
    )


def explain(facts: RetentionFacts) -> dict[int, tuple[bool, list[Reason]]]:
    """Return each data file's reasons, and if it is held. Pure."""
    file_ids = set(facts.sizes)
    reasons = {file_id: list(facts.own.get(file_id, ())) for file_id in sorted(file_ids)}
    pinned = [file_id for file_id in file_ids if reasons[file_id]]
    held = file_ids.difference(unreferenced(facts.references, file_ids, facts.keep_from, pinned))
    for file_id in file_ids:
        if file_id >= facts.keep_from:
            reasons[file_id].insert(0, _WRITTEN)
    roots = {file_id for file_id in held if reasons[file_id]}
    for file_id in held:
        reasons[file_id] += _answers(facts, file_id, held, roots)
    return {file_id: (file_id in held, found) for file_id, found in reasons.items()}


def held_by_messages(
    destination: str, count: int, examples: Iterable[str], subscriptions: Iterable[str] = ()
) -> Reason:
    """Return the reason of a file with live messages, which on a topic wait for durable subscriptions.

    Those on reserved queues are records of the broker's, which no consumer can take.
    """
    remedy = f"look at them: pybroker browse {shlex.quote(destination)}; then let their consumer take them"
    if destination in _RESERVED_NAMES:
        remedy = f"none: pybroker writes them again when that frees {MOVED_SHARE} times their bytes"
    elif keys := _first(sorted(subscriptions)):
        remedy = f"let these durable subscriptions take them, or end them: {', '.join(keys)}"
    return Reason(
        cause=Cause.MESSAGES,
        what=f"{inflected(count, 'message')} of {destination}",
        count=count,
        examples=_first(examples),
        remedy=remedy,
    )


def held_by_transaction(transaction: str, count: int, examples: Iterable[str], *, is_prepared: bool) -> Reason:
    """Return the reason of a file with records of an unfinished transaction."""
    state, remedy = (
        ("is in doubt", "have the transaction manager commit it or roll it back")
        if is_prepared
        else ("is not ended", "have its client end it; a restart of the broker rolls it back")
    )
    return Reason(
        cause=Cause.TRANSACTION,
        what=f"{inflected(count, 'operation')} of {transaction}, which {state}",
        count=count,
        examples=_first(examples),
        remedy=remedy,
    )


def held_by_subscription(key: str, topic: str, pending: int) -> Reason:
    """Return the reason of a file with a record of a durable subscription that a replay needs."""
    subscription = f"durable subscription {key} to {topic}"
    return Reason(
        cause=Cause.SUBSCRIPTION,
        what=f"{inflected(pending, 'message')} pending for {subscription}" if pending else subscription,
        count=pending,
        remedy="let its client come and take its messages, or unsubscribe"
        if pending
        else "none: pybroker rewrites it when nothing else holds the file",
    )


def _answers(facts: RetentionFacts, file_id: int, held: set[int], roots: set[int]) -> Iterator[Reason]:
    """Yield the reason of a file that makes records of other held files void."""
    files = sorted(facts.references.get(file_id, set()) & held)
    if not files:
        return
    chain = _chain(facts.references, file_id, held, roots)
    acks = [facts.acks[file_id, other] for other in files if (file_id, other) in facts.acks]
    names = _names(files)
    root = data_file_name(chain[-1]) if chain else names
    count = sum(each for each, _ in acks)
    what = "acknowledgement, outcome or end" if count == 1 else "acknowledgements, outcomes or ends"
    yield Reason(
        cause=Cause.ANSWERS,
        what=f"{what} for records in {names}, which stay",
        count=count,
        examples=_first(message_id for _, examples in acks for message_id in examples),
        remedy=f"see {root}; pybroker shrinks such files over time, and `pybroker journal compact` at once",
        files=tuple(files),
        because=tuple(chain),
    )


def _chain(references: dict[int, set[int]], file_id: int, held: set[int], roots: set[int]) -> list[int]:
    """Return the shortest chain of references from a file to one that its own contents hold."""
    ways: dict[int, list[int]] = {file_id: []}
    queue = [file_id]
    for current in queue:
        if current in roots and current != file_id:
            return ways[current]
        for other in sorted(references.get(current, set()) & held):
            if other not in ways:
                ways[other] = [*ways[current], other]
                queue.append(other)
    return []


def why(snapshot: JournalSnapshot, *, progress: Progress | None = None) -> Explanation:
    """Explain the data files of a message journal.

    Raises:
        StoreUnavailable: a file cannot be read.
        JournalCorrupt: a newer version wrote it.
    """
    run = _Why(snapshot)
    run.run(progress)
    return Explanation(files=run.explained(), is_damaged=run.is_damaged)


def why_jobs(snapshot: JournalSnapshot) -> Explanation:
    """Explain the data files of a scheduler's journal; errors as `why`."""
    state = JobState()
    result = read_jobs(snapshot.directory, state, held_bytes_max=0)
    file_ids = set(snapshot.files)
    free = set(removable_jobs(state, file_ids, snapshot.last_file_id))
    files: list[ExplainedFile] = []
    for file in snapshot.files.values():
        reasons: list[Reason] = []
        if file.file_id == snapshot.last_file_id:
            reasons.append(_WRITTEN)
        if jobs := state.live.get(file.file_id):
            reasons.append(
                Reason(
                    cause=Cause.JOBS,
                    what=inflected(len(jobs), "scheduled message"),
                    count=len(jobs),
                    examples=_first(job.job_id for job in jobs),
                    remedy="none: they go with their time; repeated ones are written again now and then",
                )
            )
        answered = sorted(state.references.get(file.file_id, set()) & file_ids - free)
        if answered and file.file_id not in free:
            reasons.append(
                Reason(
                    cause=Cause.ANSWERS,
                    what=f"moves or ends of jobs in {_names(answered)}, which stay",
                    remedy=f"see {_names(answered)}",
                    files=tuple(answered),
                    because=tuple(answered[:1]),
                )
            )
        files.append(_explained(file, file.file_id not in free, reasons, ""))
    return Explanation(files=files, is_damaged=bool(result.damages))


def _explained(file: DataFile, is_held: bool, reasons: Sequence[Reason], note: str) -> ExplainedFile:
    return ExplainedFile(
        file_id=file.file_id,
        path=str(file.path),
        size=file.size,
        is_held=is_held,
        reasons=tuple(reasons),
        note=note or ("" if is_held else "goes at the next cleanup"),
    )


def _names(file_ids: Sequence[int]) -> str:
    return ", ".join(data_file_name(file_id) for file_id in file_ids[:_ANSWERED_SHOWN_MAX])


class _Why(ObservedReplay):
    """Counts a file's acknowledgements by the files of their messages, of which the state keeps only the files."""

    def __init__(self, snapshot: JournalSnapshot) -> None:
        super().__init__(snapshot)
        self._acks: dict[tuple[int, int], tuple[int, list[str]]] = {}
        self._audit_file_id = 0
        self._ack_map_file_id = 0
        self._lowest_writable = min(snapshot.writable)

    def met(self, record: Record, command: Command) -> None:
        """Record the file of an acknowledgement's message before it is removed."""
        file_id = record.location.file_id
        match command:
            case RemoveMessage(destination, message_id):
                contents = self.state.destinations.get(destination)
                packed = None if contents is None else contents.messages.get(message_id)
                if packed is not None and (made_in := packed >> FILE_SHIFT) != file_id:
                    count, examples = self._acks.get((file_id, made_in), (0, []))
                    if count < EXAMPLES_MAX:
                        examples.append(message_id)
                    self._acks[file_id, made_in] = count + 1, examples
            case ProducerAudit():
                self._audit_file_id = file_id
            case AckMessageFileMap():
                self._ack_map_file_id = file_id
            case _:
                pass

    def explained(self) -> list[ExplainedFile]:
        """Explain each file."""
        file_ids = set(self.snapshot.files)
        shrinkable = set(compactable(self.state, file_ids, self._lowest_writable))
        renewed = {
            self.state.destinations[each.destination].subscriptions[each.subscription_key].location.file_id
            for each in renewable(self.state, file_ids, self._lowest_writable)
        }
        explained = explain(self._facts())
        for file_id, (is_held, reasons) in explained.items():
            if not is_held:
                reasons += [*self._metadata(file_id), *self._activemq_reasons(file_id)]
        return [
            _explained(
                file,
                *explained[file.file_id],
                _note(
                    is_damaged=not explained[file.file_id][0] and file.file_id in self.damaged_file_ids,
                    is_renewed=file.file_id in renewed,
                    is_shrinkable=file.file_id in shrinkable,
                ),
            )
            for file in self.snapshot.files.values()
        ]

    # ------------------------------------------------------------ contents of files

    def _live(self) -> dict[int, dict[Destination, list[str]]]:
        """Return live messages by file and destination, in their order; older versions and duplicates included."""
        found: dict[int, dict[Destination, list[str]]] = {}
        for destination, contents in self.state.destinations.items():
            for message_id, packed in contents.messages.items():
                for file_id in (packed >> FILE_SHIFT, *contents.superseded.get(message_id, ())):
                    found.setdefault(file_id, {}).setdefault(destination, []).append(message_id)
        return found

    def _facts(self) -> RetentionFacts:
        facts = RetentionFacts(
            sizes={file.file_id: file.size for file in self.snapshot.files.values()},
            keep_from=self._lowest_writable,
            references=self.state.usage.references,
            acks=self._acks,
        )
        for file_id, live in self._live().items():
            for destination, message_ids in live.items():
                facts.own[file_id].append(self._live_messages(destination, message_ids))
        for transactions in (self.state.inflight, self.state.prepared):
            for transaction_id, transaction in transactions.items():
                reason = held_by_transaction(
                    str(transaction_id),
                    len(transaction.operations),
                    (operation.message_id for operation in transaction.operations),
                    is_prepared=transactions is self.state.prepared,
                )
                for file_id in transaction.files:
                    facts.own[file_id].append(reason)
        for topic, contents in self.state.destinations.items():
            oldest = oldest_place(contents)
            for key, subscription in contents.subscriptions.items():
                for file_id in needed_files(contents, subscription, oldest):
                    facts.own[file_id].append(held_by_subscription(key, str(topic), len(subscription.pending)))
        return facts

    def _live_messages(self, destination: Destination, message_ids: Sequence[str]) -> Reason:
        subscriptions = self.state.destinations[destination].subscriptions if destination.is_topic else {}
        waiting = [key for key, each in subscriptions.items() if not each.pending.isdisjoint(message_ids)]
        return held_by_messages(str(destination), len(message_ids), message_ids, waiting)

    # ------------------------------------------------------------ metadata

    def _metadata(self, file_id: int) -> Iterator[Reason]:
        """Yield the metadata that only a file has, and that is written again before the file is removed."""
        producers = self.state.sequences.recorded_in((file_id,))
        queues = [str(queue) for queue in self.state.declared.last_recorded_in((file_id,))]
        for names, one, several in (
            (list(producers), "producer's latest message", "producers' latest messages"),
            (queues, "queue kept while empty", "queues kept while empty"),
        ):
            if names:
                what = one if len(names) == 1 else several
                yield Reason(
                    cause=Cause.METADATA,
                    what=f"{what}, which it is the last to name",
                    count=len(names),
                    examples=_first(names),
                    remedy="none: it is written again before the file is removed",
                )

    def _activemq_reasons(self, file_id: int) -> Iterator[Reason]:
        for latest, what in (
            (self._audit_file_id, "the latest producer audit"),
            (self._ack_map_file_id, "the latest map of acknowledgements"),
        ):
            if file_id == latest:
                yield Reason(
                    cause=Cause.ACTIVEMQ,
                    what=f"{what}, which ActiveMQ keeps and pybroker does not need",
                    remedy="none: ActiveMQ writes it again now and then",
                )


def _note(*, is_damaged: bool, is_renewed: bool, is_shrinkable: bool) -> str:
    if is_damaged:
        return f"moves to {DAMAGED_DIRECTORY} at the next cleanup, since it is damaged"
    if is_renewed:
        return "goes once its idle subscriptions are written again, which the next cleanup does"
    if is_shrinkable:
        return "stays for its acknowledgements alone; is compacted when nothing else can be freed"
    return ""


def _first(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(islice(names, EXAMPLES_MAX))
