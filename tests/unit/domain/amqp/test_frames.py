"""AMQP's frames: recorded conversations, protocol headers, limits, and what is no frame or performative."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.domain.amqp.errors import AmqpError, AmqpFramingError, MalformedAmqp, UnencodableAmqp
from pybroker.broker.domain.amqp.frames import (
    AMQP_HEADER,
    EMPTY_FRAME,
    SASL_HEADER,
    AmqpFrame,
    AmqpFrameDecoder,
    AmqpHeaderSeen,
    AmqpInput,
    AmqpLimits,
    encode_disposition,
    encode_flow,
    encode_frame,
    encode_transfer,
)
from pybroker.broker.domain.amqp.performatives import (
    AmqpAccepted,
    AmqpAttach,
    AmqpBegin,
    AmqpClose,
    AmqpCoordinator,
    AmqpDetach,
    AmqpDisposition,
    AmqpEnd,
    AmqpErrorCondition,
    AmqpFlow,
    AmqpOpen,
    AmqpRejected,
    AmqpSource,
    AmqpTarget,
    AmqpTransactionalState,
    AmqpTransfer,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
)
from pybroker.broker.domain.amqp.sections import decode_message, encode_message
from pybroker.broker.domain.amqp.values import AmqpDescribed, Symbol, UnsignedLong

GOLDEN = Path(__file__).parents[3] / "golden" / "amqp"
NAMES = sorted(path.stem for path in GOLDEN.glob("*.json"))


def decode(*chunks: bytes, limits: AmqpLimits | None = None) -> list[AmqpInput]:
    decoder = AmqpFrameDecoder(limits or AmqpLimits())
    return [each for chunk in chunks for each in decoder.feed(chunk)]


def frame(body: bytes, kind: int = 0, channel: int = 0, extended: bytes = b"") -> bytes:
    size = 8 + len(extended) + len(body)
    return (
        size.to_bytes(4, "big") + bytes((2 + len(extended) // 4, kind)) + channel.to_bytes(2, "big") + extended + body
    )


def one(body: bytes, kind: int = 0) -> Any:
    _, found = decode(AMQP_HEADER, frame(body, kind))
    assert isinstance(found, AmqpFrame)
    return found.performative


# ---------------------------------------------------------------- recorded conversations


def recorded(name: str) -> Iterator[tuple[str, AmqpInput]]:
    """Yield what the client (C) and the server (S) sent, in the order in which it was complete."""
    decoders: dict[tuple[str, str], AmqpFrameDecoder] = {}
    for event in json.loads((GOLDEN / f"{name}.json").read_text())["events"]:
        if "hex" in event:
            decoder = decoders.setdefault((event["conn"], event["dir"]), AmqpFrameDecoder(AmqpLimits()))
            for each in decoder.feed(bytes.fromhex(event["hex"])):
                yield event["dir"], each
    assert not any(decoder.unfinished for decoder in decoders.values())


def by_type(name: str, side: str, kind: type[Any]) -> list[Any]:
    return [
        each.performative
        for sender, each in recorded(name)
        if sender == side and isinstance(each, AmqpFrame) and isinstance(each.performative, kind)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_frame_comes_back(name: str) -> None:
    count = 0
    for _, each in recorded(name):
        if isinstance(each, AmqpFrame) and each.performative is not None:
            again = encode_frame(each.channel, each.performative, each.payload)
            assert decode(AMQP_HEADER, again)[1] == each
            count += 1
    assert count > 10


def test_there_are_recorded_conversations() -> None:
    assert len(NAMES) == 7


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_message_comes_back(name: str) -> None:
    for _, each in recorded(name):
        if isinstance(each, AmqpFrame) and each.payload:
            message = decode_message(each.payload)
            assert decode_message(encode_message(message)) == message


def test_login_is_decoded() -> None:
    sent = [each for _, each in recorded("01-send")]
    assert sent[:2] == [AmqpHeaderSeen(3, 1, 0, 0)] * 2
    (mechanisms,) = by_type("01-send", "S", SaslMechanisms)
    assert mechanisms.sasl_server_mechanisms == ("PLAIN", "ANONYMOUS")
    (init,) = by_type("01-send", "C", SaslInit)
    assert (init.mechanism, init.initial_response) == ("ANONYMOUS", b"anonymous")
    assert "anonymous" not in repr(init)
    assert by_type("01-send", "S", SaslOutcome) == [SaslOutcome(code=0)]


def test_open_and_begin_are_decoded() -> None:
    (client,) = by_type("02-receive", "C", AmqpOpen)
    assert client == AmqpOpen(container_id="cap", hostname="127.0.0.1", max_frame_size=32768, channel_max=32767)
    (server,) = by_type("02-receive", "S", AmqpOpen)
    assert (server.container_id, server.idle_time_out) == ("b", 15000)
    assert server.offered_capabilities == ("ANONYMOUS-RELAY", "DELAYED_DELIVERY")
    assert server.properties["queue-prefix"] == "queue://"
    assert isinstance(next(iter(server.properties)), Symbol)
    assert by_type("02-receive", "S", AmqpBegin) == [
        AmqpBegin(
            remote_channel=0, next_outgoing_id=1, incoming_window=16383, outgoing_window=2147483647, handle_max=65535
        )
    ]


def test_transfers_and_outcomes_are_decoded() -> None:
    first, second = by_type("02-receive", "S", AmqpTransfer)
    assert first == AmqpTransfer(handle=0, delivery_id=0, delivery_tag=b"\0", message_format=0, settled=False)
    assert (second.delivery_id, second.delivery_tag) == (1, b"\1")
    assert by_type("02-receive", "C", AmqpDisposition) == [
        AmqpDisposition(role=True, first=1, settled=True, state=AmqpRejected()),
        AmqpDisposition(role=True, first=0, settled=True, state=AmqpAccepted()),
    ]
    (flow,) = by_type("02-receive", "C", AmqpFlow)
    assert (flow.handle, flow.link_credit, flow.drain, flow.next_incoming_id) == (0, 2, False, None)


def test_errors_are_decoded() -> None:
    (close,) = [each for each in by_type("05-errors", "S", AmqpClose) if each.error]
    assert close.error.condition == "amqp:invalid-field"
    assert close.error.info == {"invalid-field": "container-id"}
    assert [each.error.description for each in by_type("05-errors", "S", AmqpDetach)][-1] == "color ="
    *_, bad_selector = by_type("05-errors", "C", AmqpAttach)
    (selector,) = bad_selector.source.filter.values()
    assert selector == AmqpDescribed(Symbol("apache.org:selector-filter:string"), "color =")


def test_dynamic_node_keeps_what_is_described() -> None:
    dynamic = [each for each in by_type("06-dynamic-anonymous", "S", AmqpAttach) if each.source and each.source.dynamic]
    assert [each.source.address.partition(":")[0] for each in dynamic] == ["temp-queue"]
    policy = dynamic[0].source.dynamic_node_properties["lifetime-policy"]
    assert isinstance(policy, AmqpDescribed)


# ---------------------------------------------------------------- headers and frames


def test_protocol_headers_are_told_from_frames() -> None:
    assert decode(SASL_HEADER, frame(b"\0\x53\x44\xc0\x03\1\x50\0", 1), AMQP_HEADER, EMPTY_FRAME) == [
        AmqpHeaderSeen(3, 1, 0, 0),
        AmqpFrame(0, SaslOutcome(code=0), b""),
        AmqpHeaderSeen(0, 1, 0, 0),
        AmqpFrame(0, None, b""),
    ]
    assert decode(b"AMQP\0\0\x09\1") == [AmqpHeaderSeen(0, 0, 9, 1)]
    assert decode(b"AMQP\1\1\0\0") == [AmqpHeaderSeen(1, 1, 0, 0)]


@pytest.mark.parametrize("data", [b"GET / HT", b"\x10", b"AMQ\0", b"CONNECT\n", b"\0\0\0\x08\2\0\0\0", b"A" * 100])
def test_another_protocol_is_refused_by_its_first_bytes(data: bytes) -> None:
    with pytest.raises(AmqpFramingError, match="is spoken here") as raised:
        decode(data)
    assert raised.value.condition == "amqp:connection:framing-error"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\0\0\0\x07\2\0\0\0", "it has 8 at least"),
        (b"\0\0\2\1\2\0\0\0", "512 are allowed here"),
        (b"\xff\xff\xff\xff\2\0\0\0", "512 are allowed here"),
        (b"\0\0\0\x08\1\0\0\0", "data offset 1"),
        (b"\0\0\0\x08\3\0\0\0", "data offset 3"),
        (b"\0\0\0\x08\2\2\0\0", "type 2"),
    ],
)
def test_what_is_no_frame_is_refused(data: bytes, text: str) -> None:
    with pytest.raises(AmqpFramingError, match=text):
        decode(AMQP_HEADER, data, limits=AmqpLimits(frame_bytes_max=512))


def test_frame_up_to_the_limit_is_accepted() -> None:
    transfer = encode_transfer(0, 0, 1, b"t", bytes(480))
    limits = AmqpLimits(frame_bytes_max=len(transfer))
    _, found = decode(AMQP_HEADER, transfer, limits=limits)
    assert isinstance(found, AmqpFrame)
    assert found.payload == bytes(480)
    with pytest.raises(AmqpFramingError):
        decode(AMQP_HEADER, transfer, limits=AmqpLimits(frame_bytes_max=len(transfer) - 1))


def test_extended_header_is_skipped() -> None:
    _, found = decode(AMQP_HEADER, frame(b"\0\x53\x17\x45", 0, 5, b"abcd"))
    assert found == AmqpFrame(5, AmqpEnd(), b"")


def test_bytes_of_an_unfinished_frame_are_counted_and_dropped() -> None:
    transfer = encode_transfer(3, 1, 7, b"tag", b"payload")
    decoder = AmqpFrameDecoder(AmqpLimits())
    assert list(decoder.feed(AMQP_HEADER + transfer[:6])) == [AmqpHeaderSeen(0, 1, 0, 0)]
    assert (decoder.received, decoder.unfinished) == (6, 6)
    assert list(decoder.feed(transfer[6:10])) == []
    assert (decoder.received, decoder.unfinished) == (10, len(transfer))
    decoder.clear()
    assert (decoder.received, decoder.unfinished) == (0, 0)


def test_representation_shows_no_payload() -> None:
    assert repr(AmqpFrame(1, None, b"secret")) == "AmqpFrame(1, None, 6 bytes)"


# ---------------------------------------------------------------- performatives


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"\x40", "no described value"),
        (b"\0\x53", "no described value"),
        (b"\0\x53\x99\x45", "no performative"),
        (b"\0\x53\x24\x45", "no performative"),
        (b"\0\x53\x41\xc0\6\1\xa3\1a", "no performative"),
        (b"\0\xa3\x01x\x45", "no performative"),
        (b"\0\x41\x45", "no performative"),
        (b"\0\x53\x17\x40", "no list"),
        (b"\0\x53\x17", "cut short"),
        (b"\0\x53\x17\xc0\4\1\x40", "end within"),
        (b"\0\x53\x17\xc0\3\2\x40\x40", "has 2 fields"),
        (b"\0\x53\x17\xc0\3\1\x40\x40", "ends at offset"),
        (b"\0\x53\x17\xd0\0\0\0\1\1", "end within|cut short"),
        (b"\0\x53\x17\x45\x40", "1 bytes too many"),
        (b"\0\x53\x16\x45", "has no handle"),
        (b"\0\x53\x16\xc0\2\1\x40", "has no handle"),
        (b"\0\x53\x16\xc0\2\1\x44", "AmqpDetach.handle cannot have"),
        (b"\0\x53\x16\xc0\3\1\x50\0", "AmqpDetach.handle cannot have"),
        (b"\0\x53\x16\xc0\4\2\x43\x56\2", "a boolean"),
        (b"\0\x53\x16\xc0\3\1\x70\0", "cut short|ends at"),
        (b"\0\x53\x16\xc0\x07\3\x43\x41\0\x53\x24\x45", "none of AmqpErrorCondition"),
        (b"\0\x53\x16\xc0\x08\3\x43\x41\0\xa3\1x\x40", "none of AmqpErrorCondition"),
        (b"\0\x53\x10\xc0\4\1\xa1\1\xff", "cut short, or has a text"),
        (b"\0\x53\x10\xc0\4\1\xa1\5x", "ends at offset|cut short"),
        (b"\0\x53\x11\xc0\6\5\x40\x43\x43\x43\x44", "cannot have"),
        (b"\0\x53\x10\xc0\x0a\6\xa1\0\x40\x40\x40\x40\xa3\1\xff", "no ASCII"),
        (b"\0\x53\x10\xc0\x0c\6\xa1\0\x40\x40\x40\x40\xe0\3\1\x50\1", "other values"),
    ],
)  # fmt: skip
def test_what_is_no_performative_is_refused(body: bytes, text: str) -> None:
    with pytest.raises(MalformedAmqp, match=text):
        one(body)


def test_sasl_frame_has_no_other_performative() -> None:
    with pytest.raises(MalformedAmqp, match="type 1 begins with no performative"):
        one(b"\0\x53\x17\x45", 1)


@pytest.mark.parametrize(
    "descriptor",
    [b"\0\x53\x16", b"\0\x80\0\0\0\0\0\0\0\x16", b"\0\xa3\x10amqp:detach:list", b"\0\xb3\0\0\0\x10amqp:detach:list"],
)
@pytest.mark.parametrize(
    "listed",
    [
        b"\xc0\4\2\x52\5\x41",
        b"\xd0\0\0\0\7\0\0\0\2\x52\5\x41",
        b"\xc0\x08\2\x70\0\0\0\5\x56\1",
        b"\xc0\5\3\x52\5\x41\x40",
    ],
)
def test_forms_of_descriptor_and_list_mean_the_same(descriptor: bytes, listed: bytes) -> None:
    assert one(descriptor + listed) == AmqpDetach(handle=5, closed=True)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\xa3\x01a", ("a",)),
        (b"\xb3\0\0\0\1a", ("a",)),
        (b"\xe0\x04\1\xa3\1a", ("a",)),
        (b"\xe0\6\2\xa3\1a\1b", ("a", "b")),
        (b"\xe0\2\0\xa3", ()),
        (b"\x40", None),
    ],
)
def test_symbols_come_alone_or_in_an_array(data: bytes, expected: tuple[str, ...] | None) -> None:
    content = b"\xa1\0\x40\x40\x40\x40" + data
    found = one(b"\0\x53\x10\xc0" + bytes((len(content) + 1, 6)) + content)
    assert found.outgoing_locales == expected
    assert one(encode_frame(0, found)[8:]) == found


def test_states_and_targets_that_amqp_does_not_define_stay_described() -> None:
    state = AmqpDescribed(Symbol("x:state"), [1])
    source = AmqpDescribed(UnsignedLong(0x4_0000), "x")
    attach = AmqpAttach(name="n", handle=1, role=True, source=source, target=AmqpCoordinator())
    assert one(encode_frame(0, attach)[8:]) == attach
    disposition = AmqpDisposition(role=True, first=1, state=AmqpTransactionalState(txn_id=b"1", outcome=state))
    assert one(encode_frame(0, disposition)[8:]) == disposition
    with pytest.raises(MalformedAmqp, match="none of AmqpSource"):
        one(encode_frame(0, AmqpAttach(name="n", handle=1, role=True, source=AmqpTarget()))[8:])  # type: ignore[arg-type]


def test_payload_belongs_to_transfers_only() -> None:
    assert decode(AMQP_HEADER, frame(b"\0\x53\x14\xc0\2\1\x43rest"))[1] == AmqpFrame(0, AmqpTransfer(handle=0), b"rest")
    with pytest.raises(MalformedAmqp, match="4 bytes too many"):
        one(b"\0\x53\x18\x45rest")


@pytest.mark.parametrize(
    "encode",
    [
        lambda: encode_frame(0, AmqpDetach(handle=2**32)),
        lambda: encode_frame(0, AmqpDetach(handle=-1)),
        lambda: encode_frame(0, AmqpDetach(handle=None)),  # type: ignore[arg-type]
        lambda: encode_frame(0, AmqpOpen(container_id=7)),  # type: ignore[arg-type]
        lambda: encode_frame(0, AmqpOpen(container_id="", channel_max=65536)),
        lambda: encode_frame(65536, AmqpEnd()),
        lambda: encode_frame(0, AmqpErrorCondition(condition=Symbol("é"))),  # type: ignore[arg-type]
        lambda: encode_frame(0, AmqpSource()),  # type: ignore[arg-type]
        lambda: encode_frame(0, object()),  # type: ignore[arg-type]
        lambda: encode_transfer(0, 2**32, 1, b"", b""),
        lambda: encode_transfer(0, -1, 1, b"", b""),
        lambda: encode_transfer(65536, 0, 1, b"", b""),
        lambda: encode_transfer(0, 0, 2**32, b"", b""),
        lambda: encode_transfer(0, 0, 1, bytes(256), b""),
        lambda: encode_disposition(0, -1, None, None, is_receiver=True, settled=True),
        lambda: encode_flow(0, None, 2**32, 0, 0),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_not_encoded(encode: Any) -> None:
    with pytest.raises(UnencodableAmqp):
        encode()


def test_error_condition_is_internal_unless_it_is_given() -> None:
    assert AmqpError("x").condition == "amqp:internal-error"
    assert AmqpError("x", "amqp:not-found").condition == "amqp:not-found"
