"""Sends that wait for space in memory or in the store before they are carried out, and may fail if there is none."""

from collections.abc import Callable
from typing import Protocol

from pybroker.broker.domain.errors import RequestError, ResourceLimit


class SpaceAwaited(ResourceLimit):
    """There is no space for a message now. Its text is for the client if there is none in time.

    Attributes:
        seconds: the time in which there may be space; infinite: the send waits for as long as it takes.
        when_space: calls back once there is; the second argument identifies the callback.
        cancel: cancels the callback.
    """

    def __init__(
        self,
        text: str,
        seconds: float,
        when_space: Callable[[Callable[[], None], object], None],
        cancel: Callable[[object], None],
    ) -> None:
        super().__init__(text)
        self.seconds = seconds
        self.when_space = when_space
        self.cancel = cancel


class DeferredSendsPort(Protocol):
    """The sends of one producer that have not been carried out, as the first of them waits for space."""

    def add(
        self, attempt: Callable[[], None], refuse: Callable[[RequestError], None], size: int, error: SpaceAwaited | None
    ) -> None:
        """Add a send, behind the others; if too much waits already it is refused, or no more of the client's is read.

        Sends that wait for as long as it takes are not refused.

        Args:
            attempt: carries it out, or raises `RequestError`; with `SpaceAwaited` it is attempted again later.
            refuse: answers that it has failed. It is never attempted after that.
            size: the bytes of the message.
            error: the outcome of a first attempt; None: the send has to wait for those before it.
        """
        ...

    def finish(self) -> None:
        """Carry out or refuse all of them now, because the client leaves."""
        ...
