"""Valid frames to begin from: the files of `tests/golden`, which a real ActiveMQ has written."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from pybroker.broker.domain.openwire.marshal.framing import FrameReader

_GOLDEN: Final = Path(__file__).parents[2] / "tests" / "golden"
_LONG: Final = 5_000
"""Bytes of a frame above which it is left out: it would fill memory and show nothing more."""


@cache
def openwire_frames(version: int, *, tight: bool = False) -> tuple[bytes, ...]:
    """Return a frame of every data type in a wire version, without their sizes.

    Args:
        version: of the wire; files are there for some, and the next lower one counts.
        tight: tight encoding rather than loose.
    """
    kind = "tight" if tight else "loose"
    files = {int(path.name[1:3]): path for path in (_GOLDEN / "openwire" / "wire").glob(f"v*-{kind}.bin")}
    return tuple(frames_of(files[max(each for each in files if each <= version)].read_bytes()))


@cache
def openwire_captures() -> tuple[tuple[bytes, ...], ...]:
    """Return what Java clients have sent on each connection, frame by frame, without their sizes."""
    paths = sorted((_GOLDEN / "openwire" / "captures").glob("*-c2s.bin"))
    return tuple(tuple(frames_of(path.read_bytes())) for path in paths if "default" not in path.name)


@cache
def stomp_captures() -> tuple[tuple[bytes, ...], ...]:
    """Return what STOMP clients have sent on each connection, in the pieces in which it came."""
    found: list[tuple[bytes, ...]] = []
    for path in sorted((_GOLDEN / "stomp").glob("*.json")):
        pieces: dict[int, list[bytes]] = {}
        for event in json.loads(path.read_text())["events"]:
            if event.get("dir") == "C" and "text" in event:
                pieces.setdefault(event["conn"], []).append(event["text"].encode())
        found += [tuple(each for each in sent if len(each) < _LONG) for sent in pieces.values()]
    return tuple(each for each in found if each)


@cache
def mqtt_packets() -> tuple[bytes, ...]:
    """Return the packets that MQTT clients have sent."""
    return tuple(_clients_bytes("mqtt"))


@cache
def amqp_frames() -> tuple[bytes, ...]:
    """Return the frames that AMQP clients, and ActiveMQ to them, have sent."""
    found: list[bytes] = []
    for data in _clients_bytes("amqp", sides="CS"):
        rest = data[8:] if data.startswith(b"AMQP") else data
        while rest:
            size = int.from_bytes(rest[:4], "big")
            found.append(rest[:size])
            rest = rest[size:]
    return tuple(found)


def _clients_bytes(name: str, sides: str = "C") -> Iterator[bytes]:
    """Yield what was sent in conversations whose files have it in hexadecimal, in the pieces in which it came."""
    for path in sorted((_GOLDEN / name).glob("*.json")):
        for event in json.loads(path.read_text())["events"]:
            if event.get("dir", "-") in sides and "hex" in event and len(event["hex"]) < 2 * _LONG:
                yield bytes.fromhex(event["hex"])


@cache
def client_hellos() -> tuple[bytes, ...]:
    """Return the first records of TLS clients."""
    return tuple(path.read_bytes() for path in sorted((_GOLDEN / "tls").glob("*.bin")))


def frames_of(data: bytes) -> list[bytes]:
    """Return the frames in a stream, without their sizes, except for long ones."""
    reader, found = FrameReader(), []
    reader.feed(data)
    while reader.advance():
        if reader.stop - reader.start < _LONG:
            found.append(reader.data[reader.start : reader.stop])
    return found
