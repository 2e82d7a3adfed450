"""Errors as the exceptions of a Java client.

A client throws `javax.jms` exceptions as they are and wraps others in a JMSException; of an XAException it takes the
error code from the end of the message (ActiveMQ's client, `TransactionContext`).
"""

from pybroker.broker.domain.errors import (
    BrokerError,
    CommitFailed,
    DestinationDoesNotExist,
    InvalidClientId,
    InvalidDestination,
    InvalidSelector,
    RequestError,
    ResourceLimit,
    TooManyValues,
    TransactionError,
    UnknownTransaction,
)
from pybroker.broker.domain.jobs import InvalidSchedule
from pybroker.broker.domain.openwire.throwables import Throwable
from pybroker.broker.domain.security import AccessDenied, NotAuthenticated
from pybroker.broker.domain.transaction import TransactionId

_JMS = "javax.jms.JMSException"
_ILLEGAL_STATE = "java.lang.IllegalStateException"
_XA = "javax.transaction.xa.XAException"
XA_ROLLED_BACK, XA_NO_RESOURCES, XA_UNKNOWN, XA_WRONG_STATE = 100, -3, -4, -6

_TEXT_MAX = 1000
"""The limit to the characters of a message, which may quote names as long as a frame's longest string."""


class WrongState(RequestError):
    """A command for a connection, session, producer or consumer that the client has not opened."""


class MissingDestination(InvalidDestination):
    """A message to no destination, or to one without a name.

    Attributes:
        transaction: the transaction of the message; None for none.
    """

    def __init__(self, message: str, transaction: TransactionId | None) -> None:
        super().__init__(message)
        self.transaction = transaction


class UnmatchedAck(TransactionError):
    """An acknowledgement of messages that are not outstanding with the consumer."""


_CLASSES: tuple[tuple[type[BrokerError], str], ...] = (
    (DestinationDoesNotExist, "org.apache.activemq.DestinationDoesNotExistException"),
    (InvalidDestination, "javax.jms.InvalidDestinationException"),
    (InvalidSchedule, "javax.jms.MessageFormatException"),
    (TooManyValues, "javax.jms.MessageFormatException"),
    (InvalidSelector, "javax.jms.InvalidSelectorException"),
    (InvalidClientId, "javax.jms.InvalidClientIDException"),
    (ResourceLimit, "javax.jms.ResourceAllocationException"),
    (CommitFailed, "javax.jms.TransactionRolledBackException"),
    (NotAuthenticated, "java.lang.SecurityException"),
    (AccessDenied, "java.lang.SecurityException"),
    (WrongState, _ILLEGAL_STATE),
    (BrokerError, _JMS),
)


def throwable(error: BrokerError, *, xa: bool = False) -> Throwable:
    """Return an error as a Java exception; with `xa`, as an XAException with its error code."""
    text = str(error)[:_TEXT_MAX] or type(error).__name__  # never null: some versions of the codec cannot encode that
    if xa:
        return Throwable(class_name=_XA, message=f"{text} xaErrorCode:{_xa_code(error)}")
    class_name = next(name for kind, name in _CLASSES if isinstance(error, kind))
    return Throwable(class_name=class_name, message=text)


def _xa_code(error: BrokerError) -> int:
    if isinstance(error, UnknownTransaction):
        return XA_UNKNOWN
    if isinstance(error, ResourceLimit):
        return XA_NO_RESOURCES
    return XA_ROLLED_BACK if isinstance(error, CommitFailed) else XA_WRONG_STATE
