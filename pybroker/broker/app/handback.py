"""`pybroker handback`: judges if an ActiveMQ can take a store over, and what its activemq.xml has to say for that.

The facts are gathered by `handback_examination` and `handback_database`; nothing here looks at anything itself.
"""

import enum
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pybroker.broker.app.activemq_target import FRAME_BYTES, OPENWIRE_STORED, ActiveMQVersion, BrokerElement
from pybroker.counted import counted, inflected
from pybroker.store.journal.tools.findings import NOTHING, Finding, Level

NO_REMEDY: Final = "none is needed"
"""The remedy of a finding that needs none."""

_NAMES_MAX: Final = 3
"""Names that a finding lists."""

_MIB: Final = 1 << 20
_FRAME_REST_BYTES: Final = 64 << 10
"""A frame that delivers a message has that much more than the stored message, at most."""

_COVERED: Final = frozenset(("in doubt", "leftovers"))
"""Findings of a check of the journal for which there are others here."""

_COMPACT: Final = "`pybroker journal compact`, which leaves ActiveMQ what pybroker would deliver"
_DECIDE: Final = (
    "while a pybroker is master, have the transaction manager decide them, or do so by `pybroker commit` or `rollback`"
)
_REMEDIES: Final = {
    "updates": _COMPACT,
    "late acknowledgements": _COMPACT,
    "skipped file": _COMPACT,
}
"""Remedies for hazards of a journal that is about to be read by ActiveMQ without an index."""


class Urgency(enum.Enum):
    """When a finding has to be dealt with."""

    TODO = "to do"
    """A step before ActiveMQ is started. Without it ActiveMQ fails to start, or loses or repeats messages."""
    SETTING = "setting"
    """An attribute to set in activemq.xml; the report prints the lines."""
    NOTE = "note"
    """Information; no step is needed."""


