"""Scenario `store`: masters of one journal, one after the other and sometimes two at once, over `JournalStore`.

Members wait for the lock while they follow the journal, recover it, and then add, remove, prepare, commit, clean up and
ask to be notified when that is durable. Around them the lock is taken away, power fails, disks fill up, clocks jump.

The checker knows nothing of journals. Of each term it keeps the store's operations, in order, and up to where someone
was promised that it lasts. What the next master finds must be the outcome of a beginning of that, not shorter than
what was promised; whatever a former master promises later must lie in that beginning.
"""

import asyncio
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.errors import BrokerError
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.recovery import Recovery
from pybroker.broker.domain.transaction import LocalTransactionId, TransactionId, XATransactionId
from pybroker.store.journal.appender import JournalSettings
from pybroker.store.journal.files import JournalFiles, System
from pybroker.store.journal.follower import Follower
from pybroker.store.journal.store import JournalStore
from pybroker.store.runtime import StoreRuntime
from tests.conformance.conftest import text_message
from tests.simulation.disk import SimDisk, SimSystem, make_root
from tests.simulation.faults import Faults
from tests.simulation.locks import LockServer, SimLock
from tests.simulation.world import Process, Violation, World, run_loop
from tests.soundness import assert_sound

FAULTS_END = 0.2
"""Seconds until nothing bad happens any more."""

END = 1.7
"""Seconds by which a member must serve again, and have stopped in order."""

QUEUES = (queue("A"), queue("B"))
SETTINGS = JournalSettings(file_bytes_max=8192, batch_bytes_max=2000, compact_after_cleanups=1)

Contents = dict[str, list[str]]
Branches = dict[str, tuple[frozenset[str], frozenset[str]]]
"""Transactions in doubt: ids of messages sent and consumed."""


@dataclass(slots=True)
class Operation:
    """An operation of a store."""

    method: str
    queue: str = ""
    message_id: str = ""
    transaction: str = ""


@dataclass(slots=True)
class Outcome:
    """Result of a sequence of operations."""

    queues: Contents = field(default_factory=lambda: {str(each): [] for each in QUEUES})
    open: dict[str, list[Operation]] = field(default_factory=dict[str, list[Operation]])
    prepared: dict[str, list[Operation]] = field(default_factory=dict[str, list[Operation]])

    def copy(self) -> "Outcome":
        return Outcome(
            {name: list(ids) for name, ids in self.queues.items()},
            {name: list(each) for name, each in self.open.items()},
            {name: list(each) for name, each in self.prepared.items()},
        )

    def apply(self, operation: Operation) -> None:
        method, name = operation.method, operation.transaction
        if method in ("add", "remove"):
            if name:
                self.open.setdefault(name, []).append(operation)
            elif method == "add":
                self.queues[operation.queue].append(operation.message_id)
            elif operation.message_id in self.queues[operation.queue]:
                self.queues[operation.queue].remove(operation.message_id)
            return
        done = self.open.pop(name, [])
        if method == "prepare":
            if done:
                self.prepared[name] = done
            return
        done += self.prepared.pop(name, [])
        if method == "commit":
            for each in done:
                self.apply(replace(each, transaction=""))

    def recovered(self) -> "Outcome":
        """Return what is left when no one goes on with what was not prepared."""
        return replace(self.copy(), open={})

    def branches(self) -> Branches:
        return {name: _branch(each) for name, each in self.prepared.items()}


def _branch(operations: Sequence[Operation]) -> tuple[frozenset[str], frozenset[str]]:
    ids = {method: frozenset(o.message_id for o in operations if o.method == method) for method in ("add", "remove")}
    return ids["add"], ids["remove"]


