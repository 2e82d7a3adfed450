"""The types of the methods that answer requests of the management process."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

Arguments = Mapping[str, Any]

SendRows = Callable[[list[Any]], Awaitable[None]]
"""Sends rows of the answer; none are a sign of life."""

Method = Callable[[Arguments, SendRows], Awaitable[object]]
"""Returns the result of a request.

Raises:
    RequestFailed: it is not carried out.
    BrokerError: the broker refuses it.
"""