class Readiness(enum.IntEnum):
    """Exit codes of `pybroker handback`, for scripts."""

    READY = 0
    TODO = 1
    ERROR = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class HandbackFinding:
    """One finding.

    Attributes:
        urgency: when it has to be dealt with.
        kind: a short name, for programs and for `--accept`.
        what: what was found.
        activemq: what ActiveMQ does about it.
        remedy: what to do.
    """

    urgency: Urgency
    kind: str
    what: str
    activemq: str = NOTHING
    remedy: str = NO_REMEDY

    def as_json(self) -> dict[str, Any]:
        """Return it as an object for JSON."""
        return asdict(self) | {"urgency": self.urgency.value}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreContents:
    """Counts and properties of a store's contents that ActiveMQ must support.

    Attributes:
        messages: on queues, and on topics for durable subscriptions.
        largest_bytes: the largest message's size, as it is stored.
        subscriptions: durable subscriptions, one for each topic that one covers.
        owned: those of them whose user is known.
        refused: those whose selector ActiveMQ refuses, each as `CLIENT:NAME (SELECTOR)`.
        has_priorities: queues deliver by priority.
        in_doubt: prepared transactions.
        scheduling: messages of committed transactions that are about to be scheduled.
        scheduling_in_doubt: such messages of prepared transactions.
        empty_queues: queues that are kept while they are empty.
    """

    messages: int = 0
    largest_bytes: int = 0
    subscriptions: int = 0
    owned: int = 0
    refused: Sequence[str] = ()
    has_priorities: bool = False
    in_doubt: Sequence[str] = ()
    scheduling: int = 0
    scheduling_in_doubt: int = 0
    empty_queues: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalFacts:
    """The facts about a store in a directory.

    Attributes:
        root: the directory.
        journal: the directory of its journal.
        findings: of the check of its journals.
        records: of the journal of messages, by type.
        scheduler: the directory in which pybroker keeps scheduled messages.
        jobs: numbers of scheduled messages by directory, also of directories that pybroker does not serve.
        stale_indexes: files of an index that ActiveMQ made, and that the journal has left behind.
        own_indexes: files of an index that ActiveMQ made, and that is the journal's.
        own_files: pybroker's files and directories beside the journals.
        is_excluded: an ActiveMQ is excluded by the lock of the members that were here.
        foreign_owner: the user to whom files belong that the user of ActiveMQ cannot write; empty: there are none.
        activemq_user: the user that ActiveMQ runs as, if that is known.
        attributes: attributes of `kahaDB` that follow from the settings.
    """

    root: Path
    journal: Path
    findings: Sequence[Finding] = ()
    records: Mapping[str, int] = field(default_factory=dict[str, int])
    scheduler: Path
    jobs: Mapping[Path, int] = field(default_factory=dict[Path, int])
    stale_indexes: Sequence[Path] = ()
    own_indexes: Sequence[Path] = ()
    own_files: Sequence[Path] = ()
    is_excluded: bool = True
    foreign_owner: str = ""
    activemq_user: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFacts:
    """The facts about a store in a database.

    Attributes:
        name: the database, `HOST:PORT/NAME`.
        jobs: scheduled messages, which are in a table of pybroker's.
        apart: acknowledgements of durable subscriptions ahead of the number that ActiveMQ keeps.
        unmarked: prepared transactions that no row of ActiveMQ's tables names.
        no_local: durable subscriptions with `noLocal`.
        own_tables: pybroker's tables.
        has_priority_key: `activemq_acks` takes a row for each priority.
        lock: the setting `lock`.
        lease_ms: the length of its lease, in milliseconds.
        scheduler: the directory of scheduled messages that were written into files; None: none were.
        exported_jobs: the number of these.
    """

    name: str
    jobs: int = 0
    apart: int = 0
    unmarked: int = 0
    no_local: int = 0
    own_tables: Sequence[str] = ()
    has_priority_key: bool = True
    lock: str = "postgres-row"
    lease_ms: int = 0
    scheduler: Path | None = None
    exported_jobs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HandbackFacts:
    """The facts about a store.

    Attributes:
        store: its name, without secrets.
        broker_name: the broker's name that is kept with the store.
        target: the ActiveMQ that is to open it.
        contents: what it holds.
        place: the facts about the directory or the database.
        is_in_use: members may have changed the store since.
    """

    store: str
    broker_name: str
    target: ActiveMQVersion
    contents: StoreContents
    place: JournalFacts | DatabaseFacts
    is_in_use: bool = False


def judge(facts: HandbackFacts, accepted: Collection[str] = ()) -> list[HandbackFinding]:
    """Return what there is to do and to know, the most urgent first; accepted kinds are only good to know."""
    place = facts.place
    findings = [
        *_of_target(facts),
        *_of_contents(facts),
        *(_of_directory(place) if isinstance(place, JournalFacts) else _of_database(place, facts.contents)),
    ]
    findings = [replace(each, urgency=Urgency.NOTE) if each.kind in accepted else each for each in findings]
    order = list(Urgency)
    return sorted(findings, key=lambda finding: order.index(finding.urgency))


def readiness(findings: Collection[HandbackFinding]) -> Readiness:
    """Return the exit code for findings."""
    return Readiness.TODO if any(each.urgency is Urgency.TODO for each in findings) else Readiness.READY


def element(facts: HandbackFacts) -> BrokerElement:
    """Return what activemq.xml has to say."""
    contents, place = facts.contents, facts.place

    common = BrokerElement(
        broker_name=facts.broker_name,
        is_prioritized=contents.has_priorities,
        frame_bytes=_frame_bytes(contents),
    )
    if isinstance(place, DatabaseFacts):
        return replace(
            common,
            database=place.name,
            has_lease=place.lock == "postgres-lease",
            lease_ms=place.lease_ms,
            scheduler=place.scheduler,
        )
    return replace(
        common,
        journal=place.journal,
        journal_attributes=place.attributes,
        scheduler=_served(place),
        queues=contents.empty_queues,
    )