class Term:
    """One master, from its recovery on, as the checker sees it."""

    def __init__(self, name: str, epoch: int, begun: Outcome) -> None:
        self.name = name
        self.epoch = epoch
        self.begun = begun
        self.now = begun.copy()
        self.operations: list[Operation] = []
        self.durable = 0
        """Operations that someone was promised."""
        self.sent = 0
        """Operations whose senders were promised their sends."""
        self.retained: int | None = None
        """Operations that the next master has found; None before there is one."""

    def do(self, operation: Operation) -> None:
        self.operations.append(operation)
        self.now.apply(operation)

    def after(self, count: int) -> Outcome:
        """Return what a crash behind so many operations leaves."""
        outcome = self.begun.copy()
        for operation in self.operations[:count]:
            outcome.apply(operation)
        return outcome.recovered()

    def consumed(self) -> frozenset[str]:
        """Return what may never have been written: it was consumed, outside of transactions."""
        return frozenset(o.message_id for o in self.operations if o.method == "remove" and not o.transaction)


class Checker:
    """Compares what masters find with what masters did."""

    def __init__(self, world: World, *, elides: bool) -> None:
        self._world = world
        self._elides = elides
        self.terms: list[Term] = [Term("no one", 0, Outcome())]
        self.in_transactions: set[str] = set()
        """Messages whose place in their queue means nothing."""

    @property
    def latest(self) -> Term:
        return max(self.terms, key=lambda term: term.epoch)

    def begin(self, name: str, epoch: int, queues: Contents, branches: Branches) -> Term:
        """Learn what a new master found, in the moment in which it has."""
        former = self.latest
        if epoch <= former.epoch:
            # Someone has taken over, and this one may find out at its first promise.
            term = Term(name, epoch, former.begun.copy())
            term.retained = 0
        else:
            term = Term(name, epoch, self._judge(former, queues, branches))
        self.terms.append(term)
        self._world.record(name, f"is master of epoch {epoch}: {sum(map(len, queues.values()))} messages")
        return term

    def _judge(self, former: Term, queues: Contents, branches: Branches) -> Outcome:
        """Return the beginning of the former master's operations that was found."""
        optional = former.consumed() if self._elides else frozenset[str]()
        least = max(former.durable, self._least_of_sent(former, optional))
        outcomes = [former.begun.copy()]
        for count, operation in enumerate(former.operations, 1):
            if count > least:
                outcomes.append(outcomes[-1].copy())
            outcomes[-1].apply(operation)
        for count, outcome in zip(range(len(former.operations), least - 1, -1), reversed(outcomes), strict=True):
            if self._is_same(outcome, queues, branches, optional):
                former.retained = count
                found = outcome.recovered()
                found.queues = {name: list(queues.get(name, ())) for name in found.queues}
                return found
        raise Violation(
            f"{former.name} did {len(former.operations)} operations and promised {least}; no beginning of them "
            f"leads to {queues} {branches}, the whole to {outcomes[-1].queues} {outcomes[-1].branches()}"
        )

    def _least_of_sent(self, term: Term, optional: frozenset[str]) -> int:
        added = [
            index
            for index, each in enumerate(term.operations[: term.sent])
            if each.method == "add" and each.message_id not in optional
        ]
        return added[-1] + 1 if added else 0

    def _is_same(self, outcome: Outcome, queues: Contents, branches: Branches, optional: frozenset[str]) -> bool:
        if branches != outcome.branches():
            return False
        for name, expected in outcome.queues.items():
            found = queues.get(name, [])
            if len(found) != len(set(found)) or not set(expected) - optional <= set(found) <= set(expected):
                return False
            plain = [each for each in found if each not in self.in_transactions]
            if plain != [each for each in expected if each in set(plain)]:
                return False
        return True

    def promise(self, term: Term, what: str, count: int) -> None:
        """Learn that a master has promised something."""
        if term.retained is not None and count > term.retained and self._is_about_more(term, what, count):
            raise Violation(
                f"{term.name} promised {count} operations ({what}) after another master had found {term.retained}"
            )
        setattr(term, what, max(getattr(term, what), count))

    def _is_about_more(self, term: Term, what: str, count: int) -> bool:
        """Return True if a promise covers more than was retained: one about sends covers those, unless consumed."""
        assert term.retained is not None
        if term.after(term.retained) == term.after(count):
            return False  # such as the commit of a transaction that did nothing
        optional = term.consumed() if self._elides else frozenset[str]()
        more = [each for each in term.operations[term.retained : count] if each.message_id not in optional]
        return any(each.method == "add" or what == "durable" for each in more)


