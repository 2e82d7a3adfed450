"""A world with a clock, processes and threads of its own: one event at a time, in an order that a seed chooses.

Threads are greenlets, of which exactly one runs: it has the baton until it waits. (Threads of Python hand over in
twenty times as long.) What it waits for is always something of this world: time, another thread, an event, an
inbox, a file operation. So the same seed makes the same history, whatever the machine does.

```text
World.run    next event of the heap -> a callback, or a thread is given the baton -> until it waits -> next event
```

A process is killed by never giving its threads the baton again, but to unwind: each wait then raises `Killed`. A frozen
process gets its events when it thaws. Events at one instant happen in the order in which they were planned; that order
is free where durations are drawn from the seed, and they all are.
"""

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from math import log
from queue import Empty
from typing import Any

from greenlet import getcurrent, greenlet

Callback = Callable[[], None]

EPOCH_MS = 1_700_000_000_000
"""Wall clock time at the beginning of this world."""

TURN_SECONDS = 20e-6
"""Typical seconds of a turn of an event loop."""

STRETCHES = (0.2, 1, 1, 1, 8)
"""Factors of durations: some are much longer."""


class Killed(SystemExit):
    """Unwinds a thread of a process that was killed. A `SystemExit`, because asyncio lets those through."""


class Violation(AssertionError):
    """A broken promise."""


class World:
    """Time, order and chance of one history."""

    def __init__(self, seed: int, *, is_traced: bool = False) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        """Seconds since the world's beginning."""
        self.trace: list[str] = []
        self.current: SimThread | None = None
        self.processes: list[Process] = []
        self.failure: BaseException | None = None
        """The first violation, or an error that a thread has died of."""
        self._is_traced = is_traced
        self._draw = self.random.random
        self._heap: list[tuple[float, int, Process | None, Callback]] = []
        self._serial = 0
        self._until = 0.0
        self.root = getcurrent()
        """The greenlet that the threads of this world switch to when they wait."""

    def record(self, who: str, text: str) -> None:
        """Write a line of the trace."""
        if self._is_traced:
            self.trace.append(f"{self.now * 1000:11.3f} ms  {who:10} {text}")

    def at(self, when: float, callback: Callback, process: "Process | None" = None) -> None:
        """Have a callback called at a time; not if its process is dead by then, and later if it is frozen."""
        self._serial += 1
        heappush(self._heap, (when, self._serial, process, callback))

    def after(self, seconds: float, callback: Callback, process: "Process | None" = None) -> None:
        """Have a callback called after so many seconds."""
        self.at(self.now + seconds, callback, process)

    def run(self, until: float) -> None:
        """Let time pass.

        Raises:
            BaseException: what was found, or what a thread has died of.
        """
        self._until = until
        heap = self._heap
        while self.failure is None and heap and heap[0][0] <= until:
            when, serial, process, callback = heappop(heap)
            if process is not None:
                if process.is_dead:
                    continue
                if process.frozen_until > when:
                    heappush(heap, (process.frozen_until, serial, process, callback))
                    continue
            self.now = when
            callback()
        if self.failure is not None:
            raise self.failure
        self.now = max(self.now, until)

    def skip_to(self, when: float, process: "Process") -> bool:
        """Let time pass at once if nothing happens until then, without a switch to another thread."""
        if when > self._until or self.failure is not None or process.frozen_until > when:
            return False
        if self._heap and self._heap[0][0] <= when:
            return False
        self.now = when
        return True

    def duration(self, typical: float) -> float:
        """Return a duration: about `typical` seconds, sometimes much longer."""
        return -log(1 - self._draw()) * typical * STRETCHES[int(self._draw() * len(STRETCHES))]

    def end(self) -> None:
        """Kill everything."""
        for process in self.processes:
            process.kill()