def commands(facts: HandbackFacts) -> list[str]:
    """Return the commands that hand the store over, in their order."""
    place = facts.place
    lines: list[str] = []
    if isinstance(place, JournalFacts) and place.foreign_owner:
        directories = " ".join(str(each) for each in dict.fromkeys((place.journal, _served(place) or place.journal)))
        lines.append(f"chown -R {place.activemq_user}: {directories}")
    return [*lines, "bin/activemq console xbean:file:/etc/activemq/activemq.xml"]


def _todo(kind: str, what: str, activemq: str, remedy: str) -> HandbackFinding:
    return HandbackFinding(urgency=Urgency.TODO, kind=kind, what=what, activemq=activemq, remedy=remedy)


def _setting(kind: str, what: str, activemq: str, remedy: str) -> HandbackFinding:
    return HandbackFinding(urgency=Urgency.SETTING, kind=kind, what=what, activemq=activemq, remedy=remedy)


def _note(kind: str, what: str, activemq: str = NOTHING, remedy: str = NO_REMEDY) -> HandbackFinding:
    return HandbackFinding(urgency=Urgency.NOTE, kind=kind, what=what, activemq=activemq, remedy=remedy)


def _frame_bytes(contents: StoreContents) -> int:
    """Return the limit of a frame that the largest message needs, in whole MiB; 0: ActiveMQ's own is enough."""
    needed = contents.largest_bytes + _FRAME_REST_BYTES
    return (needed + _MIB - 1) // _MIB * _MIB if needed > FRAME_BYTES else 0


def _named(names: Collection[str]) -> str:
    shown = list(names)[:_NAMES_MAX]
    return ", ".join(shown) + (", …" if len(names) > len(shown) else "")


# ---------------------------------------------------------------- both kinds of store


def _of_target(facts: HandbackFacts) -> Iterator[HandbackFinding]:
    target = facts.target
    reads = f"reads messages in OpenWire {OPENWIRE_STORED}, as they are stored here"
    if target.tried:
        yield _note("version", f"ActiveMQ {target.tried} has opened stores of pybroker in its tests", reads)
    else:
        yield _note(
            "version",
            f"no ActiveMQ {target.name} has opened a store of pybroker in its tests",
            f"by its sources it {reads}",
            "try it on a copy of the store first",
        )
    if facts.is_in_use:
        yield _note(
            "in use",
            "members may use the store: this is what it held just now",
            "waits for the lock, as the slave",
            "stop all members, and run it again without --in-use; or go on at once, if there is nothing to do",
        )


def _of_contents(facts: HandbackFacts) -> Iterator[HandbackFinding]:
    contents = facts.contents
    if contents.in_doubt:
        count = len(contents.in_doubt)
        yield _note(
            "in doubt",
            f"{counted(count, 'transaction')} {'is' if count == 1 else 'are'} prepared: {_named(contents.in_doubt)}",
            "recovers them: the transaction manager finds them by XA recover, and commits or rolls back",
        )
    if contents.scheduling:
        yield _todo(
            "scheduling queue",
            f"{counted(contents.scheduling, 'message')} on queue://PYBROKER.Scheduled: their transactions are "
            "committed, and pybroker had no time yet to schedule them",
            "leaves them there: they are never delivered",
            "start a pybroker on the store, with scheduler = true, and stop it: it schedules them",
        )
    if contents.scheduling_in_doubt:
        yield _todo(
            "scheduling in doubt",
            f"{counted(contents.scheduling_in_doubt, 'scheduled message')} of prepared transactions",
            "puts them on queue://PYBROKER.Scheduled at the commit, and leaves them there",
            _DECIDE,
        )
    if contents.refused:
        yield _todo(
            "selectors",
            f"{counted(len(contents.refused), 'durable subscription')} with a selector that ActiveMQ refuses: "
            f"{_named(contents.refused)}",
            "does not start",
            "while a pybroker is master, delete them (`pybroker unsubscribe`), or have clients use other selectors",
        )
    if contents.empty_queues:
        count = len(contents.empty_queues)
        yield _setting(
            "empty queues",
            f"{counted(count, 'queue')} of virtual topics without a message: {_named(contents.empty_queues)}",
            "does not know them until a consumer comes, and copies nothing to them that is sent before",
            "create them at the start: `destinations` in the lines below",
        )
    if contents.has_priorities:
        yield _setting(
            "priorities",
            "queues deliver by priority",
            "delivers by age, unless a policy says prioritizedMessages",
            "the policy in the lines below, for the queues whose policy of pybroker says so",
        )
    if _frame_bytes(contents):
        yield _setting(
            "large messages",
            f"the largest message has {counted(contents.largest_bytes, 'byte')}",
            f"sends no client a frame of more than maxFrameSize, {FRAME_BYTES:,} bytes in its own configuration",
            "the option in the lines below, for each connector",
        )
    if contents.owned:
        yield _note(
            "owners",
            f"{counted(contents.owned, 'durable subscription')} that belong to users",
            "lets any user connect with their client ids",
            "allow only these users to read the topics",
        )


