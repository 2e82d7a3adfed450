"""Error containment: an error that one message causes affects only that message.

Some operations handle many messages: periodic work, a commit, the opening of a gate, the end of a connection. If one
message causes an error there, the error is logged, and the others are handled all the same. Errors of a store or of the
lock are never contained: after one nothing more may be confirmed, and the broker must stop being master.
"""

import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from pybroker.broker.domain.errors import LockError, StoreError
from pybroker.broker.domain.message import Message

FATAL: Final = (StoreError, LockError, OSError)
"""Errors that are never contained, because no message causes them."""

LOGGED_IN_FULL_MAX: Final = 10
"""The first errors of a kind, which are logged with a traceback. Of later ones, the 16th, 32nd, 64th … is logged."""

_log = logging.getLogger(__name__)

_counts: Counter[tuple[str, type[Exception]]] = Counter()


def contain(error: Exception, doing: str, message: Message | None = None, *, about: str = "a message") -> None:
    """Log an error that concerns one message; call it from the `except` clause that caught the error.

    Args:
        error: the error.
        doing: the operation that failed, such as `expiring`; one of few, because errors are counted by operation.
        message: the message, if it is known.
        about: a description for the log if the message is not known.

    Raises:
        StoreError, LockError, OSError: the error is one of these, which are not contained.
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
    """Run an action, and contain its error.

    Raises:
        StoreError, LockError, OSError: as `contain`.
    """
    try:
        action()
    except Exception as error:
        contain(error, doing, message)