class Member:
    """A process that wants to be master, and then works."""

    def __init__(self, scenario: "StoreScenario", name: str) -> None:
        self.scenario = scenario
        self.world = scenario.world
        self.process = Process(self.world, name)
        self.process.clock_error_ms = self.world.random.choice((0, 0, -3_600_000, 5000))
        self.system = SimSystem(scenario.disk, self.process)
        self.system.failing = scenario.faults.check
        self.lock = SimLock(scenario.locks, self.process)
        self.store: JournalStore | None = None
        self.term: Term | None = None
        self.is_stopping = False
        self.has_ended = False
        self.error: Exception | None = None
        run_loop(self.process, self.live)

    def stop(self) -> None:
        """Request an orderly end."""
        self.is_stopping = True

    async def live(self) -> None:
        """Wait, serve, end."""
        try:
            follower = await self._wait_for_lock()
            await self._serve(follower)
        except (BrokerError, OSError) as error:
            self.error = error
            self.world.record(self.process.name, f"gives up: {type(error).__name__}")
            if self.store is not None:
                self.store.abandon()
        finally:
            self.has_ended = True
        self.lock.release()

    async def _wait_for_lock(self) -> Follower | None:
        loop = asyncio.get_running_loop()
        random = self.world.random
        follower = Follower(self.scenario.directory) if random.random() < 0.6 else None
        waiting = loop.run_in_executor(None, self.lock.acquire)
        while not waiting.done():
            await asyncio.wait([waiting], timeout=self._pause(0.01))
            if follower is not None:
                step = follower.advance(scan=random.random() < 0.3)
                if step.is_at_end and random.random() < 0.2:
                    follower.cache_ids()
        return follower

    async def _serve(self, follower: Follower | None) -> None:
        loop = asyncio.get_running_loop()
        failed: asyncio.Future[Exception] = loop.create_future()
        scenario = self.scenario
        self.store = store = scenario.make_store(self, loop, failed, follower)
        self.term = term = await loop.run_in_executor(None, self._recover, store)
        store.cleanup()
        work = Work(self, store, term)
        while not self.is_stopping and not failed.done():
            await asyncio.wait([failed], timeout=self._pause(0.003))
            if not failed.done():
                work.go_on()
        if failed.done():
            raise failed.result()
        store.close()
        scenario.checker.promise(term, "durable", len(term.operations))
        self.world.record(self.process.name, "stopped in order")

    def _pause(self, typical: float) -> float:
        """Return how long no one wants anything; where nothing bad happens any more, there is not much to learn."""
        return self.world.duration(typical) if self.world.now < FAULTS_END else self.world.random.uniform(0, 0.1)

    def _recover(self, store: JournalStore) -> Term:
        recovery = store.recover()
        queues = {str(name): list(ids) for name, ids in recovery.queues.items()}
        if store.damages:
            raise Violation(f"{self.process.name} found damage: {store.damages}")
        term = self.scenario.checker.begin(self.process.name, store.epoch, queues, _branches(recovery))
        if term.retained is None:
            self._read_all(store, recovery)
        return term

    def _read_all(self, store: JournalStore, recovery: Recovery) -> None:
        for name, ids in recovery.queues.items():
            found = [(each.message_id, each.data) for each in store.read(name, ids)]
            if found != [(each, self.scenario.messages[each].data) for each in ids]:
                raise Violation(f"{self.process.name} reads other messages on {name} than were sent")


def _branches(recovery: Recovery) -> Branches:
    return {
        str(each.transaction_id): (
            frozenset(sent.message_id for sent in each.sent),
            frozenset(acknowledged.message_id for acknowledged in each.acknowledged),
        )
        for each in recovery.prepared
    }


