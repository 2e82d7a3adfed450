"""Failures of one message, kept from ending more than that message's own handling.

Many messages are handled together: by a chore, a commit, a gate that opens, a connection that closes. What one of them
raises there is logged, and the others go on. Errors of a store or of the lock are never contained: after one nothing
may be confirmed any more, and the master has to give up.
"""

import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from pybroker.broker.domain.errors import LockError, StoreError
from pybroker.broker.domain.message import Message

FATAL: Final = (StoreError, LockError, OSError)
"""Errors that no message causes."""

LOGGED_IN_FULL_MAX: Final = 10
"""Reports of one kind that have a traceback each. Of later ones the 16th, 32nd, 64th … is logged, with its number."""

_log = logging.getLogger(__name__)

_counts: Counter[tuple[str, type[Exception]]] = Counter()


def contain(error: Exception, doing: str, message: Message | None = None, *, about: str = "a message") -> None:
    """Log an error that concerns one message; call it from the `except` clause that caught the error.

    Args:
        error: what was raised.
        doing: what failed, such as `expiring`; few different ones, because they are counted.
        message: which message, where one is at hand.
        about: what is named instead of the message.

    Raises:
        StoreError, LockError, OSError: it is one of these, which are not to be contained.
    """
    if isinstance(error, FATAL):
        raise error
    _counts[doing, type(error)] += 1
    count = _counts[doing, type(error)]
    if message is not None:
        about = f"{message.message_id} on {message.destination}"
    if count <= LOGGED_IN_FULL_MAX:
        _log.error("%s failed for %s; others are not affected", doing, about, exc_info=error)
    elif not count & (count - 1):
        _log.error("%s failed for %s, the %dth time: %r", doing, about, count, error)


def attempt(action: Callable[[], object], doing: str, message: Message | None = None) -> None:
    """Run an action, whose failure is contained.

    Raises:
        StoreError, LockError, OSError: as `contain`.
    """
    try:
        action()
    except Exception as error:
        contain(error, doing, message)
