"""Group commit between a source, a sink and a replica, none of which is real."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pybroker.broker.domain.errors import LockNotHeld, StoreUnavailable
from pybroker.store.group_commit import WAITING_ITEMS_MAX, CommitPolicy, GroupCommit
from pybroker.store.runtime import Callback
from tests.conformance.conftest import WAIT_SECONDS, Loop
from tests.runtimes import runtime


class FakeReplica:
    """A replica that confirms batches when the test calls `confirm`."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.confirmed = 0
        self.waiting: list[tuple[int, Callback]] = []

    def take(self, number: int, batch: str) -> None:
        self.log.append(f"replica {number} {batch}")

    def when_confirmed(self, number: int, callback: Callback) -> None:
        if number <= self.confirmed:
            callback()
        else:
            self.waiting.append((number, callback))

    def confirm(self, number: int) -> None:
        self.confirmed = number
        due = [callback for wanted, callback in self.waiting if wanted <= number]
        self.waiting = [each for each in self.waiting if each[0] > number]
        for callback in due:
            callback()


class Desk:
    """A group commit whose source is a text, with everything around it in view."""

    is_full = False

    def __init__(self, policy: CommitPolicy, *, replicated: bool, inline: bool, is_started: bool = True) -> None:
        self.loop = Loop()
        self.log: list[str] = []
        self.text = ""
        self.gate = threading.Event()
        self.gate.set()
        self.failures: list[Exception] = []
        self.timers: list[Callback] = []
        self.lock: Exception | None = None
        self.replica = FakeReplica(self.log) if replicated else None
        self.seconds = 0.0
        call_later = self.call_later if policy.gather_share or policy.confirm_seconds_max else None
        self.given_way: list[int] = []
        world = runtime(
            self.loop.call_soon,
            on_failure=self.failures.append,
            fence=self.fence,
            call_later=call_later,
            give_way=self.given_way.append,
            monotonic=lambda: time.monotonic() + self.seconds,
        )
        parts: dict[str, Any] = {"inline": self if inline else None, "replica": self.replica}
        self.commits = GroupCommit[str](self, self, policy, world, **parts)
        if is_started:
            self.commits.start()

    # the source

    @property
    def open_bytes(self) -> int:
        return len(self.text)

    def take(self) -> str:
        text, self.text = self.text, ""
        return text

    # the sink

    def begin(self) -> None: ...

    def write(self, batch: str) -> float:
        assert self.gate.wait(WAIT_SECONDS)
        self.log.append(f"sink {batch}")
        self.fence()
        return 0.0

    def may_write_inline(self, batch: str) -> bool:
        return True

    def write_inline(self, batch: str) -> float | None:
        return self.write(batch)

    def rest(self) -> float | None:
        return None

    def sync(self) -> None:
        self.log.append("sync")

    def fence(self) -> None:
        if self.lock is not None:
            raise self.lock

    def hurry(self) -> None: ...

    def interrupt(self) -> None: ...

    def explain(self, error: Exception) -> Exception:
        return error

    def close(self, *, in_order: bool) -> None:
        self.log.append("closed" if in_order else "left")

    # the test

    def call_later(self, seconds: float, callback: Callback) -> None:
        self.timers.append(callback)

    def recorder(self, text: str) -> Callback:
        return lambda: self.log.append(text)

    def send(self, text: str) -> None:
        self.text += text
        self.commits.wake()
        self.commits.when_durable(self.recorder(f"notified {text}"))

    def run_until(self, entry: str) -> None:
        self.loop.run_until(lambda: entry in self.log)


Build = Callable[..., Desk]


@pytest.fixture
def desk() -> Iterator[Build]:
    desks: list[Desk] = []

    def build(policy: CommitPolicy | None = None, *, replicated: bool = False, inline: bool = False) -> Desk:
        policy = policy or CommitPolicy(noun="store", writer="test writer", inline_seconds_max=1.0)
        desks.append(Desk(policy, replicated=replicated, inline=inline))
        return desks[-1]

    yield build
    for each in desks:
        each.gate.set()
        each.commits.abandon()


