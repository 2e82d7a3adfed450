"""`Waiter`, which makes a caller wait until a result is complete, a message arrives or the broker reads again.

Both APIs share it. Its coroutines wait only for a `Flag`. A `TaskFlag` suspends the task. The synchronous API has a
flag that blocks the thread: its coroutines run from beginning to end without a suspension.
"""

# ruff: noqa: ASYNC109 -- `timeout` is an argument of the API

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from pybroker.broker.domain.destination import Destination
from pybroker.client.consumers import ConsumerState
from pybroker.client.errors import ConnectionClosed, Timeout
from pybroker.client.link import ClientLink
from pybroker.client.messages import Body, Message
from pybroker.client.pending import PendingResult

Value = TypeVar("Value")


class Flag(Protocol):
    """A flag that the link's thread sets, and for which one caller waits."""

    def set(self) -> None:
        """Set the flag; may be called twice."""
        ...

    async def wait(self, timeout: float | None) -> bool:
        """Wait until the flag is set; return False at the timeout, in seconds."""
        ...


class TaskFlag:
    """A flag for tasks of the link's loop."""

    def __init__(self) -> None:
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def set(self) -> None:
        """Set the flag."""
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self, timeout: float | None) -> bool:
        """Suspend the task until the flag is set; return False at the timeout."""
        done, _ = await asyncio.wait({self._future}, timeout=timeout)
        return bool(done)


class Waiter:
    """Waits for the events of one connection.

    An exception in a wait, such as a task's cancellation or a KeyboardInterrupt, has the effect of a timeout.
    """

    def __init__(self, link: ClientLink, timeout: float | None, make_flag: Callable[[], Flag]) -> None:
        """Create a waiter.

        Args:
            link: the connection's link.
            timeout: the default in seconds for a timeout that is None; None for no limit.
            make_flag: returns a flag, or raises an error if the caller must not wait.
        """
        self.link = link
        self.timeout = timeout
        self._make_flag = make_flag

    async def wait(self, pending: PendingResult[Value], timeout: float | None, operation: str) -> Value | None:
        """Wait for a result; at the timeout, cancel the operation.

        Args:
            pending: the result to wait for.
            timeout: seconds; None for the default.
            operation: its name, for error messages.
        """
        if timeout is None:
            timeout = self.timeout
        if not pending.is_done:
            is_late = False
            try:
                done = self._make_flag()
                with self.link:
                    pending.add_done_callback(done.set)
                is_late = not await done.wait(timeout)
            finally:
                if not pending.is_done:
                    text = f"took longer than {timeout:g} s{self.link.failure_report}" if is_late else "was interrupted"
                    with self.link as state:
                        state.cancel(pending, (Timeout if is_late else ConnectionClosed)(f"{operation} {text}"))
        return pending.result()

    async def send(
        self, producer: int, destination: Destination, body: Body, headers: Mapping[str, Any], timeout: float | None
    ) -> None:
        """Send a message; wait until a persistent one is on disk, and another one is passed to the transport."""
        with self.link as state:
            pending = state.send(producer, destination, body, headers)
        if pending.is_done:  # a message without an answer
            pending.result()
        else:
            await self.wait(pending, timeout, "sending")
        if self.link.is_congested:
            await self.wait_until_writable(timeout)

    async def wait_until_writable(self, timeout: float | None) -> None:
        """Wait until the broker reads again, so that the client does not buffer sends without an answer.

        Raises:
            Timeout: it did not.
        """
        writable = self._make_flag()
        with self.link:
            self.link.call_when_writable(writable.set)
        if not await writable.wait(self.timeout if timeout is None else timeout):
            raise Timeout(f"the broker accepts no more messages at present{self.link.failure_report}")

    async def receive(self, consumer: ConsumerState, timeout: float | None) -> Message:
        """Wait for a message.

        Raises:
            Timeout: none arrived in time.
            ClientError: the consumer has ended.
        """
        deadline, is_late = None if timeout is None else time.monotonic() + timeout, False
        while True:
            with self.link:
                message = consumer.receive_no_wait()
                if message is not None:
                    return message
                if is_late:
                    raise Timeout(f"no message within {timeout:g} s{self.link.failure_report}")
                arrived = self._make_flag()
                left = consumer.pull(None if deadline is None else max(0.0, deadline - time.monotonic()))
                consumer.on_change.add(arrived.set)
            is_notified = False
            try:
                is_notified = await arrived.wait(self.timeout if left is None else left)
            except BaseException:
                with self.link:
                    consumer.cancel_pull()
                raise
            finally:
                if not is_notified:
                    with self.link:
                        consumer.on_change.remove(arrived.set)
            if not is_notified:
                self.link.check_broker_available(self.timeout if deadline is None else None)
            is_late = deadline is not None and (not is_notified or time.monotonic() >= deadline)
