"""Ports of replication: the events of the master's followers, and the two ends of the stream.

`pybroker.transports.replica` implements `ReplicaMaster` and `ReplicaCopy` (`server`, `follower`); the code that decides
over mastership uses them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from pybroker.broker.domain.replica.operations import FilePlace, Journal, Operation
from pybroker.broker.domain.replica.reports import ClusterReport, ComparisonResult


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaMember:
    """A member of a cluster, as it introduces itself.

    Attributes:
        cluster: the id of the cluster; empty for a store that belongs to none yet.
        store: the id of its store.
        run: the id of this run of the member (`life` in the register).
        name: its name, for logs.
    """

    cluster: str
    store: str
    run: str
    name: str


class RegisterSnapshot(NamedTuple):
    """A content of the election's register.

    Attributes:
        revision: its revision there.
        content: the record as bytes of JSON.
        election: where the register is, and what else all members set alike, as JSON without secrets: for a member that
            was given only the master's address. Empty: not told.
    """

    revision: int
    content: bytes
    election: str = ""


class FollowerEvents(Protocol):
    """Takes the events of followers. Called on the master's event loop, in order; an exception closes the follower."""

    def joined(self, store: str, connection: int) -> None:
        """A follower was authenticated, and a plan for it will be made. It has confirmed nothing yet."""
        ...

    def confirmed(
        self, store: str, connection: int, epoch: int, sequence: int, sent_at: float, has_promised: bool
    ) -> None:
        """A follower has synced everything up to a sequence.

        During the first catch-up of a connection the answers to pings are reported with the sequence 0: the follower is
        there, and has not confirmed anything on this connection. In a later one, of a follower that was too slow, the
        sequence stays.

        Args:
            store: the follower's store.
            connection: the number of the connection; each later one is higher.
            epoch: the epoch of this master.
            sequence: the sequence.
            sent_at: when the latest ping that it answers was sent, by the clock of the server. Minus infinity before
                the first ping is answered.
            has_promised: the follower promised not to stand for a lease from when it took that ping.
        """
        ...

    def leaving(self, store: str, connection: int) -> None:
        """A follower stops in order, and asks to be taken out of the in-sync set. It waits for `hang_up`."""
        ...

    def lost(self, store: str, connection: int) -> None:
        """A connection that has `joined` has ended. Exactly once for each."""
        ...

    def verified(self, store: str, name: str, result: ComparisonResult) -> None:
        """The store of a live follower was compared with the master's."""
        ...


class FollowerWishes(NamedTuple):
    """A follower's permission and wish to become the master, sent with each confirmation.

    Attributes:
        may_stand: it may become the master.
        wants_to_serve: it asks the master to hand the cluster over to it.
    """

    may_stand: bool = True
    wants_to_serve: bool = False


class FollowerProgress(NamedTuple):
    """How far a follower is, for the status of the master.

    Attributes:
        store: its store.
        name: its name.
        connection: the number of its connection.
        is_live: it receives operations as they happen; False during its catch-up.
        confirmed: the sequence up to which it has confirmed; 0 during its catch-up.
        left_bytes: about how many bytes of the catch-up are left to be sent.
        queued_bytes: bytes of operations that wait to be sent.
        may_stand: it may become the master.
        wants_to_serve: it asks to become the master.
        lag_seconds: for how long there have been operations that it has not confirmed; 0: it has confirmed all.
    """

    store: str
    name: str
    connection: int
    is_live: bool
    confirmed: int
    left_bytes: int
    queued_bytes: int
    may_stand: bool = True
    wants_to_serve: bool = False
    lag_seconds: float = 0.0


