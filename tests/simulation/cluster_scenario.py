"""Scenario `cluster`: whole members, with listeners and clients over OpenWire and STOMP.

Each member is what `pybroker start` runs, from `Node` down: it waits for the lock, follows the journal, takes over,
serves, steps back. Its machine is simulated: clocks, threads, files, the lock, ports. Producers, consumers, durable
subscribers and transaction managers are clients with failover. What happens to members is in `faults`.

The checker sees what clients see, and who publishes that it is master:

* What was confirmed is delivered: a send with its answer, a transaction with the answer to its commit, which is
  otherwise delivered whole or not at all.
* A message whose acknowledgement was answered never comes again, and one that comes again is marked. A former master
  that was frozen may still have on its way what the next one has delivered: no delivery waits for a fence.
* Where a queue has one consumer, first deliveries are in the order of each producer's sends.
* A durable subscription gets what is sent after it was answered; a scheduled message comes, and not before its time; an
  XA branch that is prepared stays in doubt until its outcome is sent.
* Two members are not both master for longer than an idle one may take to look at the journal.
"""

import asyncio
import gc
import shutil
from collections import Counter
from functools import partial
from typing import NamedTuple
from unittest import mock

from pybroker.broker.app import wiring
from pybroker.broker.app.config import Config
from pybroker.broker.app.machine import Machine
from pybroker.broker.app.node import Node
from pybroker.broker.domain.destination import Destination, queue, topic
from pybroker.broker.domain.errors import BrokerError, LockNotHeld
from pybroker.broker.domain.ports import LockProvider
from pybroker.broker.domain.role import Role
from pybroker.store.journal.files import System
from tests.simulation.clients import PORTS, Client, Consumer, Producer, XAProducer
from tests.simulation.disk import SimDisk, SimSystem, make_root
from tests.simulation.faults import Faults
from tests.simulation.locks import LockServer, SimLock
from tests.simulation.net import Net, NetLoop
from tests.simulation.world import Process, Violation, World, run_loop
from tests.soundness import assert_sound

FAULTS_END = 0.4
END = 6.0
"""Seconds by which every message must have been consumed."""

STOP_SECONDS = 2.0
OVERLAP_SECONDS = 1.6
"""An idle master checks once a second if another one has taken over, and may be slow to step back."""

FILE_BYTES = 1 << 20
"""The least size of data files: preallocated ones, which are written in memory, are slow."""

MEMORY_LIMITS = (1 << 30, 65536)
"""Memory limits of members; the second one is reached now and then."""

CLOCK_TICK_SECONDS = 0.001

DESTINATIONS = ((queue("A"),), (queue("A"), queue("B")), (topic("T"),), (queue("A"), topic("T")))
"""Destinations of a history; a consumer of a topic has a durable subscription."""

PAUSE_SECONDS = 0.05
"""Pause before a member that has lost its lock stands by again."""


class Sending(NamedTuple):
    """A message that a producer has begun to send.

    Attributes:
        producer: whose it is.
        sequence: the producer's number of it.
        readers: who must get it: its queue, or the durable subscriptions that its topic had before.
        not_before: when a scheduled message may be delivered; 0 for one that is not scheduled.
    """

    producer: str
    sequence: int
    readers: frozenset[str]
    not_before: float


