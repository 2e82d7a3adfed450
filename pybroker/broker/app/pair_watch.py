"""Watches a pair from one of its members, master or standby, and reports when it is degraded and when healthy again.

A thread of its own looks at the store once a second. If a look does not come back, that is the finding: the event loop
goes on, and so do the clients of a master whose share answers them but not this thread.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

from pybroker.broker.app.ha_events import HaEvent, HaEventKind, Report
from pybroker.broker.app.machine import MACHINE, Machine
from pybroker.broker.app.own_record import Examined, Running
from pybroker.broker.app.pair_examination import Examine, OwnFacts
from pybroker.broker.app.pair_judgement import Judgement, PairFacts, PairFinding, PairMemory, judge
from pybroker.broker.domain.role import Role

LOOK_SECONDS: Final = 1.0
"""The interval of looks, each of some 0.4 ms on a local disk."""

HANG_SECONDS: Final = 3.0
"""The time after which a look that has not come back is a finding."""

_log = logging.getLogger(__name__)


class WatchedRun(Running, Protocol):
    """A run of a member, as the watch needs it: `Node`."""

    @property
    def role(self) -> Role:
        """Its role."""
        ...

    @property
    def is_waiting(self) -> bool:
        """True once another member was found to have the lock."""
        ...

    def journal_problem(self) -> str:
        """Return the reason why a standby cannot follow the journal; empty if it can."""
        ...


class PairWatch:
    """The looks at one pair, and what they have shown.

    Attributes:
        node: the present run of this member; None before the first.
        changed: called after findings have come or gone.
    """

    def __init__(
        self, name: str, examine: Examine, report: Report, inode: Callable[[], int] = int, machine: Machine = MACHINE
    ) -> None:
        """Create it; nothing is looked at yet.

        Args:
            name: the name of this member.
            examine: looks at the pair. Blocks.
            report: takes events.
            inode: returns the inode of this member's entry; 0: it has none.
            machine: the machine of this member.
        """
        self.node: WatchedRun | None = None
        self.changed: Callable[[], object] = int
        self._name = name
        self._examine = examine
        self._report = report
        self._inode = inode
        self._machine = machine
        self._memory = PairMemory()
        self._examined = Examined()
        self._findings: tuple[PairFinding, ...] = ()
        self._degraded_at: float | None = None

    def examined(self) -> Examined:
        """Return what the looks have shown."""
        return self._examined

    def obstacle(self) -> str:
        """Return the reasons why a standby could not serve; empty if it could, or for another role."""
        is_standby = self.node is not None and self.node.role is Role.STANDBY
        return "; ".join(self._examined.obstacles) if is_standby else ""

    async def run(self) -> None:
        """Look until cancelled."""
        looks = _Looks(self._examine, self._machine)
        try:
            while True:
                node = self.node
                # One that is about to try the lock may be the first of a new store, which has no lock file yet.
                if node is not None and (node.role is Role.MASTER or (node.role is Role.STANDBY and node.is_waiting)):
                    await self._look(looks, node)
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            looks.end()

    async def _look(self, looks: "_Looks", node: WatchedRun) -> None:
        """Look once, and report while the look does not come back."""
        began_at = self._machine.monotonic()
        look = looks.begin(self._own_facts(node, began_at))
        while not (await asyncio.wait({look}, timeout=LOOK_SECONDS))[0]:
            seconds = self._machine.monotonic() - began_at
            if seconds > HANG_SECONDS and self.node is not None:
                text = f"the store has not answered for {seconds:.0f} s"
                hanging = PairFinding("hanging", text, is_obstacle=self.node.role is Role.STANDBY)
                self._conclude(Judgement((hanging,), is_clean=False), None)
        facts = look.result()
        if self.node is not None and self.node.role is facts.role:  # else it is about a former role
            self._conclude(judge(facts, self._memory), facts)

    def _own_facts(self, node: WatchedRun, now: float) -> OwnFacts:
        since_ms, confirmed_ms = node.lock_times()
        return OwnFacts(
            role=node.role,
            name=self._name,
            now=now,
            inode=self._inode(),
            journal_problem=node.journal_problem(),
            followed=node.followed(),
            unconfirmed_seconds=max(0, self._machine.clock() - confirmed_ms) / 1000 if since_ms else 0.0,
        )

    def _conclude(self, judgement: Judgement, facts: PairFacts | None) -> None:
        """Take over the result of a look, and report what has changed."""
        before, now_ms = self._examined, self._machine.clock()
        findings = judgement.findings
        behind = self._memory.behind_seconds(facts) if facts is not None else 0.0
        self._examined = Examined(
            obstacles=tuple(each.text for each in findings if each.is_obstacle),
            warnings=tuple(each.text for each in findings if not each.is_obstacle),
            kinds=tuple(each.kind for each in sorted(findings, key=_obstacles_first)),
            behind_ms=round(behind * 1000),
            settings=facts.settings if facts is not None else before.settings,
            identity=facts.identity if facts is not None else before.identity,
            checked_ms=now_ms if facts is not None else before.checked_ms,
            clean_ms=now_ms if judgement.is_clean else before.clean_ms,
        )
        kinds = {each.kind for each in findings}
        has_changed = kinds != {each.kind for each in self._findings}
        new = [each for each in findings if each.kind not in {each.kind for each in self._findings}]
        self._findings = findings
        if findings and self._degraded_at is None:
            self._degraded_at = self._machine.monotonic()
            self._report_degraded(findings)
        elif new:
            _log_findings(new)
        elif judgement.is_clean and self._degraded_at is not None:
            self._report_healthy(self._machine.monotonic() - self._degraded_at)
            self._degraded_at = None
        if has_changed or before.identity != self._examined.identity or before.settings != self._examined.settings:
            self.changed()

    def _report_degraded(self, findings: tuple[PairFinding, ...]) -> None:
        _log_findings(findings)
        reasons = tuple(each.text for each in findings)
        self._report(HaEvent(kind=HaEventKind.DEGRADED, role=self._role, reasons=reasons))

    def _report_healthy(self, seconds: float) -> None:
        _log.info("healthy again after %.0f s", seconds)
        self._report(HaEvent(kind=HaEventKind.HEALTHY, role=self._role, degraded_ms=round(seconds * 1000)))

    @property
    def _role(self) -> Role:
        return Role.STANDBY if self.node is None else self.node.role


def _obstacles_first(finding: PairFinding) -> bool:
    return not finding.is_obstacle


def _log_findings(findings: "tuple[PairFinding, ...] | list[PairFinding]") -> None:
    """Log in one line what is wrong."""
    texts = "; ".join(each.text for each in findings)
    if any(each.is_obstacle for each in findings):
        _log.error("degraded: this standby could not serve if it became master now: %s", texts)
    else:
        _log.warning("degraded: %s", texts)


class _Looks:
    """The thread that looks."""

    def __init__(self, examine: Examine, machine: Machine) -> None:
        """Start it."""
        self._examine = examine
        self._loop = asyncio.get_running_loop()
        self._inbox = machine.inbox()
        machine.spawn("pair watch", self._run)

    def begin(self, own: OwnFacts) -> "asyncio.Future[PairFacts]":
        """Begin a look; the future has its result. One at a time."""
        future: asyncio.Future[PairFacts] = self._loop.create_future()
        self._inbox.put((own, future))
        return future

    def end(self) -> None:
        """End the thread, after its present look."""
        self._inbox.put(None)

    def _run(self) -> None:
        while (asked := self._inbox.get()) is not None:
            own, future = asked
            try:
                found = self._examine(own)
            except Exception as error:  # a bug, which the log is to show, and which keeps no member from serving
                _log.exception("looking at the pair failed unexpectedly")
                found = PairFacts(
                    role=own.role, name=own.name, now=own.now, directory="", store_problem=f"unexpected: {error!r}"
                )
            try:
                self._loop.call_soon_threadsafe(_settle, future, found)
            except RuntimeError:  # the event loop is closed: the member has ended
                return


def _settle(future: "asyncio.Future[PairFacts]", found: PairFacts) -> None:
    if not future.done():
        future.set_result(found)
