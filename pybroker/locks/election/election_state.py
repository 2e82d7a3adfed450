"""The state of a member in a leader election, its events and its actions: the values of `decisions`.

Times are seconds of one clock that cannot be set and goes on while the machine is suspended; the caller reads it.
Places in the journals are *sequences*: a number that grows with every operation of both journals (specification of
replication, 4.1), so that "everything up to here" is one comparison.
"""

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pybroker.locks.election.record import DurableEnd, ElectionRecord, ElectionSettings, MasterEntry
from pybroker.locks.election.register import RegisterState, SwapResult

NEVER = -math.inf
"""A time before every other."""


class ElectionRole(enum.Enum):
    """The part that a member has in the election."""

    FOLLOWING = "copies the master's store, if there is a master"
    STANDING = "has asked to become the master, and does not know the outcome"
    PROMOTING = "is the master, whose first record is not confirmed: no port is open"
    SERVING = "is the master, with open ports"
    HANDING_OVER = "is the master, serves no client any more, and waits for confirmations"
    BLOCKED = "takes part in nothing: the register contradicts what the member knows"


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionPolicy:
    """A member's own settings.

    Attributes:
        cluster_name: the name of a cluster that this member creates.
        replica_timeout: seconds after which a follower that confirms nothing leaves the in-sync set.
        gives_grace: a follower promises not to stand, and a master relies on such promises while the election store is
            away.
        may_stand: False for a member that is never promoted by itself.
        first_start_wait: seconds that an empty store waits for one with messages before it creates a cluster.
        first_settings: the settings of a cluster that this member creates.
        reserve_ahead: how many data file numbers the master reserves beyond its present ones.
        reserve_left: fewer than so many are left: the master reserves more at once.
    """

    cluster_name: str = "pybroker"
    replica_timeout: float = 2.0
    gives_grace: bool = True
    may_stand: bool = True
    first_start_wait: float = 3.0
    first_settings: ElectionSettings = field(default_factory=ElectionSettings)
    reserve_ahead: int = 8
    reserve_left: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCondition:
    """A member's own store, after everything in it was synced.

    Attributes:
        cluster: the id of the cluster it belongs to; empty: none as yet.
        epoch: the last epoch that the store knows of.
        is_empty: no message was ever stored in it.
        is_sound: it is complete; False in the middle of a catch-up.
        highest: the highest data file number of each journal.
        ends: the end of each journal.
        is_damaged: its data files differed from the master's when they were compared.
    """

    cluster: str
    epoch: int
    is_empty: bool
    is_sound: bool
    highest: Mapping[str, int]
    ends: Mapping[str, DurableEnd]
    is_damaged: bool = False


class FollowerState(NamedTuple):
    """A follower's connection, as the master sees it.

    Attributes:
        connection: the number of the connection; a later one replaces it.
        confirmed: the sequence up to which everything is synced there.
        heard_at: when a confirmation arrived last.
        advanced_at: when one arrived last that confirmed more, or everything.
        awaited: a sequence whose confirmation is watched: everything that was synced when it was chosen.
        awaited_at: when it was chosen.
        promised_at: when the latest ping was sent that was answered with a promise not to stand for a lease.
        is_leaving: it has asked to be taken out of the in-sync set.
    """

    connection: int
    confirmed: int
    heard_at: float
    advanced_at: float
    awaited: int
    awaited_at: float
    promised_at: float = NEVER
    is_leaving: bool = False