class ClientChecker:
    """Checks what clients were promised."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._sent: dict[str, Sending] = {}
        self._confirmed: set[str] = set()
        self._delivered: Counter[tuple[str, str]] = Counter()
        self._unflagged: set[tuple[str, str]] = set()
        self._consumed: set[tuple[str, str]] = set()
        self._transactions: dict[str, list[str]] = {}
        self._uncommitted: set[str] = set()
        self._latest: dict[tuple[str, str], int] = {}
        self._subscriptions: dict[str, Destination] = {}

    def subscribed(self, consumer: Consumer) -> None:
        """A subscription was answered."""
        self._subscriptions[consumer.reader] = consumer.destination

    def sent(self, producer: Producer, sequence: int, to: Destination, body: str, delay: float) -> None:
        """A producer is about to send."""
        readers = {name for name, topic in self._subscriptions.items() if topic == to} if to.is_topic else {str(to)}
        self._sent[body] = Sending(producer.name, sequence, frozenset(readers), delay and self._world.now + delay)

    def is_wanted(self, bodies: list[str]) -> bool:
        """Return True if anyone must get one of them. A topic's message that no one has subscribed to is not stored."""
        return any(self._sent[body].readers for body in bodies)

    def confirmed(self, body: str) -> None:
        """A send was answered."""
        self._world.record("client", f"{body[:20]} is confirmed")
        self._confirmed.add(body)

    def refused(self, body: str) -> None:
        """A send was refused."""
        self._world.record("client", f"{body[:20]} is refused")

    def transacted(self, bodies: list[str]) -> None:
        """Messages are to be sent in one transaction."""
        self._transactions.update(dict.fromkeys(bodies, bodies))
        self._uncommitted.update(bodies)

    def committing(self, bodies: list[str]) -> None:
        """A commit is about to be sent."""
        self._uncommitted.difference_update(bodies)

    def committed(self, bodies: list[str]) -> None:
        """A commit was answered."""
        self._world.record("client", f"{bodies[0][:20]} to {bodies[-1][:20]} are committed")
        self._confirmed.update(bodies)

    def delivered(self, consumer: Consumer, message_id: str, body: str, redeliveries: int) -> None:
        """A consumer got a message."""
        self._world.record(consumer.name, f"gets {body[:20]}{', again' if redeliveries else ''}")
        if body not in self._sent:
            raise Violation(f"{consumer.name} got {body!r}, which was never sent")
        if body in self._uncommitted:
            raise Violation(f"{consumer.name} got {body[:20]} before its commit")
        sent, reader = self._sent[body], consumer.reader
        if self._world.now < sent.not_before - CLOCK_TICK_SECONDS:
            raise Violation(f"{consumer.name} got {body[:20]} before its time")
        if not sent.not_before:
            self._require_no_surprise(consumer, message_id, body, redeliveries)
            if consumer.is_alone and reader in sent.readers and not self._delivered[reader, body]:
                latest = self._latest.get((sent.producer, reader), 0)
                if sent.sequence < latest:
                    raise Violation(f"{consumer.name} got {body[:20]} first after number {latest} of the same producer")
                self._latest[sent.producer, reader] = sent.sequence
        self._delivered[reader, body] += 1
        self._confirmed.update(self._transactions.get(body, ()))  # of what is committed all must come, scheduled or not

    def _require_no_surprise(self, consumer: Consumer, message_id: str, body: str, redeliveries: int) -> None:
        """Require that a message comes again only if it may, and marked. A scheduled one may come twice (ha.md)."""
        key = consumer.reader, message_id
        if key in self._consumed and not consumer.is_at_former_master:
            raise Violation(f"{consumer.name} got {body[:20]} ({message_id}) after its acknowledgement was answered")
        if not redeliveries:
            if key in self._unflagged:
                raise Violation(f"{consumer.name} got {body[:20]} ({message_id}) again as if for the first time")
            self._unflagged.add(key)

    def consumed(self, consumer: Consumer, message_id: str) -> None:
        """An acknowledgement was answered."""
        self._consumed.add((consumer.reader, message_id))

    def missing(self) -> list[str]:
        """Return what was confirmed and not delivered yet."""
        return sorted(
            f"{body[:20]} to {reader}"
            for body in self._confirmed
            for reader in self._sent[body].readers
            if not self._delivered[reader, body]
        )

    def require_all(self) -> None:
        """Look at everything once all queues are empty."""
        if missing := self.missing():
            raise Violation(f"confirmed, and never delivered: {missing}")