class Process:
    """Threads that live and die together, with a wall clock that may be stepped."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.is_dead = False
        self.frozen_until = 0.0
        self.clock_error_ms = 0
        self.threads: list[SimThread] = []
        self.loop: SimLoop | None = None
        self.on_death: list[Callback] = []
        """Called once the process is dead, as a kernel cleans up behind one."""
        world.processes.append(self)

    def clock(self) -> int:
        """Milliseconds since the epoch, as far as this process knows."""
        return EPOCH_MS + int(self.world.now * 1000) + self.clock_error_ms

    def monotonic(self) -> float:
        """Seconds."""
        return self.world.now

    def spawn(self, name: str, run: Callback) -> "SimThread":
        """Start a thread."""
        return SimThread(self, name, run)

    def inbox(self) -> "Inbox":
        """Make an inbox for a thread."""
        return Inbox(self.world)

    def event(self) -> "Event":
        """Make an event for threads."""
        return Event(self.world)

    def freeze(self, seconds: float) -> None:
        """Stop all threads for a time."""
        self.frozen_until = max(self.frozen_until, self.world.now + seconds)
        self.world.record(self.name, f"is frozen for {seconds * 1000:.0f} ms")

    def kill(self) -> None:
        """Have it never do anything again."""
        if self.is_dead:
            return
        assert self.world.current is None, "a process is killed from outside"
        self.is_dead = True
        for thread in self.threads:
            thread.unwind()
        for callback in self.on_death:
            callback()

    def wait(self, seconds: float) -> None:
        """Let time pass for the thread that calls; for others, who watch the world from outside, none does."""
        if self.is_dead:
            raise Killed
        if (thread := self.world.current) is not None:
            thread.park(self.world.now + seconds)


class SimThread:
    """A thread that runs when it has the baton (a `Worker`)."""

    def __init__(self, process: Process, name: str, run: Callback) -> None:
        self.process = process
        self.name = name
        self.ended = Signal(process.world)
        self._world = world = process.world
        self._run = run
        self._is_alive = True
        self._wait = 0
        self._greenlet = greenlet(self._main, world.root)
        process.threads.append(self)
        world.after(world.duration(20e-6), self._greenlet.switch, process)

    def is_alive(self) -> bool:
        """Return True if it still runs."""
        return self._is_alive

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end, so many seconds at most."""
        self.ended.wait_for(lambda: not self._is_alive, timeout)

    def park(self, until: float | None) -> None:
        """Wait until a time, or until woken: None: for ever otherwise. Called in this thread."""
        world = self._world
        assert world.current is self, "a thread waits by itself"
        self._wait += 1
        if until is not None:
            if world.skip_to(until, self.process):
                return
            world.at(until, partial(self._wake, self._wait), self.process)
        loop, task = _leave_loop()
        world.current = None
        world.root.switch()
        _enter_loop(loop, task)
        if self.process.is_dead:
            raise Killed
        world.current = self

    def unpark(self) -> None:
        """End a wait that is going on, soon."""
        world = self._world
        world.after(world.duration(10e-6), partial(self._wake, self._wait), self.process)

    def unwind(self) -> None:
        """Run what is left of it in a dead process: every wait raises, and every file operation."""
        if self._is_alive:
            self._is_alive = False
            self._greenlet.switch()

    def _wake(self, wait: int) -> None:
        if wait == self._wait and self._is_alive:
            self._greenlet.switch()

    def _main(self) -> None:
        world = self._world
        try:
            if not self.process.is_dead:
                world.current = self
                self._run()
        except Killed:
            pass
        except BaseException as error:
            world.failure = world.failure or error
        finally:
            world.current = None
            self._is_alive = False
            self.ended.notify()


class Signal:
    """Condition that threads wait at until a change is signalled."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._waiting: list[SimThread] = []

    def wait_for(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until a condition holds, so many seconds at most; return True if it does."""
        world = self._world
        deadline = None if timeout is None else world.now + timeout
        while not condition():
            thread = world.current
            if thread is None:
                return False  # unwinding, or a look from outside
            if deadline is not None and world.now >= deadline:
                return False
            self._waiting.append(thread)
            try:
                thread.park(deadline)
            finally:
                self._waiting.remove(thread)
        return True

    def notify(self) -> None:
        """Have all conditions looked at."""
        for thread in self._waiting:
            thread.unpark()