class Mastery(NamedTuple):
    """The state that only the master of the cluster has: its lease, and the confirmations of its followers.

    Attributes:
        epoch: its epoch.
        deadline: until when it relies on its latest renewal, counted from when that was sent.
        begun_at: when it learned that it is the master.
        renewed_at: when it sent the latest renewal.
        floor: the sequence of the epoch's first record; None: not written yet. What lies before may have been confirmed
            by a former master, so that each store in sync has it all.
        synced: the sequence up to which everything is on its own disk.
        confirmed: the sequence up to which it has confirmed everything to its clients.
        followers: the connected followers, by store.
        files: the present data file number of each journal.
        durable: the ends of what is confirmed in each journal.
        quiesced: with HANDING_OVER: the sequence of the last record; None: clients are still being served.
        successor: with HANDING_OVER: the store that is to take over; empty: any.
        promised: as `promised_at` of a follower, by store, from connections that have ended: a promise outlives those.
    """

    epoch: int
    deadline: float
    begun_at: float
    renewed_at: float
    floor: int | None
    synced: int
    confirmed: int
    followers: Mapping[str, FollowerState]
    files: Mapping[str, int]
    durable: Mapping[str, DurableEnd]
    quiesced: int | None = None
    successor: str = ""
    promised: Mapping[str, float] = {}


class ElectionState(NamedTuple):
    """All that a member's decisions depend on.

    Attributes:
        me: this run of the member.
        policy: its settings.
        store: its store; None: not examined yet, or not since it was the master's, so that it does not stand.
        role: its role.
        known: the newest content of the register that this run has read.
        seen_at: when that was seen first, or a promise to the master was made; a lease later it may stand.
        started_at: when the run began.
        is_reading: a read is under way.
        read_at: when the latest read was sent.
        read_after: the revision that was known then. A read returns no older one.
        is_swapping: a swap is under way.
        attempts: the nonces of swaps whose outcome is unknown, with the times when they were sent. All are based on the
            revision that is known, so that a newer one resolves all of them.
        requested: the in-sync sets of these swaps. Each may yet come true.
        write_count: the number of swaps of this run, which makes nonces unique.
        patient_until: not to stand before, where this run has released the cluster for others.
        accepted_revision: an operator has accepted that this store becomes the master over this revision of the
            register, though it lacks something; 0: none has.
        stood_over: the in-sync set of the record over which this run stood last.
        owed: this run has resigned, and has to release the cluster, with these stores in sync besides; None: it has not
            resigned.
        mastery: what a master knows besides; None for others.
    """

    me: MasterEntry
    policy: ElectionPolicy
    started_at: float
    store: StoreCondition | None = None
    role: ElectionRole = ElectionRole.FOLLOWING
    known: RegisterState | None = None
    seen_at: float = NEVER
    is_reading: bool = False
    read_at: float = NEVER
    read_after: int = 0
    is_swapping: bool = False
    attempts: Mapping[str, float] = {}
    requested: tuple[frozenset[str], ...] = ()
    write_count: int = 0
    patient_until: float = NEVER
    accepted_revision: int = 0
    stood_over: frozenset[str] = frozenset()
    owed: frozenset[str] | None = None
    mastery: Mastery | None = None

    @property
    def record(self) -> ElectionRecord | None:
        """The newest record that this run has read."""
        return None if self.known is None else self.known.record


# ---------------------------------------------------------------- events


class TimePassed(NamedTuple):
    """Some time has passed: to be sent several times in each lease."""


class StoreExamined(NamedTuple):
    """The member's own store was synced and examined: at the start, when it stops to follow, and after a mastery."""

    condition: StoreCondition


class RegisterRead(NamedTuple):
    """The answer to `ReadRegister`."""

    content: RegisterState


class ReadFailed(NamedTuple):
    """`ReadRegister` had no answer in time."""


class RegisterChanged(NamedTuple):
    """A watch, or the master over its stream, has shown a content. It may be late, repeated or old."""

    content: RegisterState


class SwapAnswered(NamedTuple):
    """The answer to `SwapRegister`."""

    result: SwapResult


class SwapFailed(NamedTuple):
    """`SwapRegister` had no answer in time: its outcome is unknown."""


class MasterHeard(NamedTuple):
    """A follower took a frame from the master of an epoch."""

    epoch: int


class MasterHandedOver(NamedTuple):
    """The master says over its stream that it releases the cluster to this member."""


class PromotionForced(NamedTuple):
    """An operator has this member's store become the master, though it lacks something that was confirmed.

    Attributes:
        revision: the revision of the register that the operator was shown; over no other one.
    """

    revision: int


class EpochBegun(NamedTuple):
    """The master has begun the epoch's first data file; its first record is the last one up to this sequence."""

    sequence: int


