"""Every frame of the recorded conversations says what is listed, and has its bytes again when it is encoded."""

from typing import Any

import pytest

from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.values import decode_map
from tests.unit.domain.network.recorded import RecordedFrame, conversations, frames, is_offer
from tests.unit.openwire.test_vectors import as_java

SCHEMES = {
    "ActiveMQQueue": "queue",
    "ActiveMQTopic": "topic",
    "ActiveMQTempQueue": "temp-queue",
    "ActiveMQTempTopic": "temp-topic",
}


def as_listed(value: Any) -> Any:
    """Return a structure as the recording lists it: without false, 0 and null, ids and destinations as text."""
    if isinstance(value, list):
        return [as_listed(each) for each in value]
    if not isinstance(value, dict) or "_type" not in value:
        return value
    match value["_type"]:
        case "ConnectionId" | "BrokerId":
            return value["value"]
        case "SessionId":
            return f"{value['connectionId']}:{value['value']}"
        case "ConsumerId" | "ProducerId":
            return f"{value['connectionId']}:{value['sessionId']}:{value['value']}"
        case "MessageId":
            return f"{as_listed(value['producerId'])}:{value['producerSequenceId']}"
        case "LocalTransactionId":
            return f"TX:{as_listed(value['connectionId'])}:{value['value']}"
        case kind if kind in SCHEMES:
            return f"{SCHEMES[kind]}://{value['physicalName']}"
    listed: dict[str, Any] = {}
    for name, each in value.items():
        if each is None or each is False or name == "magic" or (each == 0 and each is not True):
            continue
        if name == "marshalledProperties":
            listed["properties"] = {
                key: entry.hex() if isinstance(entry, bytes) else entry
                for key, entry in decode_map(bytes.fromhex(each["hex"])).items()
            }
        elif name == "exception":
            listed[name] = {"class": each["class"], "message": each["message"]}
        else:
            listed[name] = as_listed(each)
    return listed


def format_of(frame: RecordedFrame) -> WireFormat:
    return frame.agreement.wire_format() if frame.agreement else WireFormat(1)


@pytest.mark.parametrize("name", sorted(conversations()))
def test_recorded_frames_decode_to_what_is_listed(name: str) -> None:
    assert frames(name)
    for frame in frames(name):
        assert as_listed(as_java(frame.value, format_of(frame))) == frame.listed


def test_recorded_loose_frames_encode_to_the_same_bytes() -> None:
    count = 0
    for name in conversations():
        for frame in frames(name):
            agreement = frame.agreement
            if agreement is None or (not agreement.tight and not agreement.cache_size):
                assert format_of(frame).encode(frame.value) == frame.data, (name, frame.listed)
                count += 1
    assert count == sum(len(frames(name)) for name in conversations()) - sum(
        not is_offer(frame) for frame in frames("oneway_default")
    )