class Slot:
    """A host with a member on it, one process after the other."""

    def __init__(self, scenario: "ClusterScenario", number: int) -> None:
        self.scenario = scenario
        self.host = f"10.0.0.{number}"
        self.name = f"member-{number}"
        self.role = Role.STOPPED
        self.is_serving = False
        self.node: Node | None = None
        self.is_stopping = False
        self._lives = 0
        self._ids = 0
        self.start()

    def start(self) -> None:
        """Start a process."""
        scenario, self._lives = self.scenario, self._lives + 1
        scenario.world.record(self.name, "starts")
        self.process = process = Process(scenario.world, self.name)
        self.node = None
        process.clock_error_ms = 0 if scenario.schedules else scenario.world.random.choice((0, 0, -3_600_000, 5000))
        process.on_death.append(self._died)
        self.system = SimSystem(scenario.disk, process)
        self.system.failing = scenario.faults.check
        self.config = Config(
            store=str(scenario.root),
            name=self.name,
            bind=self.host,
            anonymous="everywhere",
            **PORTS,
            lock_check=0.2,
            cleanup_interval=0.1,
            expire_interval=0.1,
            disk_reserve=scenario.reserve_bytes,
            memory_limit=scenario.memory_limit,
            spool_limit=scenario.spool_limit,
            journal_file_max=FILE_BYTES,
            journal_batch_max=FILE_BYTES,
            journal_preallocate=scenario.preallocates,
            stop_timeout=0.3,
        )
        self.machine = Machine(
            clock=process.clock,
            monotonic=process.monotonic,
            spawn=process.spawn,
            inbox=process.inbox,
            event=process.event,
            system=_as_system(self.system),
            bind=partial(scenario.net.bind, process),  # type: ignore[arg-type]  # what `Server` uses of a socket
            new_id=self._new_id,
            make_lock=self._make_lock,
            large_page_bytes=lambda: 0,
        )
        run_loop(process, self._live, NetLoop)

    async def _live(self) -> None:
        """Run one process after another, as `serve` does."""
        creatable = wiring.creatable(self.config)
        while not self.is_stopping:
            self.node = node = Node(self.config, self._publish, None, creatable, self.machine)
            try:
                await node.run()
            except LockNotHeld:
                creatable = node.creatable
                if not self.is_stopping:
                    await asyncio.sleep(PAUSE_SECONDS)
            except BrokerError as error:
                self.scenario.world.record(self.name, f"gives up: {type(error).__name__}")
                return
            else:
                return

    def stop(self) -> None:
        """Request an orderly end."""
        self.is_stopping = True
        loop = self.process.loop
        if not self.process.is_dead and loop is not None and self.node is not None:
            self.scenario.world.record(self.name, "is asked to stop")
            loop.call_soon_threadsafe(self.node.stop)

    def _publish(self, role: Role, listeners: list[str], epoch: int) -> None:
        if role is not self.role:
            self.scenario.world.record(self.name, f"is {role.value}")
        self.role = role
        self.is_serving = role is Role.MASTER and bool(listeners or self.is_serving)

    def _died(self) -> None:
        self.role = Role.STOPPED
        self.is_serving = self.is_stopping = False

    def _make_lock(self, config: Config) -> LockProvider:
        return SimLock(self.scenario.locks, self.process)

    def _new_id(self) -> str:
        self._ids += 1
        return f"ID:{self.name}-{self._lives}-1-1:{self._ids}"


