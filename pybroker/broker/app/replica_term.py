"""A replicated master's end of the stream, for one epoch: its operations, its followers, and who has confirmed what."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from pybroker.broker.app.election_run import ElectionRun, lease_clock
from pybroker.broker.app.replica_activity import ReplicaActivity, cluster_report
from pybroker.broker.domain.replica.election_place import ElectionPlace
from pybroker.broker.domain.replica.operations import Journal
from pybroker.broker.domain.replica.ports import RegisterSnapshot, ReplicaMember
from pybroker.broker.domain.replica.reports import ClusterReport, ComparisonResult
from pybroker.locks.election.election_state import (
    ElectionEvent,
    EpochBegun,
    FollowerConfirmed,
    FollowerJoined,
    FollowerLeaving,
    FollowerLost,
    JournalsReported,
    RecordsSynced,
)
from pybroker.locks.election.record import DurableEnd
from pybroker.store.journal.activity import JournalActivity
from pybroker.store.replica.catch_up import MasterFiles
from pybroker.store.replica.sequencer import SequencedJournal, Sequencer
from pybroker.transports.replica.peer_certificates import PeerCertificates
from pybroker.transports.replica.server import ReplicaServer, StreamPolicy

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """The settings of both ends of the stream.

    Attributes:
        host: the address that followers are accepted on.
        port: its port.
        policy: time-outs and limits.
        secret: the cluster's; empty for none.
        tls: certificates for TLS; None: without.
        election: where the register is, for members that know only the master; None: it is not told.
    """

    host: str
    port: int
    policy: StreamPolicy = field(default_factory=StreamPolicy)
    secret: bytes = b""
    tls: PeerCertificates | None = None
    election: ElectionPlace | None = None


class ReplicaTerm:
    """Implements `FollowerEvents`.

    Args:
        run: decides.
        epoch: the number of the first data file of messages.
        first_files: the number of the first data file of each journal that is opened.
        reserved: the highest number that a data file of each journal may have.
        files: the data files of this store.
        member: this member.
        settings: of the stream.
        activity: the member's counts.
    """

    def __init__(
        self,
        run: ElectionRun,
        epoch: int,
        first_files: Mapping[Journal, int],
        reserved: Mapping[Journal, int],
        files: MasterFiles,
        member: ReplicaMember,
        settings: StreamSettings,
        activity: ReplicaActivity,
    ) -> None:
        self.epoch = epoch
        self.broker_id = f"ID:{member.cluster}:1"
        """The broker's id to clients and other brokers, the same on all members."""
        self._run = run
        self._settings = settings
        self._activity = activity
        self.on_verified: Callable[[str, ComparisonResult], None] = lambda store, result: None
        """Called on the loop when a follower's store was compared with this master's."""
        self._ports = asyncio.Event()
        self._is_over = False
        self._reported: tuple[Mapping[str, int], Mapping[str, DurableEnd]] = ({}, {})
        self.server = ReplicaServer(
            files,
            member,
            self._register,
            self,
            clock=lease_clock,
            policy=settings.policy,
            secret=settings.secret,
            tls=settings.tls,
            report=self.cluster,
            first_files=first_files,
        )
        self._sequencer = Sequencer(first_files, reserved, on_synced=self._synced, on_file=self.report)
        self._sequencer.on_damage = self._read_elsewhere
        self._reading: set[asyncio.Task[None]] = set()

    # ------------------------------------------------------------ as the node sees it

    def journal(self, journal: Journal) -> SequencedJournal:
        """Return the followers of a journal, for its writer; to be called before the journal is opened."""
        return self._sequencer.journal(journal)

    async def listen(self) -> None:
        """Accept followers.

        Raises:
            ConfigError: the stream would be open to a network, or the port cannot be bound.
            OSError: the host is not known.
        """
        await self.server.listen(self._settings.host, self._settings.port)

    async def begin(self) -> bool:
        """Begin to serve followers, and wait until clients may be served; False if that never comes.

        To be called once both journals are open.
        """
        if not self._is_over:
            self.server.begin_epoch(self.epoch, 0)
            self._run.tell(EpochBegun(self._sequencer.begin(self.server.ship)))
        await self._ports.wait()
        return not self._is_over

    # ------------------------------------------------------------ as the election sees it

    def open_ports(self) -> None:
        """Let clients be served: the epoch's first record is confirmed."""
        self._ports.set()

    def stop_waiting(self) -> None:
        """End the wait for clients, though nothing may be confirmed yet: the node is to stop."""
        self._ports.set()

    def confirm(self, sequence: int) -> None:
        """Confirm to clients everything up to a sequence."""
        self.server.committed(sequence)
        self._sequencer.confirm(sequence)

    def report(self) -> None:
        """Report the data files, and how far everything that is confirmed reaches; take what is reserved now."""
        mastery, record = self._run.state.mastery, self._run.state.record
        if mastery is None or record is None:
            return
        self._sequencer.reserve({each: record.reserved.get(each.register_name, 0) for each in Journal})
        files = {journal.register_name: number for journal, number in self._sequencer.files().items()}
        ends = {journal.register_name: DurableEnd(*end) for journal, end in self._sequencer.durable().items()}
        if (files, ends) != self._reported:
            self._reported = files, ends
            self._run.tell(JournalsReported(files, {**mastery.durable, **ends}))

    def cluster(self) -> ClusterReport:
        """Return the state of the cluster, as this master sees it."""
        return cluster_report(self._run.state, self.server.progress(), self._activity)

    def names(self, stores: Iterable[str]) -> str:
        """Return the names of members by their stores; of one that is not known, the store's id."""
        known = {each.store: each.name for each in self.cluster().members}
        return ", ".join(sorted(known.get(store, store) for store in stores))

    @property
    def confirm_times(self) -> JournalActivity:
        """The times from when a batch was sent until it was confirmed."""
        return self._sequencer.confirm_times

    @property
    def last(self) -> int:
        """The sequence of the last operation."""
        return self._sequencer.last

    def end(self) -> None:
        """End the wait for clients: this member is not the master any more."""
        self._is_over = True
        self._sequencer.abandon()
        self._ports.set()

    # ------------------------------------------------------------ FollowerEvents

    def joined(self, store: str, connection: int) -> None:
        """A follower was authenticated."""
        self._tell(FollowerJoined(store, connection))

    def confirmed(
        self, store: str, connection: int, epoch: int, sequence: int, sent_at: float, has_promised: bool
    ) -> None:
        """A follower has synced everything up to a sequence."""
        if not self._is_over:
            self._run.tell_here(FollowerConfirmed(store, connection, epoch, sequence, sent_at, has_promised))

    def leaving(self, store: str, connection: int) -> None:
        """A follower stops in order."""
        self._tell(FollowerLeaving(store, connection))

    def lost(self, store: str, connection: int) -> None:
        """A follower's connection has ended."""
        self._tell(FollowerLost(store, connection))

    def verified(self, store: str, name: str, result: ComparisonResult) -> None:
        """Keep, log and report the result of a comparison of a follower's store with this master's."""
        self._activity.note_comparison(store, result)
        log_comparison(name, result)
        self.on_verified(store, result)

    # ------------------------------------------------------------ private

    def _tell(self, event: ElectionEvent) -> None:
        """Tell of a follower, unless the term is over: what ends late may have a number of the next one."""
        if not self._is_over:
            self._run.tell(event)

    def _synced(self, sequence: int) -> None:
        self.server.synced(sequence)
        self._run.tell(RecordsSynced(sequence))

    def _read_elsewhere(self, journal: Journal, file_id: int, offset: int, taken: Callable[[bytes], None]) -> None:
        """Read a record that this disk does not give back from a follower's copy."""

        async def read() -> None:
            record = b""
            try:
                record = await self.server.record(journal, file_id, offset)
            except Exception:  # a mistake of ours: without an answer its queue would wait for ever
                _log.exception("a record cannot be read from another member's copy")
            if not self._is_over:  # the store is closed, and no copy was looked into
                taken(record)

        task = asyncio.get_running_loop().create_task(read())
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)

    def _register(self) -> RegisterSnapshot:
        known = self._run.state.known
        if known is None or known.record is None:
            return RegisterSnapshot(0, b"{}")
        place = self._settings.election
        if place is not None:
            place = replace(place, lease=known.record.settings.lease_ms / 1000)
        return RegisterSnapshot(known.revision, known.record.encode(), "" if place is None else place.encode())


def log_comparison(name: str, result: ComparisonResult) -> None:
    """Log the result of a comparison of a follower's store with its master's."""
    if result.problem:
        _log.warning("the store of %s was not compared as a whole: %s", name, result.problem)
    for each in result.differences:
        where = "this is damaged in the MASTER's store" if each.is_masters else "pybroker replica repair fetches it"
        _log.error("%s of %s differs from the master's: %s", each.name, name, where)
    if result.is_equal:
        _log.info("the store of %s equals the master's: %d data files", name, result.file_count)