class Work:
    """Work of a master for its clients."""

    def __init__(self, member: Member, store: JournalStore, term: Term) -> None:
        self._scenario = member.scenario
        self._random = member.world.random
        self._member = member
        self._store = store
        self._term = term
        self._unanswered = [each for each in self._scenario.unanswered() if self._random.random() < 0.7]
        self._decided: dict[str, TransactionId] = {}
        for name in term.now.prepared:
            self._decided[name] = self._scenario.transactions[name]
        self._open: list[TransactionId] = []

    def go_on(self) -> None:
        """Do some things in one turn of the loop."""
        random = self._random
        for _ in range(random.choice((1, 1, 2, 5))):
            random.choices(
                (self._add, self._remove, self._relay, self._begin, self._end, self._cleanup, self._index),
                (8, 6, 4, 1.5, 2, 0.4, 0.1),
            )[0]()
        if random.random() < 0.7:
            what = random.choice(("durable", "sent"))
            count = len(self._term.operations)
            callback = partial(self._scenario.checker.promise, self._term, what, count)
            (self._store.when_durable if what == "durable" else self._store.when_confirmed)(callback)

    def _add(self, transaction: TransactionId | None = None) -> Message | None:
        if self._unanswered and transaction is None:
            message = self._unanswered.pop(0)
        else:
            message = self._scenario.new_message(self._random)
        if transaction is not None:
            self._scenario.checker.in_transactions.add(message.message_id)
        if self._store.add(message, transaction):
            self._do("add", message, transaction)
            return message
        return None

    def _remove(self, transaction: TransactionId | None = None) -> None:
        if waiting := self._waiting():
            self._consume(self._scenario.messages[self._random.choice(waiting)], transaction)

    def _consume(self, message: Message, transaction: TransactionId | None = None) -> None:
        by = "ID:another" if transaction is None else ""
        self._store.remove(message.destination, message.message_id, transaction, connection_id=by)
        self._do("remove", message, transaction)

    def _relay(self) -> None:
        """Send and consume at once."""
        message = self._add()
        if message is not None:
            self._consume(message)

    def _waiting(self) -> list[str]:
        now = self._term.now
        locked = {each.message_id for operations in (*now.open.values(), *now.prepared.values()) for each in operations}
        return [each for ids in now.queues.values() for each in ids[:6] if each not in locked]

    def _begin(self) -> None:
        transaction = self._scenario.new_transaction(self._random)
        self._open.append(transaction)
        for _ in range(self._random.randint(1, 3)):
            self._random.choice((self._add, self._remove))(transaction)

    def _end(self) -> None:
        if self._decided and self._random.random() < 0.5:
            name = self._random.choice(list(self._decided))
            self._conclude(self._decided.pop(name))
        elif self._open:
            transaction = self._open.pop(self._random.randrange(len(self._open)))
            if isinstance(transaction, XATransactionId) and self._random.random() < 0.7:
                self._store.prepare(transaction)
                self._term.do(Operation("prepare", transaction=str(transaction)))
                self._decided[str(transaction)] = transaction
            else:
                self._conclude(transaction)

    def _conclude(self, transaction: TransactionId) -> None:
        method = self._random.choice(("commit", "commit", "rollback"))
        getattr(self._store, method)(transaction)
        self._term.do(Operation(method, transaction=str(transaction)))

    def _cleanup(self) -> None:
        self._store.cleanup()

    def _index(self) -> None:
        self._store.write_snapshot()

    def _do(self, method: str, message: Message, transaction: TransactionId | None) -> None:
        name = "" if transaction is None else str(transaction)
        self._term.do(Operation(method, str(message.destination), message.message_id, name))