class ClusterScenario:
    """One history."""

    def __init__(self, seed: int, *, is_traced: bool = False) -> None:
        self.world = World(seed, is_traced=is_traced)
        random = self.world.random
        self.root = make_root(seed)
        self.disk = SimDisk(self.world, self.root)
        self.locks = LockServer(self.world)
        self.net = Net(self.world)
        self.checker = ClientChecker(self.world)
        self.reserve_bytes = random.choice((0, 65536))
        self.memory_limit = random.choice(MEMORY_LIMITS)
        self.spool_limit = (0, 1 << 20, 1 << 30)[seed % 3]
        self.preallocates = random.random() < 0.1
        self.schedules = random.random() < 0.4
        """True: some messages are scheduled, and the members' clocks are together, as these need it."""
        self.slots: list[Slot] = []
        self.faults = Faults(self.disk, self.locks, self.slots)
        self.hosts = [f"10.0.0.{number}" for number in range(1, random.choice((2, 2, 3)) + 1)]
        self.clients: list[Client] = []
        self._overlap_since: float | None = None
        self._is_over = False

    # A new master would set aside the garbage of this process, and a former one have all objects looked at again.
    @mock.patch.multiple(gc, freeze=lambda: None, unfreeze=lambda: None)
    def run(self) -> None:
        """Let the history happen.

        Raises:
            Violation: a promise was not kept.
        """
        try:
            self.slots += [Slot(self, number) for number in range(1, len(self.hosts) + 1)]
            self.world.after(0.005, self._start_clients)
            self.world.after(0.01, self._watch)
            self.world.after(0.01, self._revive)
            self._plan()
            self.world.run(FAULTS_END)
            self.faults.end()
            self._run_until_consumed()
            self.checker.require_all()
            self._is_over = True
            for slot in self.slots:
                slot.stop()
            self.world.run(self.world.now + STOP_SECONDS)
            self._require_end()
        finally:
            self.world.end()
            shutil.rmtree(self.root)

    def _run_until_consumed(self) -> None:
        while not all(each.is_done for each in self.clients) or self.checker.missing():
            if self.world.now >= END:
                roles = [(slot.name, slot.role.value) for slot in self.slots]
                busy = [each.name for each in self.clients if not each.is_done]
                raise Violation(f"not consumed at the end: {self.checker.missing()}, {roles}, {busy}")
            self.world.run(self.world.now + 0.05)
        self.world.run(self.world.now + 0.1)  # whatever else there is
        if self.checker.missing():  # a message of a commit without an answer came in this time: the others must follow
            self._run_until_consumed()

    # ------------------------------------------------------------ load

    def _start_clients(self) -> None:
        random = self.world.random
        names = random.choice(DESTINATIONS)
        for number, name in enumerate(names):
            consumers = random.choice((1, 1, 2))
            for letter in "xy"[:consumers]:
                consumer = Consumer(self, f"consumer-{number}{letter}", random.choice(tuple(PORTS)), name)
                consumer.is_alone = consumers == 1 or name.is_topic
                self.clients.append(consumer)
            for letter in "xy"[: random.choice((1, 2))]:
                protocol = random.choice(tuple(PORTS))
                to = names if random.random() < 0.3 else (name,)
                self.clients.append(Producer(self, f"p{number}{letter}", protocol, to, random.randint(5, 60)))
            if random.random() < 0.4:
                self.clients.append(XAProducer(self, f"p{number}z", "openwire", (name,), random.randint(10, 40)))

    # ------------------------------------------------------------ faults

    def _plan(self) -> None:
        faults = self.faults
        weights = {
            faults.kill: 4.0,
            faults.fail_power: 2.0,
            faults.freeze: 3.0,
            faults.revoke: 3.0,
            faults.stop: 2.0,
            faults.fill: 0.7,
            faults.fail_disk: 0.7,
            faults.step_clock: 0.0 if self.schedules else 1.0,
            self._drop_client: 2.0,
        }
        faults.plan(0.01, FAULTS_END, 6, weights)

    def _revive(self) -> None:
        """Start members on hosts where there is none, until there is nothing left to do."""
        if self._is_over:
            return
        for slot in self.slots:
            if slot.process.is_dead and self.world.random.random() < 0.5:
                slot.start()
        self.world.after(self.world.random.uniform(0, 0.1), self._revive)

    def _drop_client(self) -> None:
        if self.clients:
            self.world.random.choice(self.clients).hang_up()

    # ------------------------------------------------------------ who is master

    def _watch(self) -> None:
        """See that there are no two masters for long; one that is frozen does nothing."""
        masters = [
            slot
            for slot in self.slots
            if slot.is_serving and not slot.process.is_dead and slot.process.frozen_until <= self.world.now
        ]
        if len(masters) < 2:
            self._overlap_since = None
        elif self._overlap_since is None:
            self._overlap_since = self.world.now
        elif self.world.now - self._overlap_since > OVERLAP_SECONDS:
            raise Violation(f"several masters for long: {[slot.name for slot in masters]}")
        self.world.after(0.02, self._watch)

    def _require_end(self) -> None:
        for slot in self.slots:
            if not slot.process.is_dead:
                raise Violation(f"{slot.name} does not end: {slot.role.value}")
        assert_sound(self.root)


def _as_system(system: SimSystem) -> System:
    return system  # type: ignore[return-value]  # its parameters have other names
