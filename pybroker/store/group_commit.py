"""Group commit: the event loop gathers changes without waiting; one thread makes them durable, batch after batch.

```text
event loop   change change change | change change ...     | callbacks of batch 1
             `----- batch 1 -----'`--- batch 2 (open) ---'^
                     | end of the loop's turn             | posted
thread               `-> write, sync, fence --------------'-> batch 2 -> ...
```

* All changes of one turn of the loop are one batch. While a batch is being written, whatever arrives is the next one:
  the slower the disk or the database and the busier the broker, the larger the batches.
* A batch without waiters, mostly of acknowledgements, stays open for a few milliseconds: to write it at once would make
  the next producer wait for that write before its own.
* No lock and no queue entry per change: the open batch belongs to the loop, a closed one to the thread.
* The fence runs after the write and before any callback. A master that lost its lock may have written, but acknowledges
  nothing.
* A failure is never retried here; only a sink may retry. The writer stops, makes no more callbacks, and reports one
  failure.

The sink writes: into a journal's data files, or into a database. Two optimisations help where they apply:

* *Inline.* A batch through the thread costs one hop each way, and several hand-overs of the interpreter lock to a
  thread that the loop competes with: where a disk is quick, that is more than the write. So a short batch that few wait
  for is written on the loop, if the sink allows it and recent writes were short on average. A slow disk gets its
  batches through the thread, and a trial now and then. The price: if a disk that was quick hangs in such a write, the
  loop hangs with it.
* *Gathering.* A client that was just answered often sends again a moment later. To begin the next batch at once would
  miss that send, and the clients would alternate between two batches instead of sharing one. So the next batch waits
  for as many waiters as the last one had, for a part of the time that the last one took.

A `Replica` is a second receiver of each batch: it gets it before the sink, and callbacks wait for its confirmation. So
each batch costs a sync on both members, and both some 0.3 ms. Where confirmations come quickly, changes therefore
gather until the batch before is confirmed, and then for the clients that were just answered: eight producers that wait
for their receipts share one batch, instead of having three under way. A replica that is far away gets each batch at
once: there the loop would have nothing to do while a batch waits.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from queue import Empty
from typing import Generic, NamedTuple, TypeVar, final

from pybroker.broker.domain.errors import LockError, StoreError, StoreUnavailable
from pybroker.store.runtime import Callback, StoreRuntime, Worker
from pybroker.store.sink import InlineSink, Replica, Sink, Source

ABANDON_SECONDS = 1.0
"""Seconds that `abandon` waits for a running write. A new master seals the file or fences the write off."""

IDLE_SECONDS = 0.005
"""Seconds that a batch without waiters stays open, to share a write with later changes."""

IDLE_BYTES_MAX = 256 * 1024
"""Size at which a batch without waiters is written at once."""

INLINE_BYTES_MAX = 256 * 1024
"""Size up to which a write takes hardly longer than one record's."""

WAITING_ITEMS_MAX = 2
"""Batches and questions that are processed between two parts of a job: what waits, and what gathered meanwhile."""

INLINE_WAITERS_MAX = 64
"""With more waiters the next batch fills during this one's write, and the thread is faster."""

TRIAL_EVERY = 64
"""Batches that a slow disk gets through the thread before one is tried on the loop: it may have become quick."""

NEWEST_SHARE = 1 / 8
"""Weight of the newest write in the moving average. One of ten milliseconds counts for ten more writes."""

GATHER_SECONDS_MAX = 0.004
"""Seconds that a batch waits at most for clients that were just answered."""

GATHER_SECONDS_REPLICATED = 0.001
"""The same with a replica: as long as a group takes. Some event loops know no shorter time."""

logger = logging.getLogger(__name__)

C = TypeVar("C")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPolicy:
    """Policy for gathering and writing batches.

    Attributes:
        noun: the store's name in messages.
        writer: the thread's name.
        inline_seconds_max: only sinks with a shorter average write are written to on the loop; 0: none.
        gather_share: part of the last batch's time that the next one waits for clients that were answered; 0: none.
        fences_in_thread: the fence is slow, and is called in the thread also when nothing is written.
        watch_seconds: interval of the fence's calls when nothing is written; 0: no calls.
        confirm_seconds_max: a replica that on average confirms a batch within that time after the sink has it gets one
            batch at a time; 0: none does.
    """

    noun: str
    writer: str
    inline_seconds_max: float = 0.0
    gather_share: float = 0.0
    fences_in_thread: bool = False
    watch_seconds: float = 0.0
    confirm_seconds_max: float = 0.0


