"""`Waiter`, which makes a caller wait until a result is complete, a message arrives or the broker reads again.

Both APIs share it. Its coroutines wait only for a `Flag`. A `TaskFlag` suspends the task. The synchronous API has a
flag that blocks the thread: its coroutines run from beginning to end without a suspension.
"""

# ruff: noqa: ASYNC109 -- `timeout` is an argument of the API

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from pybroker.broker.domain.destination import Destination
from pybroker.client.consumers import ANSWER_SECONDS, ConsumerState
from pybroker.client.errors import ConnectionClosed, Timeout
from pybroker.client.link import ClientLink
from pybroker.client.messages import Body, Message
from pybroker.client.pending import PendingResult
from pybroker.client.state import ClientState

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
        return await self._receive([consumer], lambda _: consumer.receive_no_wait(), timeout)

    async def receive_any(
        self, consumers: Sequence[ConsumerState], timeout: float | None
    ) -> tuple[ConsumerState, Message]:
        """Wait for a message of any of several consumers of the connection, and return it with its consumer.

        Raises:
            Timeout: none arrived in time.
            ClientError: as `ClientState.receive_any`.
        """
        try:
            return await self._receive(consumers, lambda state: state.receive_any(consumers), timeout)
        finally:
            with self.link:  # the messages of the others stay with the broker
                for consumer in consumers:
                    consumer.cancel_pull()

    async def _receive(
        self, consumers: Sequence[ConsumerState], poll: Callable[[ClientState], Value | None], timeout: float | None
    ) -> Value:
        """Wait until `poll` returns a message, which it may return with its consumer."""
        seconds = None if timeout is None else max(0.0, timeout)
        deadline, is_late = None if seconds is None else time.monotonic() + seconds, False
        while True:
            with self.link as state:
                received = poll(state)
                if received is not None:
                    return received
                if is_late:
                    raise Timeout(f"no message within {timeout:g} s{self.link.failure_report}")
                arrived = self._make_flag()
                left = _pull(consumers, seconds)
                events = [consumer.on_change for consumer in consumers] or [state.on_failed]
                for event in events:
                    event.add(arrived.set)
            is_notified = False
            try:
                is_notified = await arrived.wait(self.timeout if left is None else left)
            except BaseException:
                with self.link:
                    for consumer in consumers:
                        consumer.cancel_pull()
                raise
            finally:
                if not is_notified or len(events) > 1:
                    with self.link:
                        for event in events:
                            event.remove(arrived.set)
            if not is_notified:
                self.link.check_broker_available(self.timeout if deadline is None else None)
            if deadline is not None:
                seconds = deadline - time.monotonic()
                is_late = not is_notified or (seconds <= 0 and not any(each.awaits_pull for each in consumers))


def _pull(consumers: Sequence[ConsumerState], seconds: float | None) -> float | None:
    """Pull a message for each consumer that needs it, and return the seconds to wait for it; None for no limit.

    Args:
        consumers: the consumers.
        seconds: the rest of the timeout; negative while only the answers to earlier pulls are awaited.
    """
    if seconds is None:
        for consumer in consumers:
            consumer.pull(None)
        return None
    if seconds < 0:
        return ANSWER_SECONDS
    return max((consumer.pull(seconds) or 0.0 for consumer in consumers), default=seconds)
