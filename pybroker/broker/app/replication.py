"""A member of a replicated cluster, from the start of its process to the end: its election, and its copy of the store.

```text
          decisions (election_run)                      actions, performed here on the event loop
register ------> ReadRegister, SwapRegister ------> register_thread
ticks            FollowMaster, StopFollowing -----> the copying thread: ReplicaFollower writes the master's operations
confirmations    BeginEpoch ----------------------> the copying thread, behind those; then `acquire` returns
                 OpenPorts, ConfirmRecords -------> replica_term, and through it the node and its clients
                 StepDown ------------------------> the node, which cuts clients off
```

The member holds the lock on its own directory from start to end, so a former process of it has ended, and no other
writes here. The copying thread does one thing after the other: a follower has closed its files before the node opens
them, and the node has given the store back before a follower writes again.

Source: specification of replication, 3.4 and 5.
"""

import asyncio
import logging
import secrets
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from pybroker.broker.app.election_run import ElectionRun, lease_clock
from pybroker.broker.app.register_thread import RegisterThread
from pybroker.broker.app.replica_activity import ReplicaActivity
from pybroker.broker.app.replica_guardian import GuardianKeeper
from pybroker.broker.app.replica_switchover import successor
from pybroker.broker.app.replica_term import ReplicaTerm, StreamSettings, log_comparison
from pybroker.broker.app.replica_waiting import settings_sentence, waiting_sentence
from pybroker.broker.domain.errors import BrokerError, ConfigError, LockNotHeld, MalformedData, StoreUnavailable
from pybroker.broker.domain.ports import LockProvider
from pybroker.broker.domain.replica.operations import Journal
from pybroker.broker.domain.replica.ports import CopyProgress, FollowerWishes, RegisterSnapshot, ReplicaMember
from pybroker.broker.domain.replica.reports import ComparisonResult, FileDifference
from pybroker.locks.election.decisions import is_graced
from pybroker.locks.election.election_state import (
    NEVER,
    BeginEpoch,
    ClientsQuiesced,
    ConfirmRecords,
    ElectionAction,
    ElectionEvent,
    ElectionPolicy,
    ElectionRole,
    ElectionState,
    FollowMaster,
    HangUp,
    MasterHandedOver,
    MasterResigned,
    OpenPorts,
    PromotionForced,
    QuiesceClients,
    ReadRegister,
    RegisterChanged,
    ReleaseRequested,
    ReportElection,
    ReportInSync,
    StepDown,
    StopFollowing,
    StoreCondition,
    StoreExamined,
    SwapAnswered,
    SwapRegister,
)
from pybroker.locks.election.record import DurableEnd, ElectionRecord, MasterEntry, RecordedState
from pybroker.locks.election.register import Register, RegisterState
from pybroker.store.replica.catch_up import MasterFiles
from pybroker.store.replica.identity import IdentityFile, ReplicaIdentity, boot_id
from pybroker.store.replica.receiver import ReceiverSettings, ReplicaReceiver, is_unfinished, remove_mark
from pybroker.transports.replica.follower import ReplicaFollower

LEAVE_SECONDS: Final = 2.0
"""Time for a standby that stops to be taken out of the in-sync set, so that the master does not wait for it."""

BEGIN_AGAIN_SECONDS: Final = 5.0
"""The pause after which a copy that could not be begun is tried again: a full disk may have space by then."""

