"""The texts of frames: JSON objects behind their length, whose values are checked.

A value of another kind, or a text that is too long, is a `MalformedFrame`.

Source: specification of replication, 4.1.
"""

import json
from typing import Any, Final

from pybroker.broker.domain.big_endian import UNSIGNED_INT
from pybroker.broker.domain.replica.manifest import MalformedFrame
from pybroker.broker.domain.replica.ports import ReplicaMember

TEXT_BYTES_MAX: Final = 16 << 10
"""The record of a register has 4 KB at most, names and ids some hundred bytes."""


def split_text(payload: memoryview) -> tuple[bytes, memoryview]:
    """Return the text at the beginning, and what follows it."""
    (length,) = UNSIGNED_INT.unpack_from(payload)
    if length > TEXT_BYTES_MAX or 4 + length > len(payload):
        raise MalformedFrame(f"a text of {length} bytes")
    return bytes(payload[4 : 4 + length]), payload[4 + length :]


def text_values(text: bytes) -> dict[str, Any]:
    """Return the values of a JSON object.

    Raises:
        MalformedFrame: the text is none.
    """
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedFrame("a text is not JSON") from error
    if not isinstance(values, dict):
        raise MalformedFrame("a text is no JSON object")
    return values  # pyright: ignore[reportUnknownVariableType]


def member_of(values: dict[str, Any]) -> ReplicaMember:
    """Return the member that a text describes."""
    return ReplicaMember(
        cluster=string_of(values, "cluster"),
        store=string_of(values, "store"),
        run=string_of(values, "life"),
        name=string_of(values, "name"),
    )


def number_of(values: dict[str, Any], key: str) -> int:
    """Return a value that is a number of 63 bits."""
    value = values.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise MalformedFrame(f"{key} is no number")
    return value


def string_of(values: dict[str, Any], key: str) -> str:
    """Return a value that is a text of Unicode."""
    value = values.get(key)
    if not isinstance(value, str):
        raise MalformedFrame(f"{key} is no text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise MalformedFrame(f"{key} is no text") from error
    return value


def encode_text(values: dict[str, Any], member: ReplicaMember) -> tuple[bytes, bytes]:
    """Return the length and the bytes of a text with these values and the description of a member."""
    named = {"cluster": member.cluster, "store": member.store, "life": member.run, "name": member.name}
    text = json.dumps(values | named, ensure_ascii=False).encode()
    assert len(text) <= TEXT_BYTES_MAX, "a record has 4 KB at most"
    return UNSIGNED_INT.pack(len(text)), text
