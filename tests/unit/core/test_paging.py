# mypy: disable-error-code="override"
"""Backlogs whose messages leave memory, against a plain list: order, nothing lost, nothing twice, marks."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pybroker.broker.core import paging as paging_module
from pybroker.broker.core import pending as pending_module
from pybroker.broker.core import queue as queue_module
from pybroker.broker.core import stored as stored_module
from pybroker.broker.core.durable import Durable
from pybroker.broker.core.paged_out_index import IN_STORE
from pybroker.broker.core.paging import PAGE_BYTES_MAX
from pybroker.broker.core.queue import Queue
from pybroker.broker.core.topic import Topic
from pybroker.broker.core.usage import Usage
from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.destination import Destination, queue, topic
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.message import view
from pybroker.store.memory import MemoryStore
from tests.unit.core.backlogs import Client, World, message
from tests.unit.core.spools import MemorySpool
from tests.unit.core.test_consumer_set import CONSUMERS, MESSAGES

SIZE = message("x").size


class Disk(MemoryStore):
    """A store on a slow disk: what was added is durable, and can be read back, once the test lets it."""

    def __init__(self, *, prioritized: bool) -> None:
        super().__init__(prioritized=prioritized, supports_paging=True)
        self.is_slow = False
        self.read_count = 0
        self.page_max = 4
        self._callbacks: list[tuple[set[tuple[Destination, str]], Callable[[], None]]] = []
        self._durable: set[tuple[Destination, str]] = set()

    def when_durable(self, callback: Callable[[], None]) -> None:
        added = {(place, each) for place, messages in self._messages.items() for each in messages}
        self._callbacks.append((added, callback))
        if not self.is_slow:
            self.sync()

    def sync(self, count: int = 1000) -> None:
        """Have so many callbacks be due, and durable what was added before their request."""
        while self._callbacks and count:
            added, callback = self._callbacks.pop(0)
            self._durable |= added
            count -= 1
            callback()

    def read(self, destination: Destination, message_ids: "list[str]") -> list[Message]:
        assert {(destination, each) for each in message_ids} <= self._durable, "not on disk yet"
        assert len(message_ids) <= self.page_max, "more than a page"
        self.read_count += len(message_ids)
        found = super().read(destination, message_ids)
        assert len(found) == len(message_ids), "no longer stored"
        return found


class PagedWorld(World):
    """A queue with capacity for eight messages in memory, of which two stay there, and pages of four."""

    def __init__(self, *, has_loop: bool = False, has_spool: bool = False, **policy: object) -> None:
        super().__init__(Disk(prioritized=bool(policy.get("prioritized_messages"))), **policy)
        self.disk: Disk = self.store  # type: ignore[assignment]
        self.turns: list[Callable[[], None]] = []
        self.has_loop = has_loop
        self.has_spool = has_spool
        self._spools: list[MemorySpool] = []
        self._shrink()

    def _shrink(self) -> None:
        self.queue.usage.watermark = 8 * SIZE
        self.queue._page_out_at = 8 * SIZE
        self.spool = MemorySpool()
        self._spools.append(self.spool)
        if self.has_spool:
            self.queue.paging.spool = self.spool
        if self.has_loop:
            self.queue.paging.later = self.turns.append

    def turn(self) -> bool:
        """Run the loop once; return True if there was anything to do."""
        turns, self.turns[:] = list(self.turns), []
        for callback in turns:
            callback()
        return bool(turns)

    @property
    def spool_reads(self) -> int:
        """Number of messages read from the spools of earlier processes."""
        return sum(spool.read_count for spool in self._spools[:-1])

    def restart(self, *, crash: bool) -> None:
        """Have a new process take over from this one, which crashed or stopped in order."""
        self.disk.when_durable(lambda: None)
        self.disk.sync()
        self.turns.clear()
        if not crash:
            held = [each.message.message_id for each in self.queue.in_flight() if each.message.persistent]
            self.disk.close([*held, *self.queue.pending.delivered()])
        self.usage.used = 0
        self.usage.paging.backlogs.clear()
        self.queue = Queue(
            self.queue.destination,
            store=self.store,
            dead_letters=self.dead_letters,
            clock=self.clock,
            policy=self.policy,
            usage=type(self.usage)(0, self.usage),
        )
        self._shrink()
        recovery = self.disk.recover()
        self.queue.recover(self.queue.destination, recovery.queues.get(self.queue.destination, ()), recovery.delivered)


@pytest.fixture(autouse=True)
def _small_pages():
    with small_pages():
        yield


@contextmanager
def small_pages() -> Iterator[None]:
    with mock.patch.object(pending_module, "PAGE_MAX", 4), mock.patch.object(stored_module, "PAGE_MAX", 4):
        yield


# ---------------------------------------------------------------- any history


@dataclass
class Model:
    """The expected behaviour, as a plain list of all that was ever sent.

    Attributes:
        world: what is compared with it.
        order: the messages in the order in which they were sent.
        waiting: names of those that no consumer holds.
        counts: how often each may have been seen.
        clients: the consumers.
        is_exact: priorities are kept exactly, not by classes.
    """

    world: PagedWorld
    order: dict[str, Message] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=dict)
    clients: list[Client] = field(default_factory=list)
    is_exact: bool = True

    def send(self, **fields: object) -> None:
        name = str(len(self.order))
        sent = message(name, **fields)  # type: ignore[arg-type]
        self.order[name] = sent
        self.counts[name] = 0
        self.waiting.add(name)
        self.world.queue.send(sent)

    def open(self, **request: object) -> None:
        client = self.world._client("queue://Q", request)
        deliver = client.consumer.deliver

        def check(delivery: Delivery) -> None:
            self.delivered(client, delivery)
            deliver(delivery)

        client.consumer.deliver = check
        self.clients.append(client)
        self.world.queue.attach(client.consumer)
        client.consumer.start()

    def delivered(self, client: Client, delivery: Delivery) -> None:
        name = self._name(delivery)
        assert name in self.waiting, "twice"
        assert delivery.redelivery_count == self.counts[name]
        for other, sent in self.order.items():
            if other == name:
                break
            if other in self.waiting and self._goes_before(sent, delivery.message):
                is_wanted = client.consumer.accepts(sent, self.counts[other]) and sent.group_id is None
                assert not is_wanted or sent.is_expired(self.world.now_ms), f"{name} before {other}"
        self.waiting.remove(name)

    def _goes_before(self, older: Message, newer: Message) -> bool:
        if not self.world.policy.prioritized_messages:
            return True
        return older.priority >= newer.priority if self.is_exact else older.priority == newer.priority

    def act(self, what: str, value: int) -> None:
        client = self.clients[value % len(self.clients)]
        match what:
            case "ack" if client.unsettled:
                client.ack()
            case "reject" if client.unsettled:
                client.consumer.reject(client.unsettled.pop(0), "NACK")
            case "close":
                self.clients.remove(client)
                self._return(client.unsettled, is_seen=True)
                client.close()
            case "pause":
                client.pause()
            case "resume":
                client.resume()

    def restart(self, *, crash: bool) -> None:
        held = {self._name(each) for client in self.clients for each in client.unsettled}
        self.clients.clear()
        self.waiting |= held
        self.waiting = {name for name in self.waiting if self.order[name].persistent}
        for name in self.waiting:
            self.counts[name] = int(crash or name in held or self.counts[name] > 0)
        self.world.restart(crash=crash)

    def _return(self, deliveries: list[Delivery], *, is_seen: bool = False) -> None:
        for delivery in deliveries:
            name = self._name(delivery)
            self.waiting.add(name)
            self.counts[name] += is_seen

    def _name(self, delivery: Delivery) -> str:
        return next(name for name, sent in self.order.items() if sent.message_id == delivery.message.message_id)

    def check(self) -> None:
        world, queue = self.world, self.world.queue
        held = [reference for client in self.clients for reference in client.consumer.outstanding]
        expired = {name for name in self.waiting if self.order[name].is_expired(world.now_ms)}
        if world.turns:
            return
        kept = {each for each, sent in self.order.items() if queue.stores(sent)}
        kept &= self.waiting | {self._name(reference) for reference in held}
        stored = world.store.recover().queues.get(queue.destination, ())
        names = {sent.message_id: name for name, sent in self.order.items()}
        assert kept - expired <= {names[each] for each in stored} <= kept
        in_memory = list(queue.pending.in_memory())
        assert queue.usage.used == world.usage.used == sum(each.message.size for each in (*in_memory, *held))
        spooled = {
            ref.place
            for level in queue.pending.levels
            if level.paged_out is not None
            for ref in level.paged_out.after(-1, 10_000)
            if ref.place != IN_STORE
        }
        assert world.spool.is_writing or world.spool.messages.keys() == spooled
        waiting = list(queue.pending)
        assert queue.pending.count == len(waiting)
        assert self.waiting - expired <= {self._name(each) for each in waiting} <= self.waiting
        for reference in waiting:
            if not reference.message.is_expired(world.now_ms):
                assert queue.consumer_set.choose(reference) is None, "someone would take it"


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), MESSAGES),
        st.tuples(st.just("send many"), st.tuples(MESSAGES, st.integers(1, 12))),
        st.tuples(st.just("send other"), MESSAGES),
        st.tuples(st.just("open"), CONSUMERS),
        st.tuples(st.sampled_from(["ack", "ack", "reject", "close", "pause", "resume"]), st.integers(0, 9)),
        st.tuples(
            st.sampled_from(["wait", "expire", "sync", "slow", "fast", "turn", "write", "fail"]), st.integers(1, 3)
        ),
        st.tuples(st.sampled_from(["crash", "stop"]), st.integers(1, 3)),
    ),
    max_size=50,
)


@settings(max_examples=100)
@given(
    steps=STEPS,
    prioritized=st.booleans(),
    grouped=st.booleans(),
    has_loop=st.booleans(),
    exact_max=st.sampled_from([2, 10, 10_000]),
    piece_max=st.sampled_from([2, 3, 500]),
    has_spool=st.booleans(),
)
def test_it_behaves_like_a_list(steps, prioritized, grouped, has_loop, exact_max, piece_max, has_spool):
    _compare(
        steps,
        prioritized=prioritized,
        grouped=grouped,
        has_loop=has_loop,
        exact_max=exact_max,
        piece_max=piece_max,
        has_spool=has_spool,
    )


@pytest.mark.parametrize("seed", range(16))
def test_it_behaves_like_a_list_for_long(seed):
    dice = random.Random(seed)
    steps = [_thrown(dice) for _ in range(400)]
    prioritized, has_loop, exact_max = seed & 1, seed & 2, (2, 10_000, 10, 10_000)[seed // 4]
    world = _compare(
        steps,
        prioritized=prioritized,
        grouped=seed % 3 == 0,
        has_loop=has_loop,
        exact_max=exact_max,
        piece_max=(2, 500)[seed % 8 < 4],
        has_spool=seed >= 8,
    )
    assert world.disk.read_count > (50 if world.has_spool else 100)
    assert not world.has_spool or world.spool_reads + world.spool.read_count > 2


def _thrown(dice: random.Random) -> tuple[str, object]:
    """Return a step, of those that build a backlog and drain it again."""
    fields = {
        "group_id": dice.choice([None, None, "a", "b"]),
        "group_sequence": dice.choice([0, 0, 0, -1, 1]),
        "priority": dice.randint(3, 5),
        "properties": {"n": dice.randint(1, 2)},
        "expiration": dice.choice([0, 0, 0, 1_000_000 + dice.randint(1, 200)]),
    }
    request = {
        "prefetch": dice.randint(1, 9),
        "priority": dice.randint(0, 1),
        "selector": dice.choice([None, "n = 1", "n <> 1"]),
    }
    what = dice.choice(["send", "send many", "send other", *["ack"] * 4, "act", "act", "world", "open", "rare"])
    match what:
        case "send" | "send other":
            return what, fields
        case "send many":
            return what, (fields, dice.randint(1, 12))
        case "open":
            return what, request
        case "act":
            return dice.choice(["reject", "close", "pause", "resume"]), dice.randint(0, 9)
        case "world":
            return dice.choice(
                ["wait", "expire", "sync", "slow", "fast", "turn", "turn", "write", "write", "fail"]
            ), dice.randint(1, 3)
        case "rare":
            return dice.choice(["crash", "stop", *["turn"] * 8]), 1
    return what, dice.randint(0, 9)


def _compare(steps, *, prioritized, grouped, has_loop, exact_max, piece_max, has_spool=False):
    patches = (
        mock.patch.multiple(stored_module, SPOOL_PIECE_BYTES=3 * SIZE, PAGE_OUT_PIECE=piece_max),
        mock.patch.multiple(pending_module, EXACT_MAX=exact_max, EXACT_BYTES_MAX=exact_max * SIZE // 2),
        mock.patch.multiple(queue_module, PAGE_MAX=3, PIECE_MAX=piece_max),
    )
    with small_pages(), patches[0], patches[1], patches[2]:
        world = PagedWorld(
            prioritized_messages=bool(prioritized), max_redeliveries=-1, has_loop=bool(has_loop), has_spool=has_spool
        )
        model = Model(world)
        for number, (what, value) in enumerate(steps):
            _take(model, what, value, grouped=grouped, exact_max=exact_max)
            if len(steps) <= 50 or number % 5 == 0:
                model.check()
        world.disk.sync()
        for _ in range(5000):
            if not (world.turn() or world.spool.is_writing):
                break
            world.spool.work()
        else:
            pytest.fail("the loop does not come to rest")
        model.check()
    return world


def _take(model: Model, what: str, value: object, *, grouped: bool, exact_max: int) -> None:
    """Take one step."""
    world = model.world
    plain = {} if grouped else {"group_id": None, "group_sequence": 0}
    match what, value:
        case "send", dict():
            model.send(**value | plain)
        case "send many", (dict() as fields, int() as count):
            is_persistent = not world.has_spool or count % 2 == 0
            for _ in range(count):
                model.send(**fields | plain | {"persistent": is_persistent})
            world.spool.work(1)
        case "send other", dict():
            model.send(**value | plain | {"persistent": False})
        case "open", dict():
            model.open(**value)
        case "wait", int():
            world.now_ms += value
        case "expire", _:
            world.queue.remove_expired()
        case "sync", int():
            world.disk.sync(value)
        case "fast", _:
            world.disk.is_slow = False
            world.disk.sync()
        case "slow", _:
            world.disk.is_slow = True
        case "write", int():
            world.spool.work(value)
        case "fail", _:
            world.spool.work(1, fails=True)
        case "turn", _:
            world.turn()
            world.spool.work(1)
        case (("crash" | "stop"), _):
            model.is_exact = model.is_exact and exact_max > 10
            model.restart(crash=what == "crash")
        case str(), int() if model.clients:
            model.act(what, value)


# ---------------------------------------------------------------- memory


def test_a_long_queue_takes_no_more_memory_than_a_short_one():
    world = PagedWorld()
    for number in range(500):
        world.put(str(number))
        assert world.queue.usage.used <= 9 * SIZE
    assert world.queue.pending.count == 500
    client = world.consume(prefetch=3)
    for _ in range(500):
        assert world.queue.usage.used <= 12 * SIZE, "the mark, and a page"
        client.ack()
    assert client.names == [str(number) for number in range(500)]
    assert world.usage.used == 0
    assert world.disk.read_count < 500, "the front was never out of memory"


def test_what_is_not_on_disk_stays_in_memory():
    world = PagedWorld()
    world.disk.is_slow = True
    world.put(*map(str, range(20)))
    assert world.queue.usage.used >= 20 * SIZE
    world.disk.sync(1)
    held = [view(each.message).content for each in world.queue.pending.in_memory()]
    assert held[:2] == [b"0", b"1"], "the front"
    assert held[2:] == [str(number).encode() for number in range(9, 20)], "came after the question"
    world.disk.sync()
    assert world.queue.usage.used <= 8 * SIZE


def test_non_persistent_messages_stay_in_order_and_memory():
    world = PagedWorld()
    for number in range(40):
        world.put(str(number), persistent=bool(number % 4))
    assert world.queue.usage.used >= 10 * SIZE
    client = world.consume(prefetch=50)
    assert client.names == [str(number) for number in range(40)]


def test_a_store_in_memory_is_left_nothing():
    world = World()
    world.queue.usage.watermark = world.queue._page_out_at = SIZE
    world.put(*"abcdef")
    world.queue.remove_expired()
    world.put("g")
    assert world.queue.usage.used == 7 * SIZE


def test_broker_above_its_watermark_pages_out_every_queue():
    world = PagedWorld()
    other = Queue(
        queue("OTHER"),
        store=world.store,
        dead_letters=world.dead_letters,
        clock=world.clock,
        policy=world.policy,
        usage=Usage(0, world.usage),
    )
    world.usage.limit = 24 * SIZE
    for number in range(30):
        other.send(message(str(number), "queue://OTHER"))
    assert other.usage.used >= 30 * SIZE, "far below its own mark"
    world.usage.watermark = 31 * SIZE
    world.put("a", "b", persistent=False)
    assert other.usage.used == 2 * message("0", "queue://OTHER").size, "its share of a quarter of the broker's mark"
    assert other.pending.count == 30
    world.usage.release_stalled()
    assert world.usage.watermark == world.usage.paging.watermark(24 * SIZE, is_broker=True)


@pytest.mark.parametrize("selector", [None, "n IS NULL"])
def test_page_of_large_messages_ends_at_the_byte_limit(selector):
    world = PagedWorld(has_loop=True)
    world.disk.page_max = 200
    with mock.patch.multiple(pending_module, PAGE_MAX=200):
        world.put(*(letter * (PAGE_BYTES_MAX // 2) for letter in "abcdefgh"))
        world.restart(crash=True)
        client = world.consume(selector=selector, prefetch=100)
        for turn in range(1, 5):
            assert [name[0] for name in client.names] == list("abcdefgh"[: 2 * turn]), "two fill a page"
            assert world.disk.read_count == 2 * turn
            world.queue.dispatch()  # nothing else goes on in this turn
            world.turn()
    assert world.queue.pending.count == 0


@pytest.mark.parametrize("selector", [None, "n IS NULL"])
def test_what_is_recovered_by_priority_is_read_in_bounds(selector):
    world = PagedWorld(prioritized_messages=True)
    world.disk.page_max = 200
    with mock.patch.multiple(pending_module, PAGE_MAX=200):
        world.put(*(letter * PAGE_BYTES_MAX for letter in "abcdefgh"))
        world.restart(crash=True)
        client = world.consume(selector=selector, prefetch=1)
        assert 4 * PAGE_BYTES_MAX <= world.usage.used < 5 * PAGE_BYTES_MAX
        client.ack(7)
        assert [name[0] for name in client.names] == list("abcdefgh")


# ---------------------------------------------------------------- searches


def test_search_reads_a_page_per_turn_before_new_messages():
    world = PagedWorld(has_loop=True)
    world.put(*map(str, range(60)), properties={"n": 1})
    world.put("wanted", properties={"n": 2})
    world.put(*map(str, range(61, 80)), properties={"n": 1})
    with mock.patch.object(queue_module, "PAGE_MAX", 4):
        client = world.consume(selector="n = 2")
        world.put("new", properties={"n": 2})
        assert client.names == []
        turns = reads = 0
        while world.turns:
            before = world.disk.read_count
            world.turn()
            turns += 1
            reads = max(reads, world.disk.read_count - before)
            assert world.queue.usage.used <= 9 * SIZE
    assert client.names == ["wanted", "new"]
    assert turns >= 80 / 4
    assert reads <= 8, "two pages: the one before may end in between"
    world.put("newest", properties={"n": 2})
    assert client.names[-1] == "newest", "at once, now that all was looked at"


def test_finished_search_looks_at_no_message_twice():
    world = PagedWorld()
    world.put(*map(str, range(50)), properties={"n": 1})
    client = world.consume(selector="n = 2")
    before = world.disk.read_count
    for number in range(20):
        world.put(f"x{number}", properties={"n": 2})
        client.ack()
    assert world.disk.read_count == before
    assert len(client.names) == 20


def test_a_consumer_that_leaves_in_the_middle_of_its_search():
    world = PagedWorld(has_loop=True)
    world.put(*map(str, range(50)), properties={"n": 1})
    world.consume(selector="n = 2").close()
    plain = world.consume(prefetch=100)
    while world.turn():
        pass
    assert plain.names == [str(number) for number in range(50)]


def test_groups_are_kept_together_when_they_are_read_back():
    world = PagedWorld()
    for number in range(60):
        world.put(str(number), group_id="ab"[number % 2])
    world.restart(crash=False)
    one, other = world.consume(prefetch=5), world.consume(prefetch=5)
    while one.unsettled or other.unsettled:
        for client in (one, other):
            if client.unsettled:
                client.ack()
    assert one.names == [str(number) for number in range(60)], "alone when it came, it owns both groups"
    assert one.firsts == ["0", "1"]
    assert other.names == []


# ---------------------------------------------------------------- time


@pytest.mark.parametrize("has_loop", [False, True])
def test_expired_messages_are_found_without_consumers(has_loop):
    world = PagedWorld(has_loop=has_loop)
    for number in range(60):
        world.put(str(number), expiration=world.now_ms + 5 if number % 3 else 0)
    world.restart(crash=True)
    world.queue.remove_expired()
    while world.turn():
        pass
    assert world.queue.pending.count == 60
    assert world.disk.read_count >= 60, "the first look decides when to look again"
    before = world.disk.read_count
    world.queue.remove_expired()
    assert world.disk.read_count == before
    world.now_ms += 10_000
    world.queue.remove_expired()
    while world.turn():
        pass
    assert world.queue.pending.count == 20
    assert len(world.letters) == 40
    assert world.usage.used == 0, "nothing was brought into memory for it"


def test_the_search_for_expired_messages_is_bounded():
    world = PagedWorld()
    world.put(*map(str, range(300)), expiration=world.now_ms + 5)
    world.restart(crash=True)
    world.now_ms += 10_000
    with mock.patch.object(paging_module, "SCANNED_MAX", 20 * 50):
        before = world.disk.read_count
        world.queue.remove_expired()
        assert world.disk.read_count - before == 50
        world.queue.remove_expired()
        assert world.disk.read_count - before == 50, "not before the next ten seconds"
        for _ in range(6):
            world.now_ms += 10_000
            world.queue.remove_expired()
    assert world.queue.pending.count == 0
    assert [view(letter).content for letter in world.letters] == [str(number).encode() for number in range(300)]


def test_page_of_expired_messages_is_not_delivered():
    world = PagedWorld()
    world.put(*map(str, range(30)), expiration=world.now_ms + 5)
    world.put("alive")
    world.now_ms += 6
    assert world.consume().names == ["alive"]
    assert len(world.letters) == 30


# ---------------------------------------------------------------- a disk that does not give back


class Failing(Disk):
    """A disk that can lose messages, and that can be away."""

    def __init__(self) -> None:
        super().__init__(prioritized=False)
        self.is_away = False
        self.lost: set[bytes] = set()

    def read(self, destination: Destination, message_ids: "list[str]") -> list[Message]:
        if self.is_away:
            raise StoreUnavailable("db-7.log cannot be read: Stale file handle", path="db-7.log", hint="mount it")
        found = super().read(destination, message_ids)
        return [each for each in found if view(each).content not in self.lost]


@pytest.fixture
def failing():
    world = PagedWorld()
    world.store = world.disk = Failing()
    world.restart(crash=True)
    world.put(*map(str, range(40)))
    return world


@pytest.mark.parametrize("selector", [None, "n IS NULL"])
def test_while_the_store_is_away_nothing_is_lost(failing, caplog, selector):
    failing.disk.is_away = True
    client = failing.consume(selector=selector, prefetch=10)
    assert client.names == ["0", "1"], "the front"
    assert "queue://Q is not served further now: db-7.log cannot be read" in caplog.text
    failing.put("40")
    client.ack()
    assert client.names == ["0", "1"]
    failing.disk.is_away = False
    while client.unsettled:
        client.ack()
    assert client.names == [str(number) for number in range(41)]


def test_queue_without_acknowledgements_resumes_in_time(failing):
    failing.disk.is_away = True
    client = failing.consume(prefetch=100)
    assert len(client.names) == 2
    failing.disk.is_away = False
    failing.queue.remove_expired()
    assert len(client.names) == 40


@pytest.mark.parametrize("selector", [None, "n IS NULL"])
@pytest.mark.parametrize("lost", [{7}, {2, 3, 4, 5, 6, 7}, set(range(2, 40))])
def test_what_is_lost_is_left_out(failing, lost, selector):
    failing.disk.lost = {str(number).encode() for number in lost}
    in_memory = {each.sequence for each in failing.queue.pending.in_memory()}
    client = failing.consume(selector=selector, prefetch=100)
    assert client.names == [str(number) for number in range(40) if number not in lost - in_memory]
    assert failing.queue.pending.count == 0


@pytest.mark.parametrize("lost", [{7}, set(range(2, 40))])
def test_what_is_lost_is_left_out_by_priority_too(lost):
    world = PagedWorld(prioritized_messages=True)
    world.store = world.disk = Failing()
    world.restart(crash=True)
    world.put(*map(str, range(40)))
    world.disk.lost = {str(number).encode() for number in lost}
    in_memory = {each.sequence for each in world.queue.pending.in_memory()}
    assert world.consume().names == [str(number) for number in range(40) if number not in lost - in_memory]
    assert world.queue.pending.count == 0


# ---------------------------------------------------------------- durable subscriptions


def paged_durable(world: PagedWorld, name: str = "s") -> Durable:
    durable = world.durable(name)
    world.topic.usage.watermark = durable._page_out_at = 8 * SIZE
    return durable


def test_a_durable_subscription_pages_out_too():
    world = PagedWorld()
    one, other = paged_durable(world, "one"), paged_durable(world, "other")
    world.publish(*map(str, range(200)))
    assert world.topic.usage.used <= 16 * SIZE
    client = world.activate(one, prefetch=5)
    client.ack(200)
    assert client.names == [str(number) for number in range(200)]
    assert other.pending.count == 200
    other.close()
    assert world.topic.usage.used == world.usage.used == 0


def test_durable_page_ends_at_the_byte_limit():
    world = PagedWorld(has_loop=True)
    world.disk.page_max = 200
    with mock.patch.object(pending_module, "PAGE_MAX", 200):
        world.durable().topics.clear()
        world.publish(*(letter * (PAGE_BYTES_MAX // 2) for letter in "abcdefgh"))
        world.topic.durables.clear()
        durable = paged_durable(world)
        (backlog,) = world.store.recover().backlogs
        world.disk.when_durable(lambda: None)
        before = world.disk.read_count
        durable.recover(world.topic.destination, backlog.message_ids, None)
        client = world.activate(durable, prefetch=100)
        for turn in range(1, 5):
            assert [name[0] for name in client.names] == list("abcdefgh"[: 2 * turn]), "two fill a page"
            assert world.disk.read_count == before + 2 * turn
            durable.dispatch()  # nothing else goes on in this turn
            world.turn()


def test_a_durable_subscription_is_taken_over_without_a_look():
    world = PagedWorld()
    world.durable().topics.clear()
    world.publish(*map(str, range(50)))
    world.topic.durables.clear()
    durable = paged_durable(world)
    (backlog,) = world.store.recover().backlogs
    world.disk.when_durable(lambda: None)
    before = world.disk.read_count
    durable.recover(world.topic.destination, backlog.message_ids, {backlog.message_ids[3]})
    assert world.disk.read_count == before
    client = world.activate(durable, prefetch=100)
    assert client.names == [str(number) for number in range(50)]
    assert [each.redelivery_count for each in client.got[:5]] == [0, 0, 0, 1, 0]


def test_durable_wildcard_keeps_order_across_topics():
    world = PagedWorld()
    durable = paged_durable(world)
    second = Topic(
        topic("U"),
        store=world.store,
        clock=world.clock,
        policy=world.policy,
        usage=Usage(0, world.usage),
        index=world.index,
    )
    world.store.subscribe(replace(durable.info, destination=second.destination))
    durable.join(second)
    durable._page_out_at = second.usage.watermark = 6 * SIZE
    for number in range(60):
        (world.topic if number % 3 else second).send(message(str(number), "topic://T" if number % 3 else "topic://U"))
    assert world.usage.used <= 14 * SIZE
    client = world.activate(durable, prefetch=4)
    client.ack(60)
    assert client.names == [str(number) for number in range(60)]
    assert world.usage.used == 0


def test_search_reads_no_more_than_its_consumers_may_get():
    world = PagedWorld()
    world.put(*map(str, range(40)), properties={"kind": "a"})
    client = world.consume(prefetch=1, selector="kind = 'a'")
    client.ack(40)
    assert client.names == [str(number) for number in range(40)]
    assert world.disk.read_count <= 40, "no message is read twice"
