"""Selectors, compiled to what consumers ask about each message."""

from collections.abc import Callable

from pybroker.broker.core.selector import compile_selector
from pybroker.broker.domain.message import Message

Matcher = Callable[[Message, int], bool]
"""A compiled selector: takes a message and its redelivery count, returns True if the message matches."""


def matcher(selector: str | None) -> Matcher | None:
    """Return the compiled selector, None if it is absent or blank and so matches every message.

    Raises:
        InvalidSelector: it cannot be parsed.
    """
    return compile_selector(selector).matches if selector and not selector.isspace() else None
