# mypy: disable-error-code="arg-type"
"""Negotiation: what an offer looks like on the wire, and what two of them make."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.domain.openwire.commands import WireFormatInfo
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.marshal.framing import FRAME_BYTES_MAX
from pybroker.broker.domain.openwire.marshal.wireformat import Offer, agree, broker_offer, decode_offer, encode_offer
from pybroker.broker.domain.openwire.values import Long, Value, encode_map

CAPTURES = Path(__file__).parents[2] / "golden" / "openwire" / "captures"

JAVA = Offer(
    stack_trace_enabled=True,
    tcp_no_delay_enabled=True,
    cache_enabled=True,
    cache_size=1024,
    tight_encoding_enabled=True,
    max_inactivity_ms=30_000,
    initial_delay_ms=10_000,
    frame_bytes_max=2**63 - 1,
    host="127.0.0.1",
    provider_name="ActiveMQ",
    provider_version="5.17.2",
    platform_details="Java",
)


def info(options: dict[str, Value] | None, **fields: Any) -> bytes:
    marshalled = None if options is None else encode_map(options)
    return WireFormat().encode(WireFormatInfo(version=12, marshalled_properties=marshalled, **fields))


def test_a_java_clients_offer() -> None:
    first = (CAPTURES / "send-1-c2s.bin").read_bytes()
    assert decode_offer(first[4 : 4 + int.from_bytes(first[:4])]) == JAVA


@pytest.mark.parametrize("offer", [JAVA, broker_offer(), Offer(), Offer(version=1, host="é")], ids=str)
def test_an_offer_comes_through(offer: Offer) -> None:
    frame = encode_offer(offer)
    assert frame[:4] == (len(frame) - 4).to_bytes(4)
    assert frame[4:13] == b"\x01ActiveMQ"
    assert decode_offer(frame[4:]) == offer


def test_the_smallest_offer_has_no_options() -> None:
    smallest = bytes.fromhex("01 41 63 74 69 76 65 4d 51 00 00 00 0c 01 00 00 00 04 00 00 00 00")
    assert decode_offer(smallest) == decode_offer(info(None)) == Offer()


def test_options_have_exactly_javas_types() -> None:
    assert decode_offer(info({"CacheEnabled": 1, "Host": 5, "What": "ever"})) == Offer()
    for options in ({"CacheSize": Long(1024)}, {"MaxInactivityDuration": 30_000}, {"MaxFrameSize": "1"}):
        with pytest.raises(MalformedOpenWire, match="of type"):
            decode_offer(info(options))


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"GET / HTTP/1.1",
        b"\x0a" + bytes(5),
        info({}, magic=b"ActiveMX"),
        info({}) + b"\x00",
        info({str(number): None for number in range(4097)}),
    ],
    ids=["empty", "http", "other command", "magic", "left over", "too many"],
)
def test_what_is_no_offer_is_refused(frame: bytes) -> None:
    with pytest.raises(MalformedOpenWire):
        decode_offer(frame)


def test_as_many_options_as_activemq_takes() -> None:
    assert decode_offer(info({str(number): None for number in range(4096)})) == Offer()


@pytest.mark.parametrize("slots", [1, 99, -1, 32768])
def test_no_one_is_offered_a_cache_that_hangs_java(slots: int) -> None:
    with pytest.raises(ValueError, match="slots"):
        encode_offer(replace(JAVA, cache_size=slots))
    encode_offer(replace(JAVA, cache_size=slots, cache_enabled=False))


@pytest.mark.parametrize("slots", [0, 100, 32767])
def test_other_caches_may_be_offered(slots: int) -> None:
    assert decode_offer(encode_offer(replace(JAVA, cache_size=slots))[4:]).cache_size == slots


# ---------------------------------------------------------------- what two offers make


def test_a_java_client_and_the_broker_speak_loose_and_uncached() -> None:
    agreement = agree(broker_offer(), JAVA)

    assert (agreement.version, agreement.tight, agreement.cache_size, agreement.stack_traces) == (12, False, 0, False)
    assert (agreement.max_inactivity_ms, agreement.initial_delay_ms) == (30_000, 10_000)
    assert agreement.frame_bytes_max == FRAME_BYTES_MAX
    assert agreement.size_prefix
    assert agreement.tcp_no_delay


def test_both_ends_find_the_same() -> None:
    other = replace(
        JAVA, version=9, cache_size=500, max_inactivity_ms=5, frame_bytes_max=1000, size_prefix_disabled=True
    )
    assert agree(JAVA, other) == agree(other, JAVA)
    assert agree(JAVA, other).size_prefix


@pytest.mark.parametrize(("own", "peer", "version"), [(12, 9, 9), (9, 12, 9), (12, 40, 12), (12, 0, 12), (12, -1, 12)])
def test_the_lower_version_wins(own: int, peer: int, version: int) -> None:
    assert agree(Offer(version=own), Offer(version=peer)).version == version


@pytest.mark.parametrize(
    ("own", "peer", "limit"), [(10, 20, 10), (20, 10, 10), (0, 10, 10), (10, -1, 10), (0, 0, FRAME_BYTES_MAX)]
)
def test_the_lower_frame_limit_wins_if_it_is_one(own: int, peer: int, limit: int) -> None:
    assert agree(Offer(frame_bytes_max=own), Offer(frame_bytes_max=peer)).frame_bytes_max == limit


@pytest.mark.parametrize(("own", "peer", "watch"), [(30, 20, 20), (30, 0, 0), (0, 30, 0), (30, -5, 0)])
def test_one_end_without_watch_is_none_at_all(own: int, peer: int, watch: int) -> None:
    agreement = agree(Offer(max_inactivity_ms=own), Offer(max_inactivity_ms=peer))
    assert agreement.max_inactivity_ms == watch


@pytest.mark.parametrize(
    ("own", "peer", "slots"), [(1024, 500, 500), (0, 500, 16383), (0, 0, 16383), (32767, 100_000, 32767), (1024, 5, 5)]
)
def test_the_smaller_cache_wins(own: int, peer: int, slots: int) -> None:
    agreement = agree(replace(JAVA, cache_size=own), replace(JAVA, cache_size=peer))
    assert agreement.cache_size == slots
    assert agreement.wire_format().cache_size == slots


def test_cache_too_small_for_reuse_is_only_read() -> None:
    wire = agree(JAVA, replace(JAVA, cache_size=5)).wire_format(reuse=True)
    value = WireFormatInfo(version=3)
    assert wire.decode(wire.encode(value)) == value


def test_a_negative_cache_is_refused_only_where_it_matters() -> None:
    with pytest.raises(MalformedOpenWire, match="slots"):
        agree(JAVA, replace(JAVA, cache_size=-5))
    assert agree(broker_offer(), replace(JAVA, cache_size=-5)).cache_size == 0


@pytest.mark.parametrize(
    "option", ["stack_trace_enabled", "tcp_no_delay_enabled", "cache_enabled", "tight_encoding_enabled"]
)
def test_a_flag_takes_both(option: str) -> None:
    without = replace(JAVA, **{option: False})
    assert agree(JAVA, without) == agree(without, JAVA) == agree(without, without) != agree(JAVA, JAVA)


def test_the_size_prefix_goes_only_if_both_want_it() -> None:
    without = replace(JAVA, size_prefix_disabled=True)
    assert agree(JAVA, without).size_prefix
    assert not agree(without, without).size_prefix


def test_an_agreement_makes_its_codec() -> None:
    wire = agree(JAVA, replace(JAVA, version=9)).wire_format(reuse=True)
    assert (wire.version, wire.tight, wire.cache_size, wire.stack_traces) == (9, True, 1024, True)
