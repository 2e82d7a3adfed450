"""The master's server for followers: plans for those that join, and sends every operation to those that are live.

Used on the event loop; `ReplicaMaster` documents the methods. Files are read in two threads.
"""

import asyncio
import contextlib
import logging
import secrets
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from pybroker.broker.domain.addresses import peer_name
from pybroker.broker.domain.replica.frames import (
    PROTOCOL_VERSION,
    PROTOCOL_VERSION_MIN,
    HandOver,
    Hello,
    agreed_version,
)
from pybroker.broker.domain.replica.manifest import MalformedFrame
from pybroker.broker.domain.replica.operations import Journal, Operation
from pybroker.broker.domain.replica.ports import FollowerEvents, FollowerProgress, RegisterSnapshot, ReplicaMember
from pybroker.broker.domain.replica.reports import ClusterReport
from pybroker.broker.domain.replica.store_ports import MasterStore
from pybroker.transports.replica.handshake import NONCE_BYTES, Handshake, require_protection
from pybroker.transports.replica.link import FollowerLink
from pybroker.transports.replica.peer_certificates import PeerCertificates, described
from pybroker.transports.replica.positions import JournalPositions
from pybroker.transports.replica.refusals import RefusalLog
from pybroker.transports.replica.session import NANOSECONDS, FollowerSession
from pybroker.transports.server import bind

PINGS_PER_TIMEOUT: Final = 5
READER_THREADS: Final = 2
CLOSE_SECONDS: Final = 1.0
"""Until then a connection ends that is closed; with TLS the other side has to agree."""

LAG_SAMPLES: Final = 1000

ACCEPT_PAUSE_SECONDS: Final = 1.0
"""Pause after a connection could not be accepted: the process may have too many open files."""

_RENAME: Final = "give each member of the cluster a `name` of its own"

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPolicy:
    """Settings of the stream.

    Attributes:
        timeout: `replicate_timeout` in seconds; a connection on which nothing came for twice as long is closed.
        hello_seconds: until a connection has to be admitted.
        queue_bytes_max: with more waiting for a live follower it goes back to the catch-up.
        rate_bytes: `replicate_catch_up_rate`, bytes a second for each follower; 0: no limit.
        connections_max: connections at a time, of which a cluster needs one for each follower.
        compare_seconds: the interval at which a live follower's store is compared with the master's.
    """

    timeout: float = 2.0
    hello_seconds: float = 10.0
    queue_bytes_max: int = 16 << 20
    rate_bytes: int = 0
    connections_max: int = 32
    compare_seconds: float = 3600.0


