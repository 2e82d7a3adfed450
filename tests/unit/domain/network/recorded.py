"""The recorded conversations of brokers in a network, with their frames decoded."""

import gzip
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pybroker.broker.domain.openwire.commands import DataStructure, WireFormatInfo
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.marshal.wireformat import Agreement, agree, decode_offer

GOLDEN = Path(__file__).parents[3] / "golden" / "network" / "conversations.json.gz"


class RecordedFrame(NamedTuple):
    """A frame: its place, its codec before it was read, its bytes without size, the structure, and what is listed."""

    connection: int
    sender: str
    agreement: Agreement | None
    data: bytes
    value: DataStructure
    listed: dict[str, Any]


@cache
def conversations() -> dict[str, dict[str, Any]]:
    """Return all conversations by name."""
    return {each["name"]: each for each in json.loads(gzip.decompress(GOLDEN.read_bytes()))}


@cache
def frames(name: str) -> tuple[RecordedFrame, ...]:
    """Return the decoded frames of a conversation."""
    return tuple(_frames(conversations()[name]["frames"]))


def _frames(recorded: list[dict[str, Any]]) -> Iterator[RecordedFrame]:
    offers: dict[tuple[int, str], bytes] = {}
    wires: dict[tuple[int, str], WireFormat] = {}
    for frame in recorded:
        place = connection, sender = frame["connection"], frame["from"]
        data = bytes.fromhex(frame["hex"])[4:]
        if place not in offers:
            offers[place] = data
            yield RecordedFrame(connection, sender, None, data, WireFormat(1).decode(data), frame["command"])
            continue
        agreement = agree(decode_offer(offers[connection, "initiator"]), decode_offer(offers[connection, "acceptor"]))
        value = wires.setdefault(place, agreement.wire_format()).decode(data)
        yield RecordedFrame(connection, sender, agreement, data, value, frame["command"])


def is_offer(frame: RecordedFrame) -> bool:
    """Return True for the first frame of a direction."""
    return isinstance(frame.value, WireFormatInfo)