def test_failure_while_the_thread_begins_is_the_only_one(caplog: pytest.LogCaptureFixture) -> None:
    """The loop has failed inline and let go of everything; so the thread finds closed what it begins with."""
    has_failed = threading.Event()

    class Failing(Desk):
        def begin(self) -> None:
            assert has_failed.wait(WAIT_SECONDS)
            raise AssertionError("closed")

        def write_inline(self, batch: str) -> float | None:
            raise StoreUnavailable("broken")

    policy = CommitPolicy(noun="store", writer="test writer", inline_seconds_max=1.0)
    it = Failing(policy, replicated=False, inline=True)
    it.send("a")
    it.loop.turn()
    has_failed.set()
    with pytest.raises(StoreUnavailable, match="broken"):
        it.commits.close()
    assert [each.getMessage() for each in caplog.records] == ["the test writer stops: broken"]


class PausedJob:
    """A job in two parts, which pauses between them until the test goes on."""

    def __init__(self, it: Desk) -> None:
        self._it = it
        self._began, self._may_go_on = threading.Event(), threading.Event()
        it.commits.submit(self)
        assert self._began.wait(WAIT_SECONDS)

    def __call__(self) -> None:
        self._it.log.append("part 1")
        self._began.set()
        assert self._may_go_on.wait(WAIT_SECONDS)
        self._it.commits.write_waiting()
        self._it.log.append("part 2")

    def go_on(self) -> None:
        self._may_go_on.set()


class TestLongJobs:
    def test_what_comes_meanwhile_is_written_between_its_parts(self, desk: Build) -> None:
        it = desk()
        job = PausedJob(it)
        it.send("a")
        it.loop.turn()
        it.commits.submit(it.recorder("next job"))
        job.go_on()
        it.run_until("notified a")
        it.send("b")
        it.run_until("notified b")
        done = [each for each in it.log if not each.startswith("notified")]
        assert done == ["sync", "part 1", "sink a", "part 2", "sync", "next job", "sink b"]

    def test_clients_that_go_on_sending_do_not_delay_its_end(self, desk: Build) -> None:
        it = desk()
        job = PausedJob(it)
        for number in range(WAITING_ITEMS_MAX + 1):
            it.send(str(number))
            it.commits.send()
        job.go_on()
        it.run_until(f"notified {WAITING_ITEMS_MAX}")
        assert it.log.index("part 2") < it.log.index(f"sink {WAITING_ITEMS_MAX}")

    def test_the_end_comes_behind_it(self, desk: Build) -> None:
        it = desk()
        job = PausedJob(it)
        it.send("a")
        it.loop.turn()
        it.commits._inbox.put(None)  # as `close`, which waits for the thread
        job.go_on()
        it.commits.close()
        assert it.log == ["sync", "part 1", "sink a", "part 2", "closed"]

    def test_a_write_that_fails_ends_it_and_the_writer(self, desk: Build) -> None:
        it = desk()
        job = PausedJob(it)
        it.send("a")
        it.loop.turn()
        it.lock = LockNotHeld("another is master")
        job.go_on()
        it.loop.run_until(lambda: bool(it.failures))
        assert it.failures == [it.lock]
        assert it.log == ["sync", "part 1", "sink a", "left"]


class TestGivingWay:
    def test_the_loop_gives_way_while_the_thread_writes_a_batch(self, desk: Build) -> None:
        it = desk()
        it.gate.clear()
        it.send("a")
        it.loop.turn()
        assert it.given_way == [1]
        it.gate.set()
        it.run_until("notified a")
        assert it.given_way == [1, -1]

    def test_not_for_what_is_written_before_there_is_a_thread(self) -> None:
        it = Desk(CommitPolicy(noun="store", writer="test writer"), replicated=False, inline=False, is_started=False)
        it.send("a")
        written: list[str] = []
        it.commits.write_now(written.append)
        assert written == ["a"]
        assert not it.given_way

    def test_not_while_the_loop_writes_itself(self, desk: Build) -> None:
        it = desk(inline=True)
        it.send("a")
        it.run_until("notified a")
        assert not it.given_way

    def test_the_loop_gives_way_while_the_thread_calls_the_fence(self, desk: Build) -> None:
        it = desk(CommitPolicy(noun="store", writer="test writer", fences_in_thread=True))
        it.commits.notify((it.recorder("notified"),))
        it.loop.turn()
        assert it.given_way[0] == 1
        it.run_until("notified")
        assert it.given_way == [1, -1]


