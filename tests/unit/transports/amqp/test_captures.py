"""Replay of AMQP captures: the answers equal those of ActiveMQ 5.17.2, up to ids, limits and texts."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pytest

from pybroker.broker.domain.amqp.frames import AmqpFrame, AmqpFrameDecoder, AmqpHeaderSeen, AmqpInput, AmqpLimits
from pybroker.broker.domain.amqp.performatives import AmqpDisposition, AmqpErrorCondition, AmqpOpen, AmqpTransfer
from pybroker.broker.domain.amqp.sections import decode_message
from pybroker.transports.amqp.inbound import AmqpTransformer
from tests.unit.transports.amqp.conversation import Peer, World

GOLDEN: Final = Path(__file__).parents[3] / "golden" / "amqp"

OWN: Final = frozenset(
    ("channel_max", "handle_max", "max_message_size", "next_outgoing_id", "delivery_tag", "handle", "properties")
)
"""Fields in which brokers may differ: their limits, and numbers that they choose."""


def conversation(name: str) -> dict[str, Any]:
    return json.loads((GOLDEN / f"{name}.json").read_text())


def plain(value: Any) -> Any:
    """Return a value without fields that are not set, or set to their defaults."""
    if isinstance(value, dict):
        found = {str(key): plain(each) for key, each in value.items() if key not in OWN}
        return {key: each for key, each in found.items() if each not in (None, 0, False, {}, "")}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def comparable(received: AmqpInput) -> Any:
    if isinstance(received, AmqpHeaderSeen):
        return received
    performative: Any = received.performative
    error = getattr(performative, "error", None)
    if isinstance(error, AmqpErrorCondition):
        error.description = None
    if isinstance(performative, AmqpDisposition) and performative.last == performative.first:
        performative.last = None
    if isinstance(performative, AmqpTransfer):
        performative.delivery_id = None
    fields: Any = plain(asdict(performative))
    if isinstance(performative, AmqpTransfer):
        message = decode_message(received.payload)
        return "AmqpTransfer", fields, message.body, message.application_properties
    return type(performative).__name__, fields


def replay(world: World, recorded: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """Send what the client has sent; return what ActiveMQ answered, and what pybroker does."""
    peers: dict[str, Peer] = {}
    decoders: dict[str, AmqpFrameDecoder] = {}
    theirs: list[Any] = []
    ours: list[Any] = []
    for event in recorded["events"]:
        if "hex" not in event:
            continue
        name, data = event["conn"], bytes.fromhex(event["hex"])
        if name not in peers:
            peers[name], decoders[name] = world.connect(), AmqpFrameDecoder(AmqpLimits(frame_bytes_max=1 << 20))
        if event["dir"] == "S":
            theirs += [(name, comparable(each)) for each in decoders[name].feed(data)]
            continue
        ours += [(name, comparable(each)) for each in peers[name].feed(data)]
        ours += [(name, comparable(each)) for each in peers[name].receive()]
        if peers[name].link.closed:
            peers[name].session.lost()
    return theirs, ours


@pytest.mark.parametrize(
    ("name", "before"),
    [("01-send", None), ("02-receive", "01-send"), ("04-durable", None), ("05-errors", None), ("07-native", None)],
)
def test_answers_are_those_of_activemq(name: str, before: str | None) -> None:
    recorded = conversation(name)
    world = World(transformer=AmqpTransformer(recorded["transformer"]))
    if before is not None:
        replay(world, conversation(before))
    theirs, ours = replay(world, recorded)
    assert ours == theirs


def test_dynamic_node_is_described_as_by_activemq() -> None:
    theirs, ours = replay(World(), conversation("06-dynamic-anonymous"))
    attached = [next(each[1][1] for each in found if "dynr" in str(each[1])) for found in (theirs, ours)]
    for each in attached:
        assert each["source"].pop("address").startswith("temp-queue://ID:")
    assert attached[0] == attached[1]


def test_open_has_the_properties_of_activemq() -> None:
    decoder = AmqpFrameDecoder(AmqpLimits())
    data = b"".join(bytes.fromhex(each["hex"]) for each in conversation("01-send")["events"] if each.get("dir") == "S")
    [theirs] = [
        each.performative
        for each in decoder.feed(data)
        if isinstance(each, AmqpFrame) and isinstance(each.performative, AmqpOpen)
    ]
    ours = World().open().opened
    assert ours.properties is not None
    assert theirs.properties is not None
    assert ours.properties.keys() == theirs.properties.keys()
