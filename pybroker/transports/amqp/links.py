"""A link of an AMQP session, as the session sees it."""

from abc import ABCMeta, abstractmethod

from pybroker.broker.domain.amqp.performatives import AmqpDetach, AmqpFlow, AmqpTransfer
from pybroker.broker.domain.errors import BrokerError
from pybroker.transports.amqp.refusals import error_condition


class AmqpLink(metaclass=ABCMeta):
    """A link.

    Attributes:
        handle: its number in the session, for both sides.
        name: its name, which the client has chosen.
    """

    __slots__ = ("handle", "name")

    def __init__(self, handle: int, name: str) -> None:
        self.handle = handle
        self.name = name

    @abstractmethod
    def transfer(self, transfer: AmqpTransfer, payload: bytes) -> None:
        """Carry out a transfer.

        Raises:
            LinkRefused: the link ends.
            SessionRefused: the session ends.
        """

    @abstractmethod
    def flow(self, flow: AmqpFlow) -> None:
        """Carry out a flow of this link. Raises as `transfer`."""

    @abstractmethod
    def end(self, *, is_closed: bool) -> None:
        """End the link in the core, in pieces if that is long.

        Args:
            is_closed: it is closed, not only detached: a durable subscription is deleted.
        """

    @abstractmethod
    def abandon(self) -> None:
        """Carry out nothing more: the connection has ended."""


class RefusedLink(AmqpLink):
    """A link that the broker has ended: what the client sends for it, until its own detach comes, has no effect."""

    __slots__ = ()

    def transfer(self, transfer: AmqpTransfer, payload: bytes) -> None:
        """Do nothing."""

    def flow(self, flow: AmqpFlow) -> None:
        """Do nothing."""

    def end(self, *, is_closed: bool) -> None:
        """Do nothing."""

    def abandon(self) -> None:
        """Do nothing."""


def detach(handle: int, *, is_closed: bool, error: BrokerError | None = None) -> AmqpDetach:
    """Return a detach, with the error for which the broker ends the link."""
    return AmqpDetach(handle=handle, closed=is_closed, error=None if error is None else error_condition(error))