WANTED_SECONDS: Final = 10.0
"""The interval at which a member that asks to be master is considered again, if it was refused."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationSettings:
    """The settings of a member.

    Attributes:
        root: the store's directory.
        journals: the directories of its journals.
        opened: the journals that a master opens: that of scheduled messages only with a scheduler.
        name: the member's name.
        address: host and port that others dial, as text.
        clients: the URIs for clients, for the register.
        policy: of the election.
        stream: of the stream.
        receiver: of the copy.
        failback: seconds after which this member asks to be master, once it is in sync; None: it does not.
        is_durable: batches are synced at once.
    """

    root: Path
    journals: Mapping[Journal, Path]
    opened: frozenset[Journal]
    name: str
    address: str
    clients: tuple[str, ...]
    policy: ElectionPolicy
    stream: StreamSettings
    receiver: ReceiverSettings
    is_durable: bool
    failback: float | None = None


class ElectionLock:
    """Implements `LockProvider`: the elected member holds the lock."""

    def __init__(self, replication: "Replication", name: str) -> None:
        self.name = name
        self._replication = replication
        self._changed = threading.Condition()
        self._won: ReplicaTerm | None = None
        self._is_cancelled = False

    def won(self, term: ReplicaTerm) -> None:
        """End the wait: this member is the master."""
        with self._changed:
            self._won = term
            self._changed.notify_all()

    def lost(self) -> None:
        """Forget a promotion that was not taken."""
        with self._changed:
            self._won = None

    def try_acquire(self) -> bool:
        """Return False: an election takes time."""
        self._is_cancelled = False
        return False

    def acquire(self) -> bool:
        """Wait until this member is elected; return False if `cancel` ended the wait."""
        with self._changed:
            self._changed.wait_for(lambda: self._won is not None or self._is_cancelled)
            if self._is_cancelled:
                return False
            self._replication.term, self._won = self._won, None
        return True

    def cancel(self) -> None:
        """End a wait in another thread."""
        with self._changed:
            self._is_cancelled = True
            self._changed.notify_all()

    def check(self) -> None:
        """Check the fence."""
        self._replication.run.check()

    def release(self) -> None:
        """Give the store back: another member may be elected at once, and this one may copy its store again."""
        self._replication.give_back()


class Replication:
    """This member's part in its cluster.

    Args:
        settings: the member's.
        register: the cluster's; belongs to this object from now on.
        directory_lock: the lock on the own directory, which is held.
    """

    waiting = ""
    """The reason why this store may not take over a cluster without a master; empty: it may, or there is one."""
    copy_problem = ""
    """The reason why the copy of the master's store cannot be begun, and is tried again; empty: there is none."""

    def __init__(self, settings: ReplicationSettings, register: Register, directory_lock: LockProvider) -> None:
        self._settings = settings
        self._directory_lock = directory_lock
        self._identity_file = IdentityFile(settings.root, boot=boot_id())
        self._identity = self._identity_file.load(is_durable=settings.is_durable)
        self._keeping = threading.Lock()
        self._loop = asyncio.get_running_loop()
        self._files = MasterFiles(settings.root, settings.journals)
        self.on_lost: Callable[[LockNotHeld], None] = lambda error: None
        """Called on the loop when this member is not the master any more."""
        self.on_failed: Callable[[], None] = lambda: None
        """Called on the loop when the own store cannot be written: this member has to end."""
        self.on_shortage: Callable[[str], None] = lambda sentence: None
        """Called on the loop, repeatedly, with why a master's messages cannot be confirmed; empty: they can."""
        self.on_change: Callable[[], None] = lambda: None
        """Called on the loop when the register has changed in more than its renewal."""
        self._shown: object = None
        self._noted_damage: tuple[tuple[Journal, int], ...] = self._identity.damaged
        self.activity = ReplicaActivity(damaged=_differing(self._identity))
        self.on_verified: Callable[[ComparisonResult], None] = lambda result: None
        """Called on the loop when the own store was compared with the master's, or could not be."""
        self._copied_into: ReplicaReceiver | None = None
        self._discarded_before = 0
        """Records that earlier receivers have discarded."""
        self.failure: BrokerError | None = None
        me = MasterEntry(
            name=settings.name,
            store=self._identity.store,
            run=f"l-{secrets.token_hex(8)}",
            replicate=settings.address,
            clients=settings.clients,
        )
        self.run = ElectionRun(
            me,
            settings.policy,
            perform=self._perform,
            post=self._loop.call_soon_threadsafe,
            name=register.name,
        )
        self.lock = ElectionLock(self, register.name)
        self._guardian = GuardianKeeper(register.guardian_access(), settings.name, me.run)
        self.calls = RegisterThread(register, self._tell_outcome)
        self._copying = ThreadPoolExecutor(1, "replica-copying")
        self._is_returned = threading.Event()
        """Set while the store is not the node's."""
        self._is_returned.set()
        self._condition: StoreCondition | None = None
        self._reported: tuple[Mapping[str, DurableEnd], bool] | None = None
        """The ends of the copy that the condition has, and if it is in the middle of a catch-up."""
        self._follower: ReplicaFollower | None = None
        self._elected: ReplicaTerm | None = None
        """The term of the present mastery."""
        self.term: ReplicaTerm | None = None
        """The term that the node serves, or opens the store for."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._beside: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._no_longer_master = asyncio.Event()
        self._has_ended = False
        """True once nothing is copied, or served, any more."""
        self._is_handing_over = False
        self._successor = ""
        """The store that is to take over from this master; empty: any."""
        self._live_since: float | None = None
        """The time since which the copy has been in sync, by the clock of the lease; None: it is not."""
        self.on_wanted: Callable[[str], None] = lambda name: None
        """Called on the loop, now and then, with the name of a member that asks this master to hand over to it."""
        self._wanted_at = NEVER
        """The time at which a member was last found that asks to be master, by the clock of the lease."""

    # ------------------------------------------------------------ the process

    async def start(self) -> None:
        """Examine the store, and take part.

        Raises:
            StoreUnavailable: the store cannot be read.
        """
        await self._in_copying_thread(self._examine)
        self._tick()

    def run_beside(self, run: Coroutine[None, None, None]) -> None:
        """Run a coroutine until this member ends."""
        self._beside = self._loop.create_task(run)

    async def stop(self) -> None:
        """Leave the in-sync set in order, as far as that is possible in a short time, and end."""
        if self._timer is not None:
            self._timer.cancel()
        self.give_back()  # a promotion that the node did not take, as it was asked to stop at that moment
        if self._beside is not None:
            self._beside.cancel()
            await asyncio.wait((self._beside,))
        await self._in_copying_thread(self._leave)
        if not self._settings.is_durable and self.failure is None:
            await self._in_copying_thread(partial(self._logged, self._become_durable))
        self._has_ended = True
        self._copying.shutdown()
        for task in list(self._tasks):
            await asyncio.wait((task,))
        await asyncio.to_thread(self.calls.close)  # first: its answers go to the guardian
        await asyncio.to_thread(self._guardian.close)
        self._directory_lock.release()

    def _tell_outcome(self, event: ElectionEvent) -> None:
        """Pass an answer of the register, or a change of it, to the election. Called in the threads of the register.

        Only what is new is acted on at once: else a swap that fails quickly would be repeated without a pause.
        """
        former = self.run.state.known
        self.run.tell(event)
        state = self.run.state
        if state.known is None or state.record is None:
            return
        if state.known is former and not isinstance(event, SwapAnswered):
            return
        if state.mastery is not None and isinstance(event, SwapAnswered):
            self._guardian.tell(state.known)
        if self._is_handing_over or (state.mastery is None and state.record.state is RecordedState.RELEASED):
            self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        """Run the next tick at once: this member may stand, as the cluster was released, or may release it."""
        if self._timer is not None and not self._timer.cancelled():
            self._timer.cancel()
            self._tick()

    def _note_copy(self) -> None:
        """Note since when this member's copy has been in sync without a break."""
        follower, record = self._follower, self.run.state.record
        is_in_sync = record is not None and self.run.state.me.store in record.in_sync
        if self._elected is not None or follower is None or not (follower.progress.is_live and is_in_sync):
            self._live_since = None
        elif self._live_since is None:
            self._live_since = lease_clock()

    def _note_damage(self) -> None:
        """Have the store's file tell which of its data files are damaged, so that a restart does not forget that."""
        damaged = tuple(each[:2] for each in self.activity.damaged)
        if damaged != self._noted_damage:
            self._noted_damage = damaged
            self._copying.submit(self._logged, partial(self._keep, damaged=damaged))

    def _tick(self) -> None:
        if self._elected is not None:
            self._elected.report()
            self._report_shortage()
            self._note_wishes(self._elected)
        else:
            self._report_copy()
        self._note_copy()
        self._note_damage()
        self._say_waiting()
        record = self.run.state.record
        self.activity.note_record(record)
        self._note_grace()
        shown = record and (record.epoch, record.state, record.in_sync, self.run.state.role, self.activity.is_graced)
        if shown != self._shown:
            if record is not None and self._shown is None:
                self._say_settings(record)
            self._shown = shown
            self.on_change()
        self._timer = self._loop.call_later(self.run.pass_time(), self._tick)

    def _note_grace(self) -> None:
        """Log when a master begins to go on without the election store, and when its lease counts again."""
        former, now_graced = self.activity.is_graced, is_graced(self.run.state, lease_clock())
        self.activity.is_graced = now_graced
        if now_graced and not former:
            _log.warning("the lease cannot be renewed: going on, as no other member in sync stands meanwhile")
        elif former and self._elected is not None and not now_graced:
            _log.info("the lease is renewed again")

    def _say_settings(self, record: ElectionRecord) -> None:
        """Log which settings of this member do not count."""
        if sentence := settings_sentence(self._settings.policy.first_settings, record):
            _log.warning("%s", sentence)

    def _say_waiting(self) -> None:
        """Log what this store lacks to become the master, once for each change."""
        former, self.waiting = self.waiting, waiting_sentence(self.run.state, lease_clock())
        if self.waiting != former:
            if self.waiting:
                _log.warning("%s", self.waiting)
            self.on_change()

    def _report_shortage(self) -> None:
        self.on_shortage(_shortage(self.run.state, lease_clock()))

    # ------------------------------------------------------------ the node

    def give_back(self) -> None:
        """Note that the node has closed the store. A master that still is one resigns."""
        self.term = None
        self._is_handing_over, self._successor = False, ""
        self.run.tell(MasterResigned("it serves no clients any more"))
        self._is_returned.set()

    async def hand_over(self, seconds: float) -> None:
        """Wait until all followers in sync have everything, and release the cluster; at most so many seconds.

        The store is closed, and no client is served.
        """
        if self._elected is None or self.run.state.role is not ElectionRole.SERVING:
            return
        if _shortage(self.run.state, lease_clock()):
            return  # nothing will be confirmed: another member resumes when enough of them are back
        self._is_handing_over = True
        self.run.tell(ReleaseRequested(self._successor))
        if self._successor and self.run.state.role is ElectionRole.SERVING:  # it is not in sync any more
            self.run.tell(ReleaseRequested())
        try:
            await asyncio.wait_for(self._no_longer_master.wait(), seconds)
        except TimeoutError:
            _log.warning("not everything was confirmed in %g s: others wait for the end of the lease", seconds)

    def prepare_switchover(self, to: str, *, force: bool = False) -> str:
        """Choose the member that takes over when this master hands over, and return the reason if none can.

        Args:
            to: the name of a member; empty: any in sync.
            force: also if none can; then this member waits for a lease, and serves again.
        """
        term, record = self._elected, self.run.state.record
        if term is None or record is None:
            return "this member is no master by the election store"
        found = successor(to, self._settings.name, record.in_sync, term.server.progress())
        refusal = found.refusal or _shortage(self.run.state, lease_clock())
        self._successor = found.store
        return "" if force and not to else refusal

    def _note_wishes(self, term: ReplicaTerm) -> None:
        """Report a member that asks to be the master, unless this one has `replicate_failback` too."""
        now = lease_clock()
        for each in term.server.progress():
            if each.wants_to_serve and now - self._wanted_at >= WANTED_SECONDS:
                self._wanted_at = now
                if self._settings.failback is not None:
                    _log.warning("%s asks to be master, and both have replicate_failback: nothing is done", each.name)
                else:
                    self.on_wanted(each.name)

    def promote(self, revision: int) -> None:
        """Have this store become the master at an operator's word, over this revision of the register."""
        self.run.tell(PromotionForced(revision))

    def written_at(self) -> float | None:
        """Return when the own journal of messages was changed last, in seconds since the epoch; None if it has no file.

        Blocks.
        """
        files = self._settings.journals[Journal.MESSAGES].glob("db-*.log")
        return max((each.stat().st_mtime for each in files), default=None)

    # ------------------------------------------------------------ status

    @property
    def state(self) -> ElectionState:
        """The state of the election, as this member knows it."""
        return self.run.state

    @property
    def register_problem(self) -> str:
        """The reason why the election store cannot be reached now; empty if it can."""
        return self.calls.problem

    @property
    def copy_progress(self) -> CopyProgress | None:
        """How far the copy of the master's store is; None without one."""
        follower = self._follower
        return None if follower is None else follower.progress

    @property
    def copy(self) -> ReplicaFollower | None:
        """The follower that copies the master's store; None without one."""
        return self._follower

    @property
    def discarded_records(self) -> int:
        """The records of this store that were cut off, dropped or replaced."""
        return self._discarded_before + (0 if self._copied_into is None else self._copied_into.discarded_records)

    @property
    def elected(self) -> ReplicaTerm | None:
        """The term of the present mastery; None for a standby."""
        return self._elected

    # ------------------------------------------------------------ actions

    def _perform(self, action: ElectionAction) -> None:
        if self._has_ended:
            return  # the answer to a call that was under way came too late: others wait for the end of a lease
        match action:
            case ReadRegister() | SwapRegister():
                self.activity.note_record(self.run.state.record)
                self.calls.perform(action)
            case FollowMaster(master, epoch):
                self._begin_copy(master, epoch)
            case StopFollowing():
                self._copying.submit(self._logged, self._stop_following)
            case BeginEpoch(epoch, reserved):
                self._begin_epoch(epoch, reserved)
            case OpenPorts():
                if self._elected is not None:
                    self._report_shortage()  # or the first clients would be refused until the next tick
                    self._elected.open_ports()
                    if (known := self.run.state.known) is not None:
                        self._guardian.begin(known)
            case ConfirmRecords(sequence):
                if self._elected is not None:
                    self._elected.confirm(sequence)
                    if self._is_handing_over:
                        self._loop.call_soon(self._look)
            case QuiesceClients():
                if self._elected is not None:
                    self.run.tell(ClientsQuiesced(self._elected.last))
            case StepDown(reason):
                self._step_down(reason)
            case HangUp(store, connection, reason):
                if self._elected is not None:
                    self._elected.server.hang_up(store, connection, reason)
            case ReportElection(sentence, is_problem):
                _log.log(logging.ERROR if is_problem else logging.INFO, "election: %s", sentence)
            case ReportInSync(stores):
                if self._elected is not None:
                    _log.info("election: in sync are to be: %s", self._elected.names(stores))

    def _begin_epoch(self, epoch: int, reserved: Mapping[str, int]) -> None:
        numbers = {journal: reserved[journal.register_name] for journal in self._settings.opened}
        ahead = self._settings.policy.reserve_ahead
        first = {journal: number - ahead for journal, number in numbers.items()}
        record = self.run.state.record
        assert record is not None, "a master has a record"
        member = replace(self._member(), cluster=record.cluster)
        self.activity.note_promotion(record, member.store)
        term = self._elected = ReplicaTerm(
            self.run, epoch, first, numbers, self._files, member, self._settings.stream, self.activity
        )
        self._no_longer_master.clear()
        self._task(self._open(term, record.cluster))

    async def _open(self, term: ReplicaTerm, cluster: str) -> None:
        """Accept followers, and hand the store to the node once the copy has ended."""
        try:
            await term.listen()
            await self._in_copying_thread(partial(self._note_epoch, cluster, term.epoch))
        except (BrokerError, OSError) as error:
            _log.error("cannot become master: %s", error)
            self.run.tell(MasterResigned(str(error)))
            if isinstance(error, ConfigError):  # a port that is taken: it would be elected again, and fail again
                self.failure = error
                self.on_failed()
            return
        except Exception as error:  # a mistake of ours: otherwise it would renew its lease, and never serve
            _log.exception("cannot become master")
            self.run.tell(MasterResigned(repr(error)))
            return
        if self._elected is term:
            self._is_returned.clear()
            self.lock.won(term)

    def _step_down(self, reason: str) -> None:
        term, self._elected = self._elected, None
        self.lock.lost()
        self._guardian.end()
        self._no_longer_master.set()
        if term is None:
            return
        term.end()
        self._copying.submit(self._logged, self._examine_returned)
        self._wanted_at = NEVER
        if self._is_handing_over:
            for each in term.server.progress():
                if self._successor in ("", each.store):
                    term.server.hand_over(each.store, f"{self._settings.name} serves no clients any more")
        self._task(term.server.close())
        if self.term is None:
            self._is_returned.set()  # the node has not taken it, or has given it back
        elif not self._is_handing_over:
            self.on_lost(LockNotHeld(f"{self.lock.name}: {reason}"))

    def _task(self, run: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(run)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ------------------------------------------------------------ the copying thread

    async def _in_copying_thread(self, call: Callable[[], None]) -> None:
        await self._loop.run_in_executor(self._copying, call)

    def _logged(self, call: Callable[[], None]) -> None:
        """Run a call whose failure leaves this member without a copy, and is logged."""
        try:
            call()
        except (BrokerError, OSError) as error:
            _log.error("this store cannot be used as a copy: %s", error)
        except Exception:
            _log.exception("this store cannot be used as a copy")

    def _begin_copy(self, master: MasterEntry, epoch: int) -> None:
        """Follow a master in the copying thread. To be called on the loop."""
        if not self._has_ended:
            self._copying.submit(self._try_to_follow, master, epoch)

    def _try_to_follow(self, master: MasterEntry, epoch: int) -> None:
        """Follow a master, and after a failure again, as long as that is the master: this member has no copy yet."""
        try:
            self._follow(master, epoch)
        except Exception as error:
            problem = f"the store cannot be used as a copy: {error if isinstance(error, BrokerError) else repr(error)}"
            if problem != self.copy_problem:
                is_expected = isinstance(error, BrokerError | OSError)
                _log.error("%s; it is tried again", problem, exc_info=None if is_expected else error)
            self.copy_problem = problem
            again = partial(self._begin_copy, master, epoch)
            self._loop.call_soon_threadsafe(self._loop.call_later, BEGIN_AGAIN_SECONDS, again)
        else:
            self.copy_problem = ""

    def _follow(self, master: MasterEntry, epoch: int) -> None:
        self._is_returned.wait()
        if self._follower is not None or not self.run.may_take(epoch):
            return
        record = self.run.state.record
        if record is None:
            return
        if not self._identity.cluster:
            self._keep(cluster=record.cluster)
        self._keep(epoch=epoch)
        host, _, port = master.replicate.rpartition(":")
        stream = self._settings.stream
        self._discarded_before = self.discarded_records
        self._copied_into = self._receiver()
        follower = ReplicaFollower(
            self._copied_into,
            (host.strip("[]"), int(port)),
            epoch,
            self._member(),
            self,
            revision=self._revision,
            timeout=stream.policy.timeout,
            secret=stream.secret,
            tls=stream.tls,
        )
        if self.activity.damaged:
            follower.verify()  # the plan may replace what differed, which is not known before the next comparison
        follower.start()
        self._follower = follower

    def _examine_returned(self) -> None:
        """Tell what this store has after its term as the master's: it may stand again, and not follow before."""
        self._is_returned.wait()
        self._examine()

    def _stop_following(self) -> None:
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.close()
            self._examine()

    def _leave(self) -> None:
        follower = self._follower
        if follower is not None:
            follower.leave(LEAVE_SECONDS)
            follower.close()
            self._follower = None

    def _become_durable(self) -> None:
        """Sync everything, and note that: the store keeps its id though the machine may be started again."""
        self._receiver().examine()
        self._keep(is_durable=True)

    def _receiver(self) -> ReplicaReceiver:
        return ReplicaReceiver(self._settings.root, self._settings.journals, self._settings.receiver)

    def _note_epoch(self, cluster: str, epoch: int) -> None:
        """Note that this store is the master's, and complete by that; only at an operator's word it was not."""
        self._keep(cluster=cluster, epoch=epoch)
        remove_mark(self._settings.root)

    def _keep(self, **changes: Any) -> None:
        """Change what the store's file tells of it. In the copying thread, or in the follower's."""
        with self._keeping:
            identity = replace(self._identity, **changes)
            if identity != self._identity:
                self._identity_file.keep(identity)
                self._identity = identity

    def _examine(self) -> None:
        """Sync everything, and tell what this store has."""
        manifest = self._receiver().examine()
        ends = {each.journal.register_name: DurableEnd(each.file_id, each.length) for each in manifest}
        condition = StoreCondition(
            cluster="", epoch=self._identity.epoch, is_empty=not manifest, is_sound=True, highest={}, ends={}
        )
        self._reported = None
        self._tell_condition(condition, ends)

    # ------------------------------------------------------------ CopyEvents, in the follower's thread

    def may_take(self, epoch: int) -> bool:
        """Return True if frames of this epoch may be written."""
        return self.run.may_take(epoch)

    def promises(self, epoch: int) -> bool:
        """Promise not to stand for a lease, if this member gives grace."""
        return self.run.promise(epoch)

    def wishes(self) -> FollowerWishes:
        """Ask the master to hand over once this preferred member has been in sync for long enough."""
        seconds, since = self._settings.failback, self._live_since
        wants = seconds is not None and since is not None and lease_clock() - since >= seconds
        return FollowerWishes(may_stand=self._settings.policy.may_stand, wants_to_serve=wants)

    def planned(self, register: RegisterSnapshot) -> None:
        """Take the register that the master knows."""
        try:
            record = ElectionRecord.decode(register.content)
        except MalformedData as error:
            _log.warning("the master's register cannot be read: %s", error)
        else:
            self.run.tell(RegisterChanged(RegisterState(register.revision, record)))
        if register.election:
            self._keep(election=register.election)

    def heard(self, epoch: int) -> None:
        """Ignore the frame: this member promises something only with the answer to a ping."""

    def handed_over(self, sentence: str) -> None:
        """Have the election expect that the master releases the cluster, as the register will show."""
        _log.info("the master hands over: %s", sentence)
        self.run.tell(MasterHandedOver())

    def failed(self, error: Exception) -> None:
        """End this member: its own store cannot be written."""
        failure = error if isinstance(error, BrokerError) else StoreUnavailable(f"the copy has ended: {error!r}")
        self._loop.call_soon_threadsafe(self._fail, failure)

    def verified(self, result: ComparisonResult) -> None:
        """Keep the result of a comparison of the own store with the master's."""
        self._loop.call_soon_threadsafe(self._take_result, result)

    # ------------------------------------------------------------ private

    def _take_result(self, result: ComparisonResult) -> None:
        """Keep a result: with damage this member does not stand while another one may."""
        self.activity.note_own_comparison(result)
        log_comparison(self._settings.name, result)
        self._reported = None
        self._report_copy()
        self.on_verified(result)

    def _fail(self, error: BrokerError) -> None:
        _log.error("this member ends, as its store cannot be used: %s", error)
        self.failure = error
        self.on_failed()

    def _report_copy(self) -> None:
        """Tell how far the own store reaches, if that is news, or that a catch-up has begun or ended."""
        follower, known = self._follower, self._condition
        if follower is None or known is None or not follower.progress.ends:
            return
        ends = {journal.register_name: DurableEnd(*end) for journal, end in follower.progress.ends}
        found = ends, is_unfinished(self._settings.root)
        if found == self._reported:
            return
        self._reported = found
        self._tell_condition(replace(known, is_empty=False, epoch=self._identity.epoch), ends)

    def _tell_condition(self, condition: StoreCondition, ends: Mapping[str, DurableEnd]) -> None:
        """Tell what this store has. A copy that was interrupted lacks something, whatever its ends are."""
        is_whole = not is_unfinished(self._settings.root)
        highest = {each.register_name: 0 for each in self._settings.opened}
        highest |= {journal: end.file_number for journal, end in ends.items()}
        self._condition = replace(
            condition,
            cluster=self._identity.cluster,
            is_sound=is_whole,
            is_damaged=bool(self.activity.damaged),
            highest=highest,
            ends=ends if is_whole else {},
        )
        self.run.tell(StoreExamined(self._condition))

    def _member(self) -> ReplicaMember:
        me = self.run.state.me
        return ReplicaMember(cluster=self._identity.cluster, store=me.store, run=me.run, name=me.name)

    def _revision(self) -> int:
        known = self.run.state.known
        return 0 if known is None else known.revision


def _differing(identity: ReplicaIdentity) -> tuple[FileDifference, ...]:
    """Return the files of a store that differed from the master's before this start."""
    return tuple(FileDifference(journal, file_id, is_masters=False) for journal, file_id in identity.damaged)


def _shortage(state: ElectionState, now: float) -> str:
    """Return why nothing can be confirmed for now; empty if it can. Source: specification of replication, 6.2."""
    mastery, record = state.mastery, state.record
    if mastery is None or record is None:
        return ""
    minimum, timeout = record.settings.min_in_sync, state.policy.replica_timeout
    heard = {store: each.heard_at for store, each in mastery.followers.items()}
    others = record.in_sync - {state.me.store}
    count = 1 + sum(now - heard.get(store, mastery.begun_at) <= timeout for store in others)
    return (
        "" if count >= minimum else f"{count} of {minimum} replicas in sync: nothing persistent is accepted until then"
    )