# ---------------------------------------------------------------- a directory


def _of_directory(place: JournalFacts) -> Iterator[HandbackFinding]:
    for finding in place.findings:
        if finding.kind not in _COVERED:
            yield _of_journal(finding)
    yield _note(
        "records",
        "the journal has " + (", ".join(f"{count:,} {name}" for name, count in place.records.items()) or "no records"),
        "reads all these types",
    )
    yield from _of_indexes(place)
    yield from _of_jobs(place)
    if place.own_files:
        yield _note(
            "own files",
            f"pybroker's own: {', '.join(str(each) for each in place.own_files)}",
            "ignores them",
            "none is needed: they serve on the way back; --move-to DIRECTORY moves them away",
        )
    if not place.is_excluded:
        yield _note(
            "lock",
            "the members of this store had a lock that keeps no ActiveMQ out",
            "has the lock of lock = file alone",
            "start no pybroker on this store while the ActiveMQ runs, but with lock = file",
        )
    if place.foreign_owner:
        yield _todo(
            "owner",
            f"files belong to {place.foreign_owner}",
            f"cannot open them as {place.activemq_user}",
            "chown, as below; or name the user that ActiveMQ runs as with --user",
        )


def _of_journal(finding: Finding) -> HandbackFinding:
    """Return the finding that a finding of the journal's check is here."""
    where = finding.path if finding.offset is None else f"{finding.path}, offset {finding.offset}"
    return HandbackFinding(
        urgency=Urgency.NOTE if finding.level is Level.NOTICE else Urgency.TODO,
        kind=finding.kind,
        what=f"{where}: {finding.what}",
        activemq=finding.activemq,
        remedy=_REMEDIES.get(finding.kind, finding.remedy),
    )


def _of_indexes(place: JournalFacts) -> Iterator[HandbackFinding]:
    if place.stale_indexes:
        yield _todo(
            "index",
            f"{', '.join(str(each) for each in place.stale_indexes)}: an index of ActiveMQ that does not fit the "
            "journal, which pybroker has written since; put there from a copy, perhaps",
            "goes by it: it refuses to start for a data file that is gone, or stops when it loads a message",
            "--move-to DIRECTORY moves it away; ActiveMQ makes another from the journal",
        )
    elif place.own_indexes:
        yield _note("index", "an ActiveMQ was the last to write the journal, and its index is there", "goes by it")
    else:
        yield _note("index", "there is no index of ActiveMQ", "makes one from the journal, which it reads as a whole")


def _served(place: JournalFacts) -> Path | None:
    """Return the directory of scheduled messages that ActiveMQ is to serve; None: there are no such messages."""
    filled = [directory for directory, count in place.jobs.items() if count]
    return place.scheduler if place.scheduler in filled else next(iter(filled), None)