@final
class _Batch(Generic[C]):
    """Changes that are written together, with the callbacks that wait for them.

    Attributes:
        written_at: with a replica: when the sink had them.
    """

    __slots__ = ("byte_count", "callbacks", "content", "number", "written_at")

    def __init__(self, number: int, content: C, byte_count: int, callbacks: list[Callback]) -> None:
        self.number = number
        self.content = content
        self.byte_count = byte_count
        self.callbacks = callbacks
        self.written_at = 0.0


class _Question(NamedTuple):
    """Callbacks that wait for the fence, and for no write."""

    callbacks: Sequence[Callback]


class GroupCommit(Generic[C]):
    """Writes changes in batches, from one event loop.

    Args:
        source: gathers changes; `wake` reports the first one.
        sink: writes batches.
        policy: when to gather and write.
        runtime: event loop, thread and lock; the sink calls its fence too.
        inline: the sink, if the loop may write too.
        replica: second receiver of each batch.
    """

    def __init__(
        self,
        source: Source[C],
        sink: Sink[C],
        policy: CommitPolicy,
        runtime: StoreRuntime,
        *,
        inline: InlineSink[C] | None = None,
        replica: Replica[C] | None = None,
    ) -> None:
        self._source = source
        self._sink = sink
        self._policy = policy
        self._runtime = runtime
        self._inline_sink = inline
        self._replica = replica
        self._inbox = runtime.inbox()
        self._abandoned = runtime.event()
        self._worker: Worker | None = None
        self._failure: Exception | None = None
        self._write_seconds = 0.0
        self._done_count = 0  # the thread's
        self._next_job: tuple[Callback | None] | None = None  # the thread's
        """The job, or None for the end, that `write_waiting` took from the queue and `_next` returns."""
        # The following belongs to the loop.
        self._is_open = False
        self._waiters: list[Callback] = []
        self._number = 1
        """Callbacks of the open batch, or of the next one."""
        self._under_way: deque[_Batch[C]] = deque()
        self._writing_count = 0
        self._under_way_bytes = 0
        self._submitted_count = 0
        self._turn_end_scheduled = True  # by `start`, until it has run
        self._is_idling = False
        self._expected_count = 0
        self._sent_at = 0.0
        self._inline_seconds = 0.0
        self._confirm_seconds = 0.0
        """Moving average of the seconds from when the sink had a batch until the replica confirmed it."""
        self._until_trial = 0
        self._to_notify: list[Callback] = []
        self._is_notifying = False
        self._is_fence_due = False
        self._stopped: StoreError | None = None
        self._has_failed = False

    # ------------------------------------------------------------ the loop's side

    def write_now(self, write: Callable[[C], object]) -> None:
        """Write all gathered changes by a function, before the thread is started. Blocks.

        A replica gets them too, in the caller's thread, and confirms them later.

        Raises:
            Exception: raised by the function; then the thread must not be started.
        """
        self.send()
        for batch in self._under_way:
            write(batch.content)
        self._writing_count = 0
        self._inbox = self._runtime.inbox()
        if self._replica is None:
            self._under_way.clear()
            self._under_way_bytes = 0
        else:  # they stay under way until they are confirmed: jobs and callbacks wait behind them
            for batch in list(self._under_way):
                self._confirm(batch)

    def start(self) -> None:
        """Start the thread."""
        self._turn_end_scheduled = False
        self._worker = self._runtime.spawn(self._policy.writer.replace(" ", "-"), self._run)

    def require_running(self) -> None:
        """Check that the writer has not stopped.

        Raises:
            StoreUnavailable: the writer has stopped.
        """
        if self._stopped is not None:
            raise self._stopped

    def wake(self) -> None:
        """Report a change: it is written at the end of the loop's turn, unless a write is running."""
        if not self._is_open:
            self._is_open = True
            if not self._writing_count and not self._expected_count:
                self._schedule_turn_end()

    def when_durable(self, callback: Callback) -> None:
        """Call back when all changes so far are written; at once if they are. Never after a failure.

        In order of the calls. A callback's exception is logged; an error of a store or of the lock also stops the
        writer after the other callbacks.
        """
        if self._is_open:
            self._waiters.append(callback)
            if self._expected_count:
                if len(self._waiters) >= self._expected_count:
                    self._expected_count = 0
                    self._schedule_turn_end()
            elif not self._turn_end_scheduled and not self._writing_count:  # the first waiter
                self._schedule_turn_end()
        elif self._under_way:  # its fence may have been checked already
            self._under_way[-1].callbacks.append(partial(self.notify, (callback,)) if self._is_fence_due else callback)
        elif self._is_notifying or self._is_fence_due:  # behind those who were first
            self.notify((callback,))
        elif self._stopped is None:
            callback()

    def require_fence(self) -> None:
        """Have the next callbacks wait for the fence: they confirm something, though nothing was changed."""
        self._is_fence_due = True

    def notify(self, callbacks: Sequence[Callback]) -> None:
        """Call back at the end of the turn, without a write, if the fence lets pass; a closed one stops the writer."""
        if self._stopped is None:
            self._to_notify += callbacks
            if not self._is_notifying:
                self._is_notifying = True
                self._runtime.call_soon(self._check_fence)

    def send(self) -> None:
        """Close the open batch, and pass it on."""
        if self._is_open:
            self._enqueue(self._take_open())

    def submit(self, job: Callback) -> None:
        """Run a job in the thread, once all changes so far are written and synced and the fence permits.

        A job that raises fails the writer.
        """
        if self._stopped is not None:
            return
        self.send()
        self._submitted_count += 1
        if self._replica is not None and self._under_way:
            self._under_way[-1].callbacks.append(partial(self._inbox.put, job))
        else:
            self._inbox.put(job)

    @property
    def write_seconds(self) -> float:
        """Moving average of the seconds of short writes, on the loop or in the thread; 0 before the first."""
        return self._write_seconds

    @property
    def unwritten_bytes(self) -> int:
        """Bytes that have gathered, or are not known to be written."""
        return self._under_way_bytes + self._source.open_bytes

    @property
    def is_full(self) -> bool:
        """True while there is space only for acknowledgements."""
        return self._sink.is_full

    def close(self) -> None:
        """Write the rest, and end the thread. Blocks. Harmless when repeated.

        Raises:
            StoreError: not everything could be written.
            LockNotHeld: the fence was closed.
        """
        if self._stopped is None:
            self.send()
            self._stop(StoreUnavailable(f"the {self._policy.noun} is closed"))
            self._inbox.put(None)
            self._sink.hurry()
        if self._worker is not None:
            self._worker.join()
        if self._failure is not None:
            raise self._failure

    def abandon(self) -> None:
        """Stop without writing anything more, as if killed: changes that are not durable are lost.

        For a master that lost its lock. No callback runs any more. Waits for a running write, but only briefly: a disk
        that hangs must not keep the process a master. Harmless when repeated, and after `close`.
        """
        self._abandoned.set()
        self._stop(StoreUnavailable(f"the {self._policy.noun} was given up"))
        self._inbox.put(None)
        self._sink.interrupt()
        if self._worker is not None:
            self._worker.join(ABANDON_SECONDS)

    def _schedule_turn_end(self) -> None:
        if not self._turn_end_scheduled:
            self._turn_end_scheduled = True
            self._runtime.call_soon(self._turn_ended)

    def _turn_ended(self) -> None:
        """Write this turn's changes, unless something is under way whose end does."""
        self._turn_end_scheduled = False
        if not self._is_open or self._writing_count or self._stopped is not None:
            return
        if self._is_held:
            return
        if self._may_wait():
            self._write_later()
            return
        batch = self._take_open()
        if self._inline_sink is not None and self._is_better_inline(self._inline_sink, batch):
            self._write_inline(self._inline_sink, batch)
        else:
            self._enqueue(batch)

    def _may_wait(self) -> bool:
        """Return True if the open batch has no waiters and may stay open for later changes."""
        return not self._waiters and self._runtime.call_later is not None and self._source.open_bytes <= IDLE_BYTES_MAX

    def _write_later(self) -> None:
        if (call_later := self._runtime.call_later) is not None and not self._is_idling:
            self._is_idling = True
            call_later(IDLE_SECONDS, partial(self._idled, self._number))

    def _idled(self, number: int) -> None:
        """Write a batch without waiters; if it was written already, wait as long for the next one."""
        self._is_idling = False
        if not self._is_open or self._writing_count or self._stopped is not None or self._is_held:
            return
        if number == self._number or not self._may_wait():
            self.send()
        else:
            self._write_later()

    def _take_open(self) -> _Batch[C]:
        """Close the open batch, and return it; the next change opens another."""
        byte_count = self._source.open_bytes
        batch = _Batch(self._number, self._source.take(), byte_count, self._waiters)
        self._number += 1
        self._waiters = []
        self._is_open = False
        self._expected_count = 0
        if self._replica is not None:
            self._replica.take(batch.number, batch.content)
        return batch

    def _enqueue(self, batch: _Batch[C]) -> None:
        """Pass a closed batch to the thread."""
        self._under_way.append(batch)
        self._under_way_bytes += batch.byte_count
        self._writing_count += 1
        self._sent_at = self._runtime.monotonic()
        if self._worker is not None:  # `write_now` has no thread, and no event loop to give way
            self._runtime.give_way(1)
        self._inbox.put(batch)

    def _is_better_inline(self, inline: InlineSink[C], batch: _Batch[C]) -> bool:
        """Return True if the loop should write a batch itself; the thread has no batch to write."""
        return (
            0 < len(batch.callbacks) <= INLINE_WAITERS_MAX
            and batch.byte_count <= INLINE_BYTES_MAX
            and self._is_thread_idle()
            and inline.may_write_inline(batch.content)
            and self._is_sink_quick()
        )

    def _is_thread_idle(self) -> bool:
        """Return True if the thread has nothing to do, so that the loop may use the sink."""
        return not self._writing_count and self._submitted_count == self._done_count

    def _is_sink_quick(self) -> bool:
        """Return True if recent writes on the loop were short; now and then one is tried although they were not."""
        seconds_max = self._policy.inline_seconds_max
        if self._inline_seconds < seconds_max:
            return True
        self._until_trial = (self._until_trial or TRIAL_EVERY) - 1
        return not self._until_trial and seconds_max > 0

    def _write_inline(self, inline: InlineSink[C], batch: _Batch[C]) -> None:
        """Write a batch on the loop, as the thread does."""
        try:
            seconds = inline.write_inline(batch.content)
        except Exception as error:  # as in `_run`
            failure = self._record_failure(error)
            self._inbox.put(None)
            self._failed(failure)
            return
        if seconds is None:
            self._enqueue(batch)
            return
        self._inline_seconds += (seconds - self._inline_seconds) * NEWEST_SHARE
        self._record_seconds(batch, seconds)
        if self._replica is None and not self._under_way:
            self._call(batch.callbacks)
        else:
            self._under_way.append(batch)
            self._under_way_bytes += batch.byte_count
            self._confirm(batch)

    def _written(self, batch: _Batch[C]) -> None:
        """Confirm a batch; then the changes gathered during its write are due."""
        self._runtime.give_way(-1)
        if self._abandoned.is_set():
            return
        self._writing_count -= 1
        if not self._writing_count:
            self._expect(len(batch.callbacks) + len(self._waiters))
            if self._is_open and not self._expected_count:
                self._schedule_turn_end()
        self._confirm(batch)

    def _confirm(self, batch: _Batch[C]) -> None:
        """Record that the sink has a batch; its callbacks run once all batches up to it are confirmed."""
        if self._replica is None:
            self._complete(batch.number)
        else:
            batch.written_at = self._runtime.monotonic()
            self._replica.when_confirmed(batch.number, partial(self._complete, batch.number))

    def _complete(self, number: int) -> None:
        """Run the callbacks of the batches up to a number."""
        under_way = self._under_way
        answered = 0
        while under_way and under_way[0].number <= number:
            batch = under_way.popleft()
            self._under_way_bytes -= batch.byte_count
            if self._replica is not None:
                self._record_confirmation(batch)
                answered += len(batch.callbacks)
            if not self._abandoned.is_set():
                self._call(batch.callbacks)
        if self._replica is not None and not under_way:
            self._gather(answered)

    @property
    def _is_held(self) -> bool:
        """True while changes gather with a replica: `_complete`, and then `_gathered`, go on."""
        if self._replica is None:
            return False
        is_quick = self._confirm_seconds < self._policy.confirm_seconds_max
        return self._expected_count > 0 or (is_quick and len(self._under_way) > 0)

    def _record_confirmation(self, batch: _Batch[C]) -> None:
        """Average the times of confirmations; a single long one does not count much."""
        seconds = min(self._runtime.monotonic() - batch.written_at, 2 * self._policy.confirm_seconds_max)
        self._confirm_seconds += (seconds - self._confirm_seconds) * NEWEST_SHARE

    def _gather(self, answered: int) -> None:
        """Write what gathered while batches were under way; first wait, if briefly, for clients that were answered."""
        call_later, count = self._runtime.call_later, answered + len(self._waiters)
        is_quick = self._confirm_seconds < self._policy.confirm_seconds_max
        if call_later is not None and is_quick and count > 1 and answered and self._source.open_bytes <= IDLE_BYTES_MAX:
            self._expected_count = count
            call_later(GATHER_SECONDS_REPLICATED, partial(self._gathered, self._number))
        elif self._is_open:
            self._schedule_turn_end()

    def _expect(self, count: int) -> None:
        """Make the next batch wait briefly for that many waiters."""
        call_later, share = self._runtime.call_later, self._policy.gather_share
        if call_later is not None and share and count > 1 and self._source.open_bytes <= IDLE_BYTES_MAX:
            self._expected_count = count
            seconds = min(GATHER_SECONDS_MAX, share * (self._runtime.monotonic() - self._sent_at))
            call_later(seconds, partial(self._gathered, self._number))

    def _gathered(self, number: int) -> None:
        """End the gathering of a batch, unless it is complete or was sent."""
        if number == self._number and self._expected_count:
            self._expected_count = 0
            if self._is_open:
                self._schedule_turn_end()

    def _check_fence(self) -> None:
        """Check the fence for callbacks that need only that; in the thread if it takes long."""
        if self._stopped is not None:
            return
        callbacks, self._to_notify = self._to_notify, []
        # The lock's fence alone where messages were consumed before they were written: they cannot get lost.
        is_due, self._is_fence_due = self._is_fence_due, False
        if self._policy.fences_in_thread or (is_due and not self._is_thread_idle()):
            self._submitted_count += 1
            self._runtime.give_way(1)
            self._inbox.put(_Question(callbacks))
            return
        try:
            self._sink.fence() if is_due else self._runtime.fence()
        except Exception as error:  # LockNotHeld; the running batch fails in the same way, or is never confirmed
            failure = self._sink.explain(error)
            logger.error("the %s stops: %s", self._policy.writer, failure)
            self._failed(failure)
        else:
            self._fence_passed(callbacks)

    def _answered(self, callbacks: Sequence[Callback]) -> None:
        """Run the callbacks for which the thread called the fence."""
        self._runtime.give_way(-1)
        self._fence_passed(callbacks)

    def _fence_passed(self, callbacks: Sequence[Callback]) -> None:
        """Run the callbacks for which the fence was called; then later ones are due."""
        if not self._abandoned.is_set():
            self._is_notifying = bool(self._to_notify)
            if self._is_notifying:
                self._runtime.call_soon(self._check_fence)
            self._call(callbacks)

    def _watch(self) -> None:
        """Call the fence in the thread, as a job, while nothing is written."""
        if not self._writing_count:
            self.submit(_nothing)

    def _call(self, callbacks: Sequence[Callback]) -> None:
        failure: Exception | None = None
        for callback in callbacks:
            try:
                callback()
            except (StoreError, LockError, OSError) as error:  # the others are still called: their changes are safe
                logger.exception("a callback failed")
                failure = failure or error
            except Exception:  # one client is not answered; what was written is not affected
                logger.exception("a callback failed, and the %s goes on", self._policy.noun)
        if failure is not None:
            self._failed(failure)

    def _failed(self, error: Exception) -> None:
        """Stop permanently and report the reason, once."""
        if self._has_failed or self._abandoned.is_set():
            return
        self._has_failed = True
        reason = StoreUnavailable(f"the {self._policy.noun} has stopped: {error}")
        reason.__cause__ = error
        self._stop(reason)
        self._runtime.on_failure(error)

    def _stop(self, reason: StoreError) -> None:
        """Refuse everything from now on; the open batch is never written."""
        self._stopped = reason
        if self._is_open:
            self._is_open = False
            self._waiters = []
            self._source.take()

    # ------------------------------------------------------------ the thread's side

    def _run(self) -> None:
        """Process the queue in order, until the end or the first failure."""
        try:
            self._sink.begin()
            self._work()
            self._sink.close(in_order=not self._abandoned.is_set())
        except Exception as error:  # the fence's LockNotHeld; whatever else it is, going on would be worse
            failure = self._record_failure(error)
            if not self._abandoned.is_set():
                self._runtime.post(partial(self._failed, failure))

    def _work(self) -> None:
        """Process items until None or `abandon`."""
        sink = self._sink
        while (item := self._next()) is not None and not self._abandoned.is_set():
            if callable(item):
                sink.sync()
                sink.fence()
                item()
                self._done_count += 1
            else:
                self._process(item)

    def _process(self, item: _Batch[C] | _Question) -> None:
        """Write a batch, or ask the fence."""
        if isinstance(item, _Question):
            self._sink.fence()
            self._done_count += 1
            self._runtime.post(partial(self._answered, item.callbacks))
        else:
            self._record_seconds(item, self._sink.write(item.content))
            self._runtime.post(partial(self._written, item))

    def write_waiting(self) -> None:
        """Write what has come since a job began, up to the next job. For long jobs, between their parts; blocks.

        Clients that go on sending do not keep the job from its end: what comes meanwhile waits for the next part.

        Raises:
            Exception: it cannot be written; the job must end with it, which fails the writer.
        """
        for _ in range(WAITING_ITEMS_MAX):
            if self._next_job is not None or self._abandoned.is_set():
                return
            try:
                item: _Batch[C] | _Question | Callback | None = self._inbox.get(timeout=0)
            except Empty:
                return
            if item is None or callable(item):
                self._next_job = (item,)
            else:
                self._process(item)

    def _next(self) -> "_Batch[C] | _Question | Callback | None":
        """Wait for the next item, doing the sink's due work and checking the fence."""
        if self._next_job is not None:
            (job,), self._next_job = self._next_job, None
            return job
        watch_seconds = self._policy.watch_seconds
        watch_at = self._runtime.monotonic() + watch_seconds
        while True:
            seconds = self._sink.rest()
            if watch_seconds:
                now = self._runtime.monotonic()
                if now >= watch_at:
                    watch_at = now + watch_seconds
                    self._runtime.post(self._watch)
                seconds = watch_at - now if seconds is None else min(seconds, watch_at - now)
            try:
                item: _Batch[C] | _Question | Callback | None = self._inbox.get(timeout=seconds)
                return item
            except Empty:
                continue  # something is due

    # ------------------------------------------------------------ loop and thread

    def _record_seconds(self, batch: _Batch[C], seconds: float) -> None:
        if batch.byte_count <= INLINE_BYTES_MAX:
            self._write_seconds += (seconds - self._write_seconds) * NEWEST_SHARE

    def _record_failure(self, error: Exception) -> Exception:
        """Close the sink as it is; return the failure to report, which is the first one."""
        if self._failure is not None:  # loop and thread: one failed because the other had closed the sink
            return self._failure
        failure = self._failure = self._sink.explain(error)
        if not self._abandoned.is_set():
            logger.error("the %s stops: %s", self._policy.writer, failure)
        self._sink.close(in_order=False)
        return failure


def _nothing() -> None:
    """Do nothing behind the fence."""