class StoreScenario:
    """One history."""

    def __init__(self, seed: int, *, is_traced: bool = False) -> None:
        self.seed = seed
        self.world = World(seed, is_traced=is_traced)
        random = self.world.random
        self.root = make_root(seed)
        self.directory = self.root / "kahadb"
        self.directory.mkdir()
        self.disk = SimDisk(self.world, self.root)
        self.locks = LockServer(self.world)
        self.has_timer = random.random() < 0.6
        self.checker = Checker(self.world, elides=self.has_timer)
        self.settings = replace(
            SETTINGS,
            inline_seconds_max=random.choice((0.0, 0.002, 1.0)),
            reserve_bytes=random.choice((0, 0, 16384)),
        )
        self.messages: dict[str, Message] = {}
        self.transactions: dict[str, TransactionId] = {}
        self.members: list[Member] = []
        self.faults = Faults(self.disk, self.locks, self.members)

    def run(self) -> None:
        """Let the history happen.

        Raises:
            Violation: a promise was not kept.
        """
        try:
            for number in range(2):
                self.world.after(number * 0.001, self._start)
            self._plan()
            self.world.run(FAULTS_END)
            self.faults.end()
            self.world.run(END - 0.5)
            self._require_master()
            for member in self.members:
                member.stop()
            self.world.run(END)
            self._require_end()
        finally:
            self.world.end()
            shutil.rmtree(self.root)

    def make_store(
        self, member: Member, loop: asyncio.AbstractEventLoop, failed: "asyncio.Future[Exception]", follower: Any
    ) -> JournalStore:
        process = member.process

        def fail(error: Exception) -> None:
            if not failed.done():
                failed.set_result(error)

        parts: dict[str, Any] = {
            "directory": self.directory,
            "settings": self.settings,
            "files": JournalFiles(self.directory, cast("System", member.system)),
            "follower": follower,
            "snapshot_bytes_min": 0,
            "runtime": StoreRuntime(
                call_soon=loop.call_soon,
                post=loop.call_soon_threadsafe,
                call_later=loop.call_later if self.has_timer else None,
                clock=process.clock,
                monotonic=process.monotonic,
                fence=member.lock.check,
                on_failure=fail,
                spawn=process.spawn,
                inbox=process.inbox,
                event=process.event,
            ),
        }
        return JournalStore(**parts)

    # ------------------------------------------------------------ load

    def new_message(self, random: Any) -> Message:
        number = len(self.messages) + 1
        message = text_message(random.choice(QUEUES), number, "x" * random.choice((1, 50, 300, 3000)))
        self.messages[message.message_id] = message
        return message

    def new_transaction(self, random: Any) -> TransactionId:
        number = len(self.transactions) + 1
        transaction: TransactionId = LocalTransactionId("ID:c:1", number)
        if random.random() < 0.6:
            transaction = XATransactionId(1, b"g%d" % number, b"b")
        self.transactions[str(transaction)] = transaction
        return transaction

    def unanswered(self) -> list[Message]:
        """Return what producers send again: they were promised nothing, and no one has it."""
        checker = self.checker
        known = {
            each for term in checker.terms[-1:] for ids in term.now.queues.values() for each in ids
        } | checker.in_transactions
        known |= {o.message_id for term in checker.terms for o in term.operations if o.method == "remove"}
        return [message for message_id, message in self.messages.items() if message_id not in known]

    # ------------------------------------------------------------ faults

    def _plan(self) -> None:
        faults = self.faults
        weights = {
            faults.kill: 4,
            faults.fail_power: 3,
            faults.freeze: 3,
            faults.revoke: 3,
            faults.stop: 2,
            faults.fill: 1,
            faults.fail_disk: 1,
            faults.step_clock: 1,
        }
        faults.plan(0.02, FAULTS_END, 7, weights)
        self.world.after(0.01, self._revive)

    def _start(self) -> None:
        member = Member(self, f"member-{len(self.members) + 1}")
        self.members.append(member)
        self.world.record(member.process.name, "starts")

    def _revive(self) -> None:
        """Start members where there are less than two."""
        alive = [each for each in self.members if not each.process.is_dead and not each.has_ended]
        if len(alive) < 2:
            self._start()
        if self.world.now < END - 0.6:
            self.world.after(self.world.random.uniform(0, 0.06), self._revive)

    # ------------------------------------------------------------ the end

    def _require_master(self) -> None:
        serving = [each for each in self.members if each.term is not None and not _is_gone(each)]
        if not serving:
            raise Violation(f"no one serves at the end: {[(m.process.name, m.error) for m in self.members]}")
        # One that lost the lock unnoticed, and does nothing, may still believe in it: until the next look for an owner.
        latest = max(serving, key=lambda each: each.term.epoch if each.term else 0)
        if latest.term is not self.checker.latest:
            raise Violation("the newest master does not serve, and no one has taken over")

    def _require_end(self) -> None:
        for member in self.members:
            if not _is_gone(member) and member.lock is self.locks.holder:
                raise Violation(f"{member.process.name} does not end")
        assert_sound(self.directory)


def _is_gone(member: Member) -> bool:
    return member.process.is_dead or member.has_ended