class Inbox:
    """A queue that one thread reads (as `queue.SimpleQueue`)."""

    def __init__(self, world: World) -> None:
        self._items: deque[Any] = deque()
        self._changed = Signal(world)

    def put(self, item: Any) -> None:
        """Add an item."""
        self._items.append(item)
        self._changed.notify()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Take the oldest item.

        Raises:
            Empty: there is none, in time.
        """
        if not self._changed.wait_for(lambda: bool(self._items), timeout if block else 0):
            raise Empty
        return self._items.popleft()


class Event:
    """A flag that threads wait for (as `threading.Event`)."""

    def __init__(self, world: World) -> None:
        self._is_set = False
        self._changed = Signal(world)

    def is_set(self) -> bool:
        """Return True if it is set."""
        return self._is_set

    def set(self) -> None:
        """Set it."""
        self._is_set = True
        self._changed.notify()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, so many seconds at most; return True if it is."""
        return self._changed.wait_for(self.is_set, timeout)


class _Selector:
    """Selector of an event loop: time, and calls from other threads."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._is_woken = False
        self._woken = Signal(process.world)

    def select(self, timeout: float | None) -> Sequence[object]:
        """End a turn."""
        self._process.wait(self._process.world.duration(TURN_SECONDS))
        if timeout is None or timeout > 0:
            self._woken.wait_for(lambda: self._is_woken, timeout)
        self._is_woken = False
        return ()

    def wake(self) -> None:
        """End the wait, from any thread."""
        self._is_woken = True
        self._woken.notify()


class SimLoop(asyncio.BaseEventLoop):
    """asyncio's own event loop, over the time and the threads of this world. It has no sockets."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self._process = process
        self._selector = _Selector(process)
        self._clock_resolution = 1e-9
        self._tasks: list[asyncio.Task[Any]] = []
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._report)

    def time(self) -> float:
        """Seconds, that no clock step changes."""
        return self._process.world.now

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":  # type: ignore[override]
        """Run a function in a thread of its own."""
        future: asyncio.Future[Any] = self.create_future()

        def run() -> None:
            try:
                result = func(*args)
            except Killed:
                raise
            except BaseException as error:
                self.call_soon_threadsafe(_unless_done, future, future.set_exception, error)
            else:
                self.call_soon_threadsafe(_unless_done, future, future.set_result, result)

        self._process.spawn("executor", run)
        return future

    def bury(self) -> None:
        """End what a killed process has left half done, here and now and not whenever garbage is collected."""
        for task in self._tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                coroutine: Any = task.get_coro()
                with contextlib.suppress(RuntimeError, Killed):  # it would rather await something
                    coroutine.close()
        self._tasks.clear()
        self.close()

    def _make_task(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> "asyncio.Task[Any]":
        task = asyncio.Task(coroutine, loop=loop, **options)
        self._tasks.append(task)
        return task

    def _report(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception") or AssertionError(str(context))
        self._process.world.failure = self._process.world.failure or error

    def _process_events(self, event_list: Sequence[object]) -> None:
        """Do nothing: there are no sockets."""

    def _write_to_self(self) -> None:
        self._selector.wake()


def run_loop(process: Process, main: Callable[[], Any], make_loop: type[SimLoop] = SimLoop) -> SimThread:
    """Start a process's main thread: an event loop that runs a coroutine to its end, which is the process' own."""
    loop = process.loop = make_loop(process)
    process.on_death.append(loop.bury)

    def run() -> None:
        loop.run_until_complete(main())
        process.world.after(0, process.kill)

    return process.spawn("main", run)


def _leave_loop() -> "tuple[asyncio.AbstractEventLoop | None, asyncio.Task[Any] | None]":
    """Make asyncio forget the running loop, which it stores once for all threads of this world; return it."""
    loop = asyncio._get_running_loop()
    task = None if loop is None else asyncio.current_task(loop)
    if loop is not None:
        if task is not None:
            asyncio.tasks._leave_task(loop, task)
        asyncio._set_running_loop(None)
    return loop, task


def _enter_loop(loop: asyncio.AbstractEventLoop | None, task: "asyncio.Task[Any] | None") -> None:
    """Make asyncio know again what runs."""
    if loop is not None:
        asyncio._set_running_loop(loop)
        if task is not None:
            asyncio.tasks._enter_task(loop, task)


def _unless_done(future: "asyncio.Future[Any]", conclude: Callable[[Any], None], value: Any) -> None:
    if not future.done():
        conclude(value)