class RecordsSynced(NamedTuple):
    """The master's own disk has everything up to a sequence."""

    sequence: int


class JournalsReported(NamedTuple):
    """The master's data files, and the ends of what is confirmed."""

    files: Mapping[str, int]
    durable: Mapping[str, DurableEnd]


class FollowerJoined(NamedTuple):
    """A follower has connected."""

    store: str
    connection: int


class FollowerConfirmed(NamedTuple):
    """A follower has everything up to a sequence on its disk.

    Attributes:
        store: the follower's store.
        connection: the connection.
        epoch: the epoch of the master that it follows.
        sequence: up to here everything is synced.
        sent_at: when the master has sent what this answers, by the master's clock.
        has_promised: the follower does not stand for a lease from when it took that.
    """

    store: str
    connection: int
    epoch: int
    sequence: int
    sent_at: float
    has_promised: bool


class FollowerLeaving(NamedTuple):
    """A follower stops in order, and asks to be taken out of the in-sync set first."""

    store: str
    connection: int


class FollowerLost(NamedTuple):
    """A follower's connection has ended."""

    store: str
    connection: int


class ReleaseRequested(NamedTuple):
    """An operator wants another member to be master: a certain store, or any (a stop)."""

    successor: str = ""


class MasterResigned(NamedTuple):
    """The master cannot serve: its store has failed, or it could not be opened. Another member may stand at once."""

    reason: str


class ClientsQuiesced(NamedTuple):
    """No client is served any more; the last record has this sequence."""

    sequence: int


ElectionEvent = (
    TimePassed
    | StoreExamined
    | RegisterRead
    | ReadFailed
    | RegisterChanged
    | SwapAnswered
    | SwapFailed
    | MasterHeard
    | MasterHandedOver
    | PromotionForced
    | EpochBegun
    | RecordsSynced
    | JournalsReported
    | FollowerJoined
    | FollowerConfirmed
    | FollowerLeaving
    | FollowerLost
    | ReleaseRequested
    | MasterResigned
    | ClientsQuiesced
)


# ---------------------------------------------------------------- actions


class ReadRegister(NamedTuple):
    """Read the register, and report `RegisterRead` or `ReadFailed`."""


class SwapRegister(NamedTuple):
    """Swap the register, and report `SwapAnswered` or `SwapFailed`."""

    revision: int
    record: ElectionRecord


class FollowMaster(NamedTuple):
    """Connect to the master and copy its store; take frames of this epoch only."""

    master: MasterEntry
    epoch: int


class StopFollowing(NamedTuple):
    """Close the connection to the master, and take no frame any more."""


class BeginEpoch(NamedTuple):
    """Recover the store, begin the data file with this number, and report `EpochBegun`."""

    epoch: int
    reserved: Mapping[str, int]


class OpenPorts(NamedTuple):
    """Serve clients."""


class ConfirmRecords(NamedTuple):
    """Confirm to clients everything up to a sequence."""

    sequence: int


class QuiesceClients(NamedTuple):
    """Serve no client any more, and report `ClientsQuiesced`."""


class StepDown(NamedTuple):
    """Cut clients and followers off at once, confirm nothing more, and report `StoreExamined`."""

    reason: str


class HangUp(NamedTuple):
    """Close a follower's connection."""

    store: str
    connection: int
    reason: str


class ReportElection(NamedTuple):
    """Write a sentence to the log; a problem as an error."""

    sentence: str
    is_problem: bool = False


class ReportInSync(NamedTuple):
    """Write to the log which stores are to be in sync."""

    stores: frozenset[str]


ElectionAction = (
    ReadRegister
    | SwapRegister
    | FollowMaster
    | StopFollowing
    | BeginEpoch
    | OpenPorts
    | ConfirmRecords
    | QuiesceClients
    | StepDown
    | HangUp
    | ReportElection
    | ReportInSync
)


class ElectionDecision(NamedTuple):
    """The state after an event, and what is to be done, in order."""

    state: ElectionState
    actions: tuple[ElectionAction, ...] = ()