class TestGathering:
    @pytest.fixture
    def gathering(self, desk: Build) -> Desk:
        """Two producers were just answered."""
        it = desk(CommitPolicy(noun="store", writer="test writer", gather_share=1.0))
        it.send("a")
        it.send("b")
        it.run_until("notified b")
        return it

    def test_batch_waits_for_those_who_were_answered(self, gathering: Desk) -> None:
        gathering.send("c")
        assert not gathering.loop.ready
        gathering.send("d")
        gathering.run_until("notified d")
        assert "sink cd" in gathering.log

    def test_batch_does_not_wait_longer_than_its_time(self, gathering: Desk) -> None:
        gathering.send("c")
        gathering.timers.pop()()
        gathering.run_until("notified c")

    def test_time_of_the_batch_before_ends_no_gathering(self, gathering: Desk) -> None:
        gathering.send("c")
        gathering.send("d")
        gathering.run_until("notified d")
        gathering.send("e")
        first, second = gathering.timers
        first()
        assert not gathering.loop.ready
        second()
        gathering.run_until("notified e")

    def test_next_batch_does_not_wait_for_those_of_one_sent_early(self, gathering: Desk) -> None:
        gathering.send("c")
        gathering.commits.send()
        gathering.run_until("notified c")
        gathering.send("d")
        gathering.run_until("notified d")


class TestRequiredFence:
    """A callback that waits for no write waits for the fence, where that is required."""

    def test_callback_waits_for_the_fence_once(self, desk: Build) -> None:
        it = desk(inline=True)
        it.commits.require_fence()
        it.commits.when_durable(it.recorder("notified"))
        assert it.log == []
        it.loop.turn()
        assert it.log == ["notified"]
        it.commits.when_durable(it.recorder("again"))
        assert it.log == ["notified", "again"]

    @pytest.mark.parametrize("inline", [False, True])
    def test_closed_fence_stops_the_writer(self, desk: Build, *, inline: bool) -> None:
        it = desk(inline=inline)
        it.lock = LockNotHeld("lost")
        it.commits.require_fence()
        it.commits.when_durable(it.recorder("notified"))
        it.loop.run_until(lambda: bool(it.failures))
        assert (it.failures, "notified" in it.log) == ([it.lock], False)

    def test_callback_behind_a_batch_waits_for_a_later_fence(self, desk: Build) -> None:
        it = desk()
        it.send("a")
        it.loop.turn()
        it.run_until("sink a")  # whose fence comes before what follows
        it.commits.require_fence()
        it.commits.when_durable(it.recorder("notified b"))
        it.lock = LockNotHeld("lost")
        it.loop.run_until(lambda: bool(it.failures))
        assert "notified b" not in it.log

    def test_callbacks_keep_their_order(self, desk: Build) -> None:
        it = desk()
        it.gate.clear()
        it.send("a")
        it.loop.turn()
        it.commits.require_fence()
        it.commits.when_durable(it.recorder("notified b"))
        it.commits.when_durable(it.recorder("notified c"))
        it.gate.set()
        it.run_until("notified c")
        assert it.log == ["sink a", "notified a", "notified b", "notified c"]

    def test_open_batch_has_a_fence_of_its_own(self, desk: Build) -> None:
        it = desk(inline=True)
        it.commits.require_fence()
        it.send("a")
        it.loop.turn()
        assert it.log == ["sink a", "notified a"]


class TestFenceInTheThread:
    @pytest.fixture
    def fencing(self, desk: Build) -> Desk:
        return desk(CommitPolicy(noun="store", writer="test writer", fences_in_thread=True))

    def test_waiters_added_during_a_check_are_notified_next_in_order(self, fencing: Desk) -> None:
        fencing.commits.notify([fencing.recorder("a")])
        fencing.loop.turn()
        fencing.commits.notify([fencing.recorder("b")])
        fencing.commits.when_durable(fencing.recorder("c"))
        fencing.run_until("c")
        assert fencing.log == ["a", "b", "c"]

    def test_closed_fence_notifies_no_one(self, fencing: Desk) -> None:
        fencing.lock = LockNotHeld("gone")
        fencing.commits.notify([fencing.recorder("a")])
        fencing.loop.run_until(lambda: bool(fencing.failures))
        assert fencing.failures == [fencing.lock]
        assert "a" not in fencing.log


