# mypy: disable-error-code="dict-item"
"""The declarations against OpenWire's schema; the codec against what ActiveMQ wrote, value for value, byte for byte."""

import json
import struct
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.openwire import commands
from pybroker.broker.domain.openwire.commands import MESSAGES, TRANSACTION_IDS, DataStructure, StackFrame, Throwable
from pybroker.broker.domain.openwire.ids import DESTINATION_TYPES, OpenWireMessageId
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.marshal.framing import FrameReader
from pybroker.broker.domain.openwire.marshal.layouts import LAYOUTS, MARSHAL_AWARE, Layout
from pybroker.broker.domain.openwire.marshal.schema import FieldKind
from pybroker.broker.domain.openwire.marshal.wireformat import agree, decode_offer

GOLDEN = Path(__file__).parents[2] / "golden" / "openwire"
WIRE = GOLDEN / "wire"
CAPTURES = GOLDEN / "captures"

SCHEMA: dict[str, Any] = json.loads((WIRE / "openwire-schema.json").read_text())["types"]
CASES: list[dict[str, Any]] = json.loads((WIRE / "index.json").read_text())["cases"]
STREAMS: list[dict[str, Any]] = json.loads((WIRE / "cached-index.json").read_text())["streams"]

CONCRETE = {description["typeId"]: name for name, description in SCHEMA.items() if "typeId" in description}

SPELT_OTHERWISE = {
    "type": "jms_type",
    "receivedByDFBridge": "received_by_bridge",
    "jmsxGroupFirstForConsumer": "group_first_for_consumer",
}
"""Fields of a message whose name is not Java's in Python spelling."""


def java_fields(name: str) -> list[dict[str, Any]]:
    """Return a type's fields in wire order, inherited ones first."""
    description = SCHEMA[name]
    inherited = java_fields(description["extends"]) if "extends" in description else []
    return inherited + description["fields"]


def java_name(layout: Layout) -> str:
    return CONCRETE[layout.data_type]


# ---------------------------------------------------------------- the schema


def declared_types(java_type: str) -> set[str]:
    """Return the names of our classes for a field that Java declares so; none for any."""
    families: dict[str, tuple[type, ...]] = {
        "DataStructure": (),
        "Message": MESSAGES,
        "ActiveMQDestination": (Destination,),
        "TransactionId": TRANSACTION_IDS,
        "BooleanExpression": (commands.NetworkBridgeFilter,),
        "MessageId": (OpenWireMessageId,),
    }
    found = families[java_type] if java_type in families else (getattr(commands, java_type),)
    return {kind.__name__ for kind in found}


def test_every_data_type_is_declared() -> None:
    assert LAYOUTS.keys() == CONCRETE.keys()
    assert {layout.data_type for layout in LAYOUTS.values() if layout.types[0] in MARSHAL_AWARE} == {
        data_type for data_type, name in CONCRETE.items() if SCHEMA[name].get("marshallAware")
    }


def is_same_name(java: str, ours: str, message: bool) -> bool:
    if message and java in SPELT_OTHERWISE:
        return ours == SPELT_OTHERWISE[java]
    return ours.replace("_", "") == java.lower()


@pytest.mark.parametrize("data_type", sorted(CONCRETE), ids=CONCRETE.__getitem__)
def test_a_declaration_matches_the_schema(data_type: int) -> None:
    layout = LAYOUTS[data_type]
    java = java_fields(CONCRETE[data_type])

    assert layout.since == SCHEMA[CONCRETE[data_type]]["since"]
    assert len(layout.fields) == len(java)
    for (name, spec), field in zip(layout.fields, java, strict=True):
        assert is_same_name(field["name"], name, layout.types[0] in MESSAGES), (name, field)
        assert spec.kind is FieldKind(field["kind"])
        assert (spec.since, spec.until) == (field["since"], field.get("until", 12))
        assert spec.cached == field.get("cached", False)
        assert spec.size == field.get("size", 0)
        if spec.kind in (FieldKind.OBJECT, FieldKind.ARRAY):
            assert {kind if isinstance(kind, str) else kind.__name__ for kind in spec.types} == declared_types(
                field["type"]
            )


def test_a_missing_field_has_the_schemas_default() -> None:
    for layout in LAYOUTS.values():
        if layout.build is None:
            for ours, java in zip(fields(layout.types[0]), java_fields(java_name(layout)), strict=True):
                if java["since"] > SCHEMA[java_name(layout)]["since"]:
                    assert ours.default == java.get("absent", ours.default)
                    assert "absent" in java or not ours.default, f"{java_name(layout)}.{java['name']}"


# ---------------------------------------------------------------- single frames


@cache
def wire_file(name: str) -> bytes:
    return (WIRE / name).read_bytes()


def golden_frames() -> Iterator[tuple[dict[str, Any], WireFormat, bytes]]:
    """Give each golden frame with its case and a codec for it."""
    for case in CASES:
        for key, (offset, length) in case["at"].items():
            wire = WireFormat(
                int(key[1:3]), tight=key.endswith("tight"), stack_traces=case.get("stackTraceEnabled", True)
            )
            yield case, wire, wire_file(f"{key}.bin")[offset : offset + length]


