"""Evaluation of a selector on a message that is made on the spot."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pybroker.broker.core.selector import compile_selector
from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.ids import OpenWireMessageId
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, routing, to_message
from pybroker.broker.domain.openwire.values import encode_map

PLAIN = OpenWireMessage(
    type=MessageType.TEXT,
    destination=queue("ORDERS"),
    message_id=OpenWireMessageId("ID:host-1-2:1:1:1", None, 0),
    persistent=True,
)


@pytest.fixture
def message() -> Callable[..., Message]:
    """Make a message of properties, and of header fields by their names there; it is yet to be decoded."""

    def make(properties: dict[str, Any] | None = None, **headers: Any) -> Message:
        fields = {"marshalled_properties": encode_map(properties or {}), **headers}
        return routing(to_message(replace(PLAIN, **fields)).data)

    return make


@pytest.fixture
def truth(message: Callable[..., Message]) -> Callable[..., bool | None]:
    """Evaluate to True, False or None for UNKNOWN: then neither a condition matches nor its opposite."""

    def evaluate(text: str, /, **properties: Any) -> bool | None:
        subject = message(properties)
        prefix, colon, condition = text.rpartition("convert_string_expressions:")
        if compile_selector(text).matches(subject):
            return True
        return False if compile_selector(f"{prefix}{colon}NOT ({condition})").matches(subject) else None

    return evaluate