class TestReplica:
    def test_a_replica_confirms_a_batch_before_its_callbacks(self, desk: Build) -> None:
        it = desk(replicated=True)
        it.send("a")
        it.loop.run_until(lambda: bool(it.replica and it.replica.waiting))
        assert it.log == ["replica 1 a", "sink a"]
        assert it.commits.unwritten_bytes == 1
        assert it.replica is not None
        it.replica.confirm(1)
        assert it.log == ["replica 1 a", "sink a", "notified a"]
        assert it.commits.unwritten_bytes == 0

    def test_a_confirmation_that_comes_first_waits_for_the_sink(self, desk: Build) -> None:
        it = desk(replicated=True)
        assert it.replica is not None
        it.gate.clear()
        it.send("a")
        it.loop.turn()
        it.replica.confirm(1)
        assert it.log == ["replica 1 a"]
        it.gate.set()
        it.run_until("notified a")
        assert it.log == ["replica 1 a", "sink a", "notified a"]

    def test_nothing_waits_for_the_confirmation_of_the_batch_before(self, desk: Build) -> None:
        it = desk(replicated=True)
        assert it.replica is not None
        it.send("a")
        it.run_until("sink a")
        it.loop.turn()
        it.send("b")
        it.run_until("sink b")
        it.loop.run_until(lambda: bool(it.replica and len(it.replica.waiting) == 2))
        assert "notified a" not in it.log
        it.replica.confirm(2)
        assert it.log[-2:] == ["notified a", "notified b"]

    @pytest.mark.parametrize("confirmed", [False, True])
    def test_what_the_loop_writes_itself_waits_too(self, desk: Build, *, confirmed: bool) -> None:
        it = desk(replicated=True, inline=True)
        assert it.replica is not None
        it.replica.confirmed = int(confirmed)
        it.send("a")
        it.loop.turn()
        assert it.log == ["replica 1 a", "sink a", *(["notified a"] if confirmed else [])]
        it.replica.confirm(1)
        assert it.log == ["replica 1 a", "sink a", "notified a"]

    def test_a_later_callback_waits_for_an_unconfirmed_batch(self, desk: Build) -> None:
        it = desk(replicated=True)
        assert it.replica is not None
        it.send("a")
        it.loop.run_until(lambda: bool(it.replica and it.replica.waiting))
        it.commits.when_durable(it.recorder("behind"))
        assert "behind" not in it.log
        it.replica.confirm(1)
        assert it.log[-2:] == ["notified a", "behind"]

    def test_a_job_runs_behind_the_confirmation(self, desk: Build) -> None:
        it = desk(replicated=True)
        assert it.replica is not None
        it.send("a")
        it.commits.submit(it.recorder("job"))
        it.loop.run_until(lambda: bool(it.replica and it.replica.waiting))
        assert "job" not in it.log
        it.replica.confirm(1)
        it.commits.close()
        assert it.log[-3:] == ["sync", "job", "closed"]

    def test_what_is_written_before_there_is_a_thread_is_under_way_until_it_is_confirmed(self) -> None:
        it = Desk(CommitPolicy(noun="store", writer="test writer"), replicated=True, inline=False, is_started=False)
        assert it.replica is not None
        it.send("a")
        it.commits.write_now(lambda batch: it.log.append(f"now {batch}"))
        it.commits.start()
        it.commits.when_durable(it.recorder("behind"))
        it.commits.submit(it.recorder("job"))
        it.loop.turn()
        assert it.log == ["replica 1 a", "now a"]
        assert it.commits.unwritten_bytes == 1
        it.replica.confirm(1)
        assert it.commits.unwritten_bytes == 0
        it.commits.close()
        assert it.log[2:] == ["notified a", "behind", "sync", "job", "closed"]

    def test_a_master_that_gave_up_notifies_no_one(self, desk: Build) -> None:
        it = desk(replicated=True)
        assert it.replica is not None
        it.send("a")
        it.loop.run_until(lambda: bool(it.replica and it.replica.waiting))
        it.commits.abandon()
        it.replica.confirm(1)
        assert "notified a" not in it.log