def layout_of(value: object) -> Layout:
    if isinstance(value, Destination):
        return next(LAYOUTS[number] for number, kind in DESTINATION_TYPES.items() if kind is value.type)
    return next(layout for layout in LAYOUTS.values() if type(value) in layout.types)


def as_java(value: object, wire: WireFormat) -> Any:
    """Return a decoded value as the index writes it, with the fields that the version has."""
    match value:
        case bytes():
            return {"hex": value.hex()}
        case StackFrame():
            return list(value)
        case Throwable():
            shown = {"class": value.class_name, "message": value.message}
            if wire.stack_traces:
                shown |= {"stack": [list(frame) for frame in value.stack], "cause": as_java(value.cause, wire)}
            return shown
        case None | bool() | int() | str():
            return value
        case tuple() if not hasattr(value, "_fields"):
            return [as_java(element, wire) for element in value]
    layout = layout_of(value)
    named = zip(java_fields(java_name(layout)), layout.fields, strict=True)
    parts = layout.parts(value) if layout.parts else tuple(getattr(value, name) for name, _ in layout.fields)
    return {"_type": java_name(layout)} | {
        java["name"]: as_java(part, wire)
        for (java, (_, spec)), part in zip(named, parts, strict=True)
        if spec.is_in(wire.version)
    }


def expected_in(expected: Any, wire: WireFormat) -> Any:
    """Return what the index expects, without what the version or the option leaves out."""
    if isinstance(expected, list):
        return [expected_in(element, wire) for element in expected]
    if not isinstance(expected, dict):
        return expected
    if "_type" in expected:
        present = {
            field["name"]
            for field in java_fields(expected["_type"])
            if field["since"] <= wire.version <= field.get("until", 12)
        }
        return {name: expected_in(value, wire) for name, value in expected.items() if name in present | {"_type"}}
    if "class" in expected and not wire.stack_traces:
        return {name: expected[name] for name in ("class", "message")}
    return {name: expected_in(value, wire) for name, value in expected.items()}


def test_golden_frames_decode_as_java_and_round_trip() -> None:
    count = 0
    for case, wire, frame in golden_frames():
        value = wire.decode(frame[4:])
        where = f"{case['name']} in version {wire.version}, {'tight' if wire.tight else 'loose'}"
        assert as_java(value, wire) == expected_in(case["expected"], wire), where
        assert wire.encode_frame(value) == frame, where
        count += 1
    assert count == 3190


# ---------------------------------------------------------------- value caching


def frames_of(data: bytes) -> list[bytes]:
    reader = FrameReader()
    reader.feed(data)
    found: list[bytes] = []
    while reader.advance():
        found.append(reader.data[reader.start : reader.stop])
    return found


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream["file"])
def test_cached_streams_decode_and_encode_to_the_same_bytes(stream: dict[str, Any]) -> None:
    def wire(reuse: bool) -> WireFormat:
        return WireFormat(
            stream["version"], tight=stream["tight"], cache_size=stream["cacheSize"], stack_traces=True, reuse=reuse
        )

    reader, writer, frames = wire(False), wire(True), frames_of(wire_file(stream["file"]))

    assert len(frames) == len(stream["expected"])
    for frame, expected in zip(frames, stream["expected"], strict=True):
        value = reader.decode(frame)
        assert as_java(value, reader) == expected_in(expected, reader)
        assert writer.encode(value) == frame


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream["file"])
def test_a_writer_that_reuses_nothing_is_understood_too(stream: dict[str, Any]) -> None:
    reader, writer, receiver = (
        WireFormat(stream["version"], tight=stream["tight"], cache_size=stream["cacheSize"], stack_traces=True)
        for _ in range(3)
    )
    for frame in frames_of(wire_file(stream["file"])):
        value = reader.decode(frame)
        assert receiver.decode(writer.encode(value)) == value


# ---------------------------------------------------------------- captured conversations


def conversations() -> list[str]:
    return sorted(path.name.removesuffix("-c2s.bin") for path in CAPTURES.glob("*-c2s.bin"))


@pytest.mark.parametrize("conversation", conversations())
def test_captured_conversations_round_trip(conversation: str) -> None:
    client = frames_of((CAPTURES / f"{conversation}-c2s.bin").read_bytes())
    broker = frames_of((CAPTURES / f"{conversation}-s2c.bin").read_bytes())
    agreement = agree(decode_offer(client[0]), decode_offer(broker[0]))
    assert agreement == agree(decode_offer(broker[0]), decode_offer(client[0]))
    assert bool(agreement.cache_size) == agreement.tight == ("-default" in conversation)

    for frames in (client, broker):
        wire = agreement.wire_format(reuse=True)
        for frame in frames[1:]:
            value: DataStructure = wire.decode(frame)
            assert wire.encode(value) == frame


@pytest.mark.parametrize("conversation", conversations())
def test_captures_hold_whole_frames(conversation: str) -> None:
    for direction in ("c2s", "s2c"):
        data = (CAPTURES / f"{conversation}-{direction}.bin").read_bytes()
        assert b"".join(struct.pack(">i", len(frame)) + frame for frame in frames_of(data)) == data
