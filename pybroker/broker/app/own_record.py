"""The state of this member, as its entry in the store has it, and as `ha_state` shows it for any kind of store."""

import os
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol

from pybroker import __version__
from pybroker.broker.app.machine import clock
from pybroker.broker.domain.admin import Totals
from pybroker.broker.domain.network.rows import UP, BridgeRow, IncomingBridgeRow
from pybroker.broker.domain.role import Role
from pybroker.store.members import (
    BRIDGES_SHOWN,
    Followed,
    Load,
    MemberRecord,
    PublishedEnd,
    ReplicaReport,
    StoreIdentity,
)
from pybroker.transports.network.remote_text import one_line


class Running(Protocol):
    """A run of a member: `Node`."""

    def followed(self) -> Followed | None:
        """Return how far it has followed the journal; None for another role than standby."""
        ...

    def totals(self) -> Totals | None:
        """Return the counts of its broker; None unless it serves."""
        ...

    def bridges(self) -> Sequence[BridgeRow]:
        """Return the state of its bridges to other brokers; none unless it serves."""
        ...

    def incoming_bridges(self) -> Sequence[IncomingBridgeRow]:
        """Return the state of the bridges that other brokers have opened to it; none unless it serves."""
        ...

    def journal_end(self) -> PublishedEnd | None:
        """Return the end of its journal; None unless it serves one."""
        ...

    def lock_times(self) -> tuple[int, int]:
        """Return when it took the lock, and when it last found that it holds it, in milliseconds; 0 if it does not."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """The result of the last examination of this member and of the others.

    Attributes:
        obstacles: the reasons why it could not serve if it became master now.
        warnings: what is wrong besides.
        kinds: the kinds of both, in that order.
        behind_ms: for how long a standby has not reached an end of the journal that its master had published.
        settings: digests of settings, users and rules.
        identity: the marks of its store.
        checked_ms: when it was examined; 0: not yet.
        clean_ms: when nothing was wrong; 0: never.
    """

    obstacles: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    behind_ms: int = 0
    settings: dict[str, str] | None = None
    identity: StoreIdentity | None = None
    checked_ms: int = 0
    clean_ms: int = 0


def _not_examined() -> Examined:
    return Examined()


class OwnRecord:
    """The state of this member through all its runs.

    Attributes:
        running: its present run; None before the first.
        examined: returns the result of the last examination.
        management: the address of its management; empty: it has none.
        replica: returns its part in a replicated cluster; None: it has none.
    """

    def __init__(self, name: str, lock: str, lock_kind: str, journal: str = "") -> None:
        """Begin as a standby.

        Args:
            name: the name of the member.
            lock: the name of the lock.
            lock_kind: the setting `lock`.
            journal: the name of the journal's directory in the store's; empty: it has none.
        """
        now = clock()
        self.running: Running | None = None
        self.examined: Callable[[], Examined] = _not_examined
        self.management = ""
        self.replica: Callable[[], ReplicaReport] | None = None
        self._member = MemberRecord(
            name=name,
            role=Role.STANDBY,
            pid=os.getpid(),
            host=socket.gethostname(),
            version=__version__,
            since_ms=now,
            started_ms=now,
            updated_ms=now,
            lock=lock,
            lock_kind=lock_kind,
            journal=journal,
        )

    @property
    def name(self) -> str:
        """The name of the member."""
        return self._member.name

    @property
    def lock_kind(self) -> str:
        """Its setting `lock`."""
        return self._member.lock_kind

    @property
    def journal(self) -> str:
        """The name of its journal's directory."""
        return self._member.journal

    def take_role(self, role: Role, listeners: list[str], epoch: int) -> MemberRecord:
        """Return the state with a role, and listeners; an epoch of 0 leaves it unchanged."""
        member = self._member
        begins = role is not member.role
        self._member = replace(
            member,
            role=role,
            since_ms=clock() if begins else member.since_ms,
            promotions=member.promotions + (begins and role is Role.MASTER),
            listeners=tuple(listeners),
            epoch=epoch or member.epoch,
        )
        return self.current()

    def current(self) -> MemberRecord:
        """Return the present state."""
        running, examined = self.running, self.examined()
        followed = None if running is None else running.followed()
        since_ms, confirmed_ms = (0, 0) if running is None else running.lock_times()
        return replace(
            self._member,
            updated_ms=clock(),
            followed=None if followed is None else replace(followed, behind_ms=examined.behind_ms),
            load=None if running is None else _load(running),
            journal_end=None if running is None else running.journal_end(),
            lock_since_ms=since_ms,
            lock_confirmed_ms=confirmed_ms,
            obstacle="; ".join(examined.obstacles),
            obstacles=examined.obstacles,
            warnings=examined.warnings,
            kinds=examined.kinds,
            settings=examined.settings or {},
            identity=examined.identity,
            checked_ms=examined.checked_ms,
            clean_ms=examined.clean_ms,
            management=self.management,
            replica=None if self.replica is None else self.replica(),
        )


def _load(running: Running) -> Load | None:
    """Return the part of a broker's totals that is published, and the state of its bridges; None: it does not serve."""
    totals = running.totals()
    if totals is None:
        return None
    bridges, incoming = running.bridges(), running.incoming_bridges()
    down = [each for each in bridges if each.state != UP]
    refused = [each for each in incoming if each.problem]
    return Load(
        bridges=len(bridges),
        bridges_up=len(bridges) - len(down),
        bridge_problems=_shown(f"{each.connector} to {each.target}: {each.problem}" for each in down),
        incoming=len(incoming),
        incoming_problems=_shown(
            f"{each.connector} from {each.remote_name or each.client_id} at {each.address}: {each.problem}"
            for each in refused
        ),
        connections=totals.connections,
        waiting=totals.waiting,
        in_flight=totals.in_flight,
        is_full=totals.is_full,
        memory_bytes=totals.memory_bytes,
        memory_bytes_max=totals.memory_bytes_max,
        spool_bytes=totals.spool_bytes,
        is_spool_full=totals.is_spool_full,
        scheduled=totals.scheduled,
        loop_lag_ms=round(totals.loop_lag_seconds * 1000),
        loop_lag_cause=totals.loop_lag_cause,
        reconnections=totals.reconnections,
    )


def _shown(problems: Iterable[str]) -> tuple[str, ...]:
    """Return the first problems, shortened: an entry has a limit."""
    return tuple(one_line(each) for each in islice(problems, BRIDGES_SHOWN))