class TestEnds:
    def test_in_order_everything_is_written_and_the_sink_closed(self, desk: Build) -> None:
        it = desk()
        it.send("a")
        it.commits.close()
        it.loop.turn()
        assert it.log == ["sink a", "closed", "notified a"]

    def test_what_was_open_when_it_stopped_is_never_written(self, desk: Build) -> None:
        it = desk()
        it.send("a")
        it.commits.abandon()
        it.loop.turn()
        assert it.log == ["left"]
        assert it.commits.unwritten_bytes == 0
        with pytest.raises(StoreUnavailable, match="the store was given up"):
            it.commits.require_running()

    def test_an_idle_writer_checks_the_fence_periodically(self, desk: Build) -> None:
        it = desk(CommitPolicy(noun="store", writer="test writer", watch_seconds=0.01))
        it.lock = LockNotHeld("lost")
        it.loop.run_until(lambda: bool(it.failures))
        assert it.failures == [it.lock]
        with pytest.raises(StoreUnavailable, match="the store has stopped: lost"):
            it.commits.require_running()


QUICK = CommitPolicy(noun="store", writer="test writer", inline_seconds_max=1.0, confirm_seconds_max=100.0)


class TestQuickReplica:
    @pytest.fixture(params=[False, True], ids=["thread", "inline"])
    def held(self, desk: Build, request: pytest.FixtureRequest) -> Desk:
        """A batch with one waiter that is written, and not confirmed, and a change after it."""
        it = desk(QUICK, replicated=True, inline=request.param)
        it.send("a")
        it.loop.run_until(lambda: bool(it.replica and it.replica.waiting))
        it.send("b")
        it.loop.turn()
        return it

    def confirm(self, it: Desk, number: int) -> None:
        it.loop.run_until(lambda: bool(it.replica and it.replica.waiting))
        assert it.replica is not None
        it.replica.confirm(number)

    def test_changes_gather_until_the_batch_before_is_confirmed(self, held: Desk) -> None:
        assert held.log == ["replica 1 a", "sink a"]
        self.confirm(held, 1)
        assert held.log[2:] == ["notified a"]
        held.send("c")
        held.run_until("sink bc")
        assert held.log[3:] == ["replica 2 bc", "sink bc"]

    def test_the_next_batch_waits_only_briefly_for_the_clients_that_were_answered(self, held: Desk) -> None:
        self.confirm(held, 1)
        held.loop.turn()
        assert "replica 2 b" not in held.log
        held.timers.pop()()
        held.run_until("sink b")

    def test_a_lone_client_waits_for_nobody(self, desk: Build) -> None:
        it = desk(QUICK, replicated=True, inline=True)
        for number, text in enumerate("abc", 1):
            it.send(text)
            it.loop.turn()
            assert it.log[-1] == f"sink {text}"
            self.confirm(it, number)
            assert it.log[-1] == f"notified {text}"
        assert not it.timers

    def test_what_nobody_waits_for_is_held_too_and_written(self, desk: Build) -> None:
        it = desk(QUICK, replicated=True, inline=True)
        it.send("a")
        it.loop.turn()
        it.text += "b"
        it.commits.wake()
        it.loop.turn()
        assert it.log == ["replica 1 a", "sink a"]
        self.confirm(it, 1)
        it.loop.turn()
        it.timers.pop()()
        it.run_until("sink b")

    def test_a_job_does_not_wait_for_more_changes(self, held: Desk) -> None:
        held.commits.submit(held.recorder("job"))
        assert held.log[2:] == ["replica 2 b"]
        held.run_until("sink b")
        self.confirm(held, 2)
        held.commits.close()
        assert held.log[-2:] == ["job", "closed"]

    def test_a_replica_that_is_slow_gets_each_batch_at_once(self, desk: Build) -> None:
        it = desk(QUICK, replicated=True, inline=True)
        assert it.replica is not None
        for number in range(1, 9):
            it.send("a")
            it.loop.turn()
            it.seconds += 1000.0
            self.confirm(it, number)
        it.send("b")
        it.loop.turn()
        it.send("c")
        it.loop.turn()
        assert it.log[-4:] == ["replica 9 b", "sink b", "replica 10 c", "sink c"]
        it.replica.confirm(10)
        assert it.log[-2:] == ["notified b", "notified c"]

    def test_one_slow_confirmation_does_not_make_a_replica_slow(self, desk: Build) -> None:
        it = desk(QUICK, replicated=True, inline=True)
        it.send("a")
        it.loop.turn()
        it.seconds += 1000.0
        self.confirm(it, 1)
        it.send("b")
        it.loop.turn()
        it.send("c")
        it.loop.turn()
        assert it.log[-1] == "sink b"