class ReplicaMaster(Protocol):
    """The master's end of the stream. All methods are called on its event loop, and none of them blocks."""

    async def listen(self, host: str, port: int) -> int:
        """Accept followers, and return the port. They wait for `begin_epoch` until their time is over."""
        ...

    def begin_epoch(self, epoch: int, sequence: int) -> None:
        """Serve followers from now on. Called once.

        Args:
            epoch: the epoch of this master.
            sequence: of the last operation that is in the data files already, all of which are synced; 0 for none. The
                next one that is shipped has the sequence behind it.
        """
        ...

    def ship(self, sequence: int, operation: Operation) -> None:
        """Send an operation to the followers. Called *before* the master itself begins it, without gaps.

        A `BeginFile` comes before the first `WriteBatch` of its file, and a `CutFile` of the former one before it.
        `ReplaceFile` and `RemoveFiles` may come after the master has made them.
        """
        ...

    def synced(self, sequence: int) -> None:
        """Everything up to a sequence is on this master's disk: in the data files, and synced."""
        ...

    def committed(self, sequence: int) -> None:
        """Everything up to a sequence is confirmed to clients. Pings report it."""
        ...

    def hang_up(self, store: str, connection: int, reason: str) -> None:
        """Close a follower's connection, if it is still there; `lost` follows."""
        ...

    def hand_over(self, store: str, sentence: str) -> None:
        """Send the frame HANDOVER: the follower may stand now."""
        ...

    def progress(self) -> Sequence[FollowerProgress]:
        """Return how far the connected followers are."""
        ...

    async def close(self) -> None:
        """Accept nothing any more, and close all connections."""
        ...


class CopyProgress(NamedTuple):
    """How far this follower is, for its own status. A value that any thread may read.

    Attributes:
        is_connected: it has a plan of the master.
        is_live: it receives operations as they happen.
        sequence: up to which everything is synced here; 0 during the catch-up.
        committed: up to which the master has confirmed to clients, as its latest ping said.
        left_bytes: bytes of the catch-up that are left, as the plan counted them.
        ends: the ends of the synced journals.
        refusal: the sentence with which the master refused or closed the latest connection; empty for none.
        report: the cluster as the master saw it last; None: it has not told yet.
        compare_left: during a comparison of the stores: bytes that are left; in the repair before it: those of the
            present file; -1: neither is under way.
    """

    is_connected: bool
    is_live: bool
    sequence: int
    committed: int
    left_bytes: int
    ends: Sequence[tuple[Journal, FilePlace]]
    refusal: str
    report: ClusterReport | None = None
    compare_left: int = -1


class CopyEvents(Protocol):
    """Decides for a follower's thread, and takes its reports. Called in that thread."""

    def may_take(self, epoch: int) -> bool:
        """Return True if a frame of the master of this epoch may be taken: the register that is known names it.

        Called before what one read of the connection brought is applied. False closes the connection.
        """
        ...

    def promises(self, epoch: int) -> bool:
        """Promise not to stand for a lease from now on, if this member gives grace; return True if it does.

        Called for each ping that was taken, before it is answered. The promise holds on return, whatever the event loop
        does meanwhile.
        """
        ...

    def wishes(self) -> FollowerWishes:
        """Return the wishes that this follower sends with its next confirmation."""
        ...

    def planned(self, register: RegisterSnapshot) -> None:
        """Take the register that the master's plan contained."""
        ...

    def heard(self, epoch: int) -> None:
        """A frame was taken from the master of an epoch."""
        ...

    def handed_over(self, sentence: str) -> None:
        """The master has released the cluster to this member."""
        ...

    def failed(self, error: Exception) -> None:
        """The store cannot be written: nothing is taken or confirmed any more, and the thread ends. Called once."""
        ...

    def verified(self, result: ComparisonResult) -> None:
        """The master has compared the stores, or the comparison that was asked for has failed."""
        ...


class ReplicaCopy(Protocol):
    """A follower's end of the stream: a thread that dials the master, and writes what it sends."""

    def start(self) -> None:
        """Start the thread. It dials until `close`."""
        ...

    def leave(self, timeout: float) -> bool:
        """Ask the master to take this store out of the in-sync set, and wait for that; return True if it did.

        Blocks for at most that many seconds.
        """
        ...

    def close(self) -> None:
        """Take no frame any more, sync everything that was written, and end the thread. Blocks; may be repeated."""
        ...

    def verify(self) -> None:
        """Ask the master soon to compare the stores; `verified` reports the end. In any thread."""
        ...

    def repair(self, files: Sequence[tuple[Journal, int]]) -> None:
        """Ask the master soon for whole files, and for another comparison; `verified` reports that. In any thread.

        For a journal's last file the connection is made again instead, and `verified` reports that there was none.
        """
        ...

    @property
    def progress(self) -> CopyProgress:
        """How far it is."""
        ...
