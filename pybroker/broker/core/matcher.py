"""Selectors, compiled to what consumers ask about each message."""

from collections.abc import Callable

from pybroker.broker.core.selector import compile_selector
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.subscription import ConsumerRequest

Matcher = Callable[[Message, int], bool]
"""A compiled selector: takes a message and its redelivery count, returns True if the message matches."""


def matcher(selector: str | None) -> Matcher | None:
    """Return the compiled selector, None if it is absent or blank and so matches every message.

    Raises:
        InvalidSelector: it cannot be parsed.
    """
    return compile_selector(selector).matches if selector and not selector.isspace() else None


def request_matcher(request: ConsumerRequest) -> Matcher | None:
    """Return what a consumer asks about each message: its selector, and what its bridge admits; None: nothing.

    Raises:
        InvalidSelector: the selector cannot be parsed.
    """
    selects = matcher(request.selector)
    if request.network is None:
        return selects
    admits = request.network.admits
    if selects is None:
        return lambda message, redelivery_count: admits(message)
    return lambda message, redelivery_count: admits(message) and selects(message, redelivery_count)