def _of_jobs(place: JournalFacts) -> Iterator[HandbackFinding]:
    served = _served(place)
    if served is None:
        return
    yield _setting(
        "scheduled messages",
        f"{counted(place.jobs[served], 'scheduled message')} in {served}",
        "looks for them in schedulerDirectory, by default dataDirectory/brokerName/scheduler, and has schedulerSupport "
        "switched off",
        "the attributes in the lines below; or --jobs-to DIRECTORY moves them",
    )
    others = {directory: count for directory, count in place.jobs.items() if count and directory != served}
    if others:
        listed = ", ".join(f"{count:,} in {directory}" for directory, count in others.items())
        total = sum(others.values())
        yield _todo(
            "other scheduled messages",
            f"{total:,} more scheduled {inflected(total, 'message')} elsewhere: {listed}",
            "serves one directory",
            "run a broker on one of them until its messages are sent; --scheduler-store names the one for ActiveMQ",
        )


# ---------------------------------------------------------------- a database


def _of_database(place: DatabaseFacts, contents: StoreContents) -> Iterator[HandbackFinding]:
    if place.jobs:
        yield _todo(
            "scheduled messages",
            f"{counted(place.jobs, 'scheduled message')} in the table pybroker_jobs",
            "keeps scheduled messages in files, and does not look there: they are never delivered",
            "--jobs-to DIRECTORY writes them into a new schedulerDirectory",
        )
    if place.scheduler is not None:
        yield _setting(
            "scheduled messages",
            f"{counted(place.exported_jobs, 'scheduled message')} in {place.scheduler}",
            "looks for them in schedulerDirectory, and has schedulerSupport switched off",
            "the attributes in the lines below; a pybroker on the database does not look into that directory",
        )
    if place.apart:
        yield _todo(
            "acknowledged apart",
            f"{counted(place.apart, 'acknowledgement')} of durable subscriptions ahead of a message that is not "
            "acknowledged, in the table pybroker_acked",
            "delivers these messages again",
            "let the subscribers acknowledge what they have; or --accept 'acknowledged apart'",
        )
    if place.unmarked:
        yield _todo(
            "in doubt without rows",
            f"{counted(place.unmarked, 'prepared transaction')} that only the table pybroker_prepared names",
            "does not know them: the transaction manager gets XAER_NOTA, and what they acknowledged comes again",
            _DECIDE,
        )
    if place.no_local:
        yield _note(
            "noLocal",
            f"{counted(place.no_local, 'durable subscription')} with noLocal",
            "has no column for it: until their subscribers are back, they keep also what their own connections sent",
        )
    if contents.has_priorities and not place.has_priority_key:
        yield _todo(
            "key",
            "activemq_acks has a key of three columns",
            "fails to create a durable subscription where prioritizedMessages is set, with a duplicate key",
            "ALTER TABLE activemq_acks DROP CONSTRAINT pk_activemq_acks, ADD CONSTRAINT pk_activemq_acks PRIMARY KEY "
            "(container, client_id, sub_name, priority)",
        )
    if place.own_tables:
        yield _note(
            "own tables",
            f"pybroker's own: {', '.join(place.own_tables)}",
            "ignores them",
            "none is needed: they serve on the way back",
        )
    if contents.in_doubt:
        yield _note(
            "JAXB",
            "transactions in doubt, whose ids ActiveMQ decodes with a class that Java 11 and later lack",
            "fails without jaxb-api.jar",
            "put jaxb-api.jar and postgresql.jar into its directory lib",
        )
    if place.lock == "postgres-advisory":
        yield _note(
            "lock",
            "the members of this store had lock = postgres-advisory, which keeps no ActiveMQ out",
            "has a row lock or a lease",
            "start no pybroker on this store while the ActiveMQ runs, but with the kind of lock that it has",
        )