class ReplicaServer:
    """Implements `ReplicaMaster`, and `SessionHost` for its sessions.

    Args:
        store: the master's data files.
        member: who it is.
        register: returns the register as it is known now, for plans.
        events: takes the events of followers.
        clock: the clock of the election, in seconds: it goes on while the machine is suspended.
        policy: settings.
        secret: the cluster's; empty for none.
        tls: for TLS with certificates on both sides.
        report: returns how far the members are.
        first_files: the first number of the master's term, for each of its journals.
    """

    def __init__(
        self,
        store: MasterStore,
        member: ReplicaMember,
        register: Callable[[], RegisterSnapshot],
        events: FollowerEvents,
        *,
        clock: Callable[[], float],
        policy: StreamPolicy | None = None,
        secret: bytes = b"",
        tls: PeerCertificates | None = None,
        report: Callable[[], ClusterReport] | None = None,
        first_files: Mapping[Journal, int] | None = None,
    ) -> None:
        self.store = store
        self.first_files: Mapping[Journal, int] = first_files or {}
        self.member = member
        self.events = events
        self.positions = JournalPositions()
        self.epoch = 0
        self.shipped = 0
        self._policy = StreamPolicy() if policy is None else policy
        self.queue_bytes_max = self._policy.queue_bytes_max
        self.rate_bytes = self._policy.rate_bytes
        self._register = register
        self._report = report
        self._clock = clock
        self._secret = secret
        self._tls = tls
        self._synced = self._committed = 0
        self._connection_count = 0
        self._refusals = RefusalLog()
        self._sessions: dict[FollowerSession, asyncio.TimerHandle] = {}
        self._links: set[FollowerLink] = set()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._shipped_at: deque[tuple[int, float]] = deque(maxlen=LAG_SAMPLES)
        """Sequences, and when they were the last ones: one for each ping."""
        self._begun = asyncio.Event()
        self._all_ended = asyncio.Event()
        self._all_ended.set()
        self._listener: socket.socket | None = None
        self._opening: dict[asyncio.Task[None], bool] = {}
        """Handshakes of TLS, the oldest one first, and whether each has begun."""
        self._accept_timer: asyncio.TimerHandle | None = None
        self._ping_timer: asyncio.TimerHandle | None = None
        self._threads = ThreadPoolExecutor(READER_THREADS, "replica-reader")

    # ------------------------------------------------------------ ReplicaMaster

    async def listen(self, host: str, port: int) -> int:
        """Accept followers, and return the port.

        Raises:
            ConfigError: the stream would be open to a network, or the port cannot be bound.
        """
        require_protection(host, is_protected=bool(self._secret) or self._tls is not None)
        loop = asyncio.get_running_loop()
        self._listener = listener = await loop.run_in_executor(None, bind, host, port, "replicate_port")
        listener.listen(self._policy.connections_max)
        loop.add_reader(listener, self._accept)
        self._ping_timer = loop.call_later(self._policy.timeout / PINGS_PER_TIMEOUT, self._ping)
        bound: int = listener.getsockname()[1]
        protection = (
            "TLS" if self._tls else "integrity by a secret, without secrecy" if self._secret else "loopback only"
        )
        _log.info("followers are accepted on %s:%d (%s)", host, bound, protection)
        return bound

    def begin_epoch(self, epoch: int, sequence: int) -> None:
        """Serve followers from now on."""
        assert not self._begun.is_set(), "an epoch begins once"
        self.epoch, self.shipped = epoch, sequence
        self.synced(sequence)
        self._begun.set()

    def ship(self, sequence: int, operation: Operation) -> None:
        """Send an operation to the followers."""
        assert self._begun.is_set(), "operations belong to an epoch"
        assert sequence == self.shipped + 1, "sequences have no gaps"
        self.shipped = sequence
        size = self.positions.apply(operation)
        for session in list(self._sessions):
            try:
                session.ship(sequence, operation, size)
            except Exception as error:  # of one follower: the master's own write goes on
                _log.exception("an operation cannot be sent to a follower")
                session.hang_up(f"an error of the master: {type(error).__name__}")

    def synced(self, sequence: int) -> None:
        """Have catch-ups go on that wait for this sequence."""
        self._synced = max(self._synced, sequence)
        for wanted, future in self._waiting:
            if wanted <= self._synced and not future.done():
                future.set_result(None)
        self._waiting = [each for each in self._waiting if not each[1].done()]

    def committed(self, sequence: int) -> None:
        """Report a sequence with the next pings."""
        self._committed = max(self._committed, sequence)

    def hang_up(self, store: str, connection: int, reason: str) -> None:
        """Close a follower's connection."""
        for session in list(self._sessions):
            if session.connection == connection and session.member is not None and session.member.store == store:
                session.hang_up(reason)

    def hand_over(self, store: str, sentence: str) -> None:
        """Send the frame HANDOVER."""
        for session in self._sessions:
            if session.member is not None and session.member.store == store:
                session.send(HandOver(sentence))

    def progress(self) -> Sequence[FollowerProgress]:
        """Return how far the connected followers are."""
        return [each for session in list(self._sessions) if (each := session.progress) is not None]

    def compare(self) -> Sequence[str]:
        """Begin to compare the stores of all live followers, and return those."""
        found = [each for each in self._sessions if each.is_live and not each.is_comparing and each.member is not None]
        for session in found:
            session.compare()
        return [each.member.store for each in found if each.member is not None]

    async def record(self, journal: Journal, file_id: int, offset: int) -> bytes:
        """Return a record of a live follower's copy, with its header; nothing if none has it in a sound batch."""
        for session in list(self._sessions):
            if record := await session.record(journal, file_id, offset):
                return record
        return b""

    async def close(self) -> None:
        """Accept nothing any more, and close all connections."""
        if self._ping_timer is not None:
            self._ping_timer.cancel()
        self._stop_accepting()
        await asyncio.sleep(0)  # a task that has not begun would leave its connection open
        for task in self._handshaking():
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)
        for link in list(self._links):
            link.refuse("the master stops")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._all_ended.wait()
        self._threads.shutdown(wait=False)

    # ------------------------------------------------------------ SessionHost

    @property
    def register(self) -> RegisterSnapshot:
        """The register as it is known now."""
        return self._register()

    def report(self) -> ClusterReport:
        """Return how far the members are."""
        return ClusterReport(self.epoch, ()) if self._report is None else self._report()

    def lag_seconds(self, sequence: int) -> float:
        """Return for how long there have been operations behind a sequence, to the interval of pings."""
        if sequence >= self.shipped:
            return 0.0
        since = next((at for shipped, at in list(self._shipped_at) if shipped > sequence), None)
        return 0.0 if since is None else time.monotonic() - since

    def in_thread(self, call: Callable[[], T]) -> Awaitable[T]:
        """Run a call that blocks."""
        return asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def wait_begun(self) -> None:
        """Wait for the epoch."""
        await self._begun.wait()

    async def wait_synced(self, sequence: int) -> None:
        """Wait until everything up to a sequence is synced here."""
        if sequence > self._synced:
            future = asyncio.get_running_loop().create_future()
            self._waiting.append((sequence, future))
            await future

    def admit(self, session: FollowerSession, hello: Hello) -> int:
        """Return the number of a follower's connection.

        Raises:
            MalformedFrame: it is refused.
        """
        name, member = hello.member.name, hello.member
        if not agreed_version(hello):
            raise MalformedFrame(
                f"{name} speaks the versions {hello.version_min} to {hello.version_max} of the protocol, and "
                f"{self.member.name} speaks {PROTOCOL_VERSION_MIN} to {PROTOCOL_VERSION}"
            )
        if member.cluster not in ("", self.member.cluster):
            raise MalformedFrame(f"{name} belongs to another cluster than {self.member.name}")
        if not member.store or member.store == self.member.store:
            raise MalformedFrame(f"{name} has the store id of {self.member.name}: one was copied from the other")
        if name == self.member.name:
            raise MalformedFrame(f"{name} is the master's name: {_RENAME}")
        for other in list(self._sessions):
            if other is session or other.member is None:
                continue
            if other.member.store != member.store:
                if other.connection and other.member.name == name:
                    raise MalformedFrame(f"another member that is connected has the name {name}: {_RENAME}")
                continue
            if other.member.run != member.run:
                raise MalformedFrame(f"{name} has the store id of {other.member.name}, which is connected")
            other.hang_up("the follower has connected again")
        self._sessions[session].cancel()
        self._connection_count += 1
        return self._connection_count

    def refused(self, peer: str, reason: str) -> None:
        """Log that a peer is no follower."""
        self._refusals.refused(peer, reason)

    def ended(self, session: FollowerSession) -> None:
        """Forget a session."""
        if (timer := self._sessions.pop(session, None)) is not None:
            timer.cancel()

    # ------------------------------------------------------------ connections

    def _accept(self) -> None:
        """Accept a connection; more than there may be are closed at once."""
        assert self._listener is not None, "it listens"
        loop = asyncio.get_running_loop()
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return  # it has gone again
        except OSError as error:
            _log.warning("a connection for replication cannot be accepted: %s", error)
            loop.remove_reader(self._listener)
            self._accept_timer = loop.call_later(ACCEPT_PAUSE_SECONDS, loop.add_reader, self._listener, self._accept)
            return
        if len(self._links) + len(self._opening) >= self._policy.connections_max and not self._make_room():
            _log.warning("a connection for replication is closed: there are %d", self._policy.connections_max)
            connection.close()
            return
        connection.setblocking(False)
        task = loop.create_task(self._open(connection))
        self._opening[task] = False
        task.add_done_callback(lambda done: self._opening.pop(done, None))

    def _make_room(self) -> bool:
        """Close the oldest connection that is no follower's yet: unknown peers must not keep followers out."""
        task = next(iter(self._handshaking()), None)
        if task is not None:
            del self._opening[task]
            task.cancel()
            return True
        session = next((each for each in self._sessions if not each.connection and not each.is_closed), None)
        if session is not None:
            session.hang_up("others came before its HELLO")
        return session is not None

    def _handshaking(self) -> Sequence[asyncio.Task[None]]:
        """Return the tasks that may be cancelled: the handshakes of TLS that have begun, the oldest one first.

        Without TLS a task ends with the next pass of the loop. Cancelled after `connection_made`, uvloop would
        close the connection without a call of `connection_lost`, so that it counted until the master stops.
        """
        return [] if self._tls is None else [each for each, has_begun in self._opening.items() if has_begun]

    async def _open(self, connection: socket.socket) -> None:
        """Make a link of a connection, after its TLS handshake."""
        is_tls = self._tls is not None
        if (task := asyncio.current_task()) in self._opening:
            self._opening[task] = True
        peer = "a connection"
        try:
            peer = peer_name(connection.getpeername())
            await asyncio.get_running_loop().connect_accepted_socket(
                self._new_link,
                connection,
                ssl=None if self._tls is None else self._tls.of_master(),
                ssl_handshake_timeout=self._policy.hello_seconds if is_tls else None,
                ssl_shutdown_timeout=CLOSE_SECONDS if is_tls else None,
            )
        except OSError as error:  # of TLS too
            self.refused(peer, described(error))
            connection.close()

    def _stop_accepting(self) -> None:
        if self._accept_timer is not None:
            self._accept_timer.cancel()
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def _new_link(self) -> FollowerLink:
        handshake = Handshake(self._secret, secrets.token_bytes(NONCE_BYTES), is_master=True)
        silence_seconds = 2 * self._policy.timeout
        check = None if self._tls is None else self._tls.check
        return FollowerLink(handshake, self._new_session, time.monotonic, silence_seconds, self._link_ended, check)

    def _link_ended(self, link: FollowerLink) -> None:
        self._links.discard(link)
        if not self._links:
            self._all_ended.set()

    def _new_session(self, link: FollowerLink) -> FollowerSession:
        session = FollowerSession(self, link)
        self._links.add(link)
        self._all_ended.clear()
        loop = asyncio.get_running_loop()
        reason = f"no HELLO came within {self._policy.hello_seconds:g} s"
        self._sessions[session] = loop.call_later(self._policy.hello_seconds, partial(session.hang_up, reason))
        return session

    def _ping(self) -> None:
        """Ping all followers, and close connections on which nothing came for too long."""
        loop = asyncio.get_running_loop()
        self._ping_timer = loop.call_later(
            self._policy.timeout / PINGS_PER_TIMEOUT, self._ping
        )  # first, whatever fails
        now, clock_ns = time.monotonic(), int(self._clock() * NANOSECONDS)
        limit = 2 * self._policy.timeout
        for session in list(self._sessions):
            if session.connection and now - session.heard_at > limit:
                session.hang_up(f"nothing came for {limit:g} s")
            else:
                session.ping(clock_ns, self._committed)
                is_due = now - session.compared_at > self._policy.compare_seconds
                if is_due and session.is_live and not session.is_comparing:
                    session.compare(is_slow=True)
        if not self._shipped_at or self._shipped_at[-1][0] < self.shipped:
            self._shipped_at.append((self.shipped, now))
