"""The refusals of AMQP requests: which part of the conversation they end, and their error conditions.

```text
 error            ends                 answer
 LinkRefused      the link             detach, with the error
 SessionRefused   the session          end, with the error
 AmqpError        the connection       close, with the error
 RequestError     what was asked for   a rejected outcome, or detach for attach
```

Source: AMQP 1.0, 2.8.14 to 2.8.18; ActiveMQ 5.17 for the conditions of its refusals.
"""

from typing import Final

from pybroker.broker.domain.amqp.errors import FRAMING_ERROR as FRAMING_ERROR
from pybroker.broker.domain.amqp.errors import INTERNAL_ERROR, AmqpError
from pybroker.broker.domain.amqp.performatives import AmqpErrorCondition, AmqpFields
from pybroker.broker.domain.amqp.values import Symbol
from pybroker.broker.domain.errors import (
    BrokerError,
    ClosedByOperator,
    CommitFailed,
    InvalidClientId,
    InvalidDestination,
    InvalidSelector,
    RequestError,
    ResourceLimit,
    SessionTakenOver,
    SubscriptionInUse,
    UnknownTransaction,
)
from pybroker.broker.domain.security import AccessDenied, NotAuthenticated

UNAUTHORIZED: Final = "amqp:unauthorized-access"
INVALID_FIELD: Final = "amqp:invalid-field"
NOT_FOUND: Final = "amqp:not-found"
NOT_ALLOWED: Final = "amqp:not-allowed"
NOT_IMPLEMENTED: Final = "amqp:not-implemented"
PRECONDITION_FAILED: Final = "amqp:precondition-failed"
RESOURCE_LIMIT: Final = "amqp:resource-limit-exceeded"
RESOURCE_LOCKED: Final = "amqp:resource-locked"
ILLEGAL_STATE: Final = "amqp:illegal-state"
CONNECTION_FORCED: Final = "amqp:connection:forced"
UNATTACHED_HANDLE: Final = "amqp:session:unattached-handle"
HANDLE_IN_USE: Final = "amqp:session:handle-in-use"
WINDOW_VIOLATION: Final = "amqp:session:window-violation"
TRANSFER_LIMIT: Final = "amqp:link:transfer-limit-exceeded"
MESSAGE_SIZE: Final = "amqp:link:message-size-exceeded"
UNKNOWN_TRANSACTION: Final = "amqp:transaction:unknown-id"
TRANSACTION_ROLLBACK: Final = "amqp:transaction:rollback"

_TEXT_MAX: Final = 350
"""The characters of a description, which usually fit into the smallest frame that a client may ask for."""


class LinkRefused(AmqpError):
    """An error that ends a link, and nothing else."""


class SessionRefused(AmqpError):
    """An error that ends a session with its links, and nothing else."""


_CONDITIONS: Final[tuple[tuple[type[BrokerError], str], ...]] = (
    (AccessDenied, UNAUTHORIZED),
    (NotAuthenticated, UNAUTHORIZED),
    (ResourceLimit, RESOURCE_LIMIT),
    (InvalidSelector, INVALID_FIELD),
    (InvalidDestination, INVALID_FIELD),
    (InvalidClientId, INVALID_FIELD),
    (SubscriptionInUse, RESOURCE_LOCKED),
    (UnknownTransaction, UNKNOWN_TRANSACTION),
    (CommitFailed, TRANSACTION_ROLLBACK),
    (ClosedByOperator, CONNECTION_FORCED),
    (SessionTakenOver, CONNECTION_FORCED),
    (RequestError, PRECONDITION_FAILED),
)
"""The conditions of the broker's errors; the first class of which an error is."""


def condition_of(error: BrokerError) -> str:
    """Return the error condition of an error."""
    if isinstance(error, AmqpError):
        return error.condition
    for kind, condition in _CONDITIONS:
        if isinstance(error, kind):
            return condition
    return INTERNAL_ERROR


def error_condition(error: BrokerError, info: AmqpFields | None = None) -> AmqpErrorCondition:
    """Return what the client gets of an error."""
    text = str(error)
    if len(text) > _TEXT_MAX:
        text = text[: _TEXT_MAX - 1] + "…"
    return AmqpErrorCondition(condition=Symbol(condition_of(error)), description=text, info=info)
