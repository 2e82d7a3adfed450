"""The fuzzer: cases that a number makes again, what counts as a finding, and how short it makes one."""

import json
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from benchmarks.fuzz import bytes_mutations, conversations, decoders, judgement
from benchmarks.fuzz.campaign import Round, suspects
from benchmarks.fuzz.conversations import OPENWIRE, PROTOCOLS, STOMP, Conversation, answers, case, save
from benchmarks.fuzz.reduction import minimal, reduced
from benchmarks.hostile.bystander_record import NumberedBodies
from pybroker.broker.domain.amqp.frames import AMQP_HEADER, encode_frame, encode_transfer
from pybroker.broker.domain.amqp.performatives import AmqpBegin
from pybroker.broker.domain.errors import MalformedData
from pybroker.broker.domain.openwire.commands import KeepAliveInfo
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from tests import mqtt_packets as packets


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_case_is_made_again_by_seed_and_number(protocol: str) -> None:
    first = [case(protocol, 5, number, logins=True) for number in range(50)]
    assert [case(protocol, 5, number, logins=True) for number in range(50)] == first
    assert len({each.data() for each in first}) == 50
    assert case(protocol, 6, 0, logins=True) != first[0]
    assert case(protocol, 5, 0, logins=False) != first[0]


def test_conversation_comes_back_from_its_file(tmp_path: Path) -> None:
    made = [case(OPENWIRE, 1, number, logins=True) for number in range(3)]
    path = tmp_path / "findings" / "one.json"
    save(path, made, kind="log")
    fields = json.loads(path.read_text())
    assert [Conversation.from_json(each) for each in fields["conversations"]] == made
    assert fields["kind"] == "log"


def test_answers_are_markers_that_were_carried_out() -> None:
    alive = WireFormat().encode_frame(KeepAliveInfo())
    other = struct.pack(">i", 3) + b"\x1e\x0a\x0a"
    assert answers(other + alive + other + alive + alive[:6], "openwire") == 2
    assert answers(b"CONNECTED\n\n\0RECEIPT\nreceipt-id:~~\n\n\0", "auto+ssl") == 1
    assert conversations.STOMP_MARKER.count(b"receipt:~~") == 1


def test_answers_of_mqtt_and_amqp_are_found_between_other_packets() -> None:
    publish = packets.publish("t", b"\xd0\0" * 100)
    data = b"\x20\2\0\0\xd0\0" + publish + b"\xd0\0" + publish[:-1]
    assert (answers(data, "mqtt"), answers(data, "auto")) == (2, 2)
    begin = AmqpBegin(remote_channel=200, next_outgoing_id=0, incoming_window=1, outgoing_window=1)
    marked, other = encode_frame(200, begin), encode_frame(0, replace(begin, remote_channel=0))
    data = AMQP_HEADER + other + marked + encode_transfer(0, 0, 0, b"t", marked) + marked + marked[:-1]
    assert (answers(data, "amqp+ssl"), answers(data, "auto")) == (2, 2)


def test_paced_conversation_waits_for_each_answer() -> None:
    made = Conversation(listener="mqtt", parts=(b"a", b"b", b"c"), marker=b"|", is_paced=True)
    assert [made.step(number) for number in range(4)] == [b"ab|", b"c|", b"", b""]
    made = replace(made, is_paced=False)
    assert [made.step(number) for number in range(2)] == [b"ab|c|", b""]


def test_rearranged_conversation_has_other_frames_or_another_order() -> None:
    frames = [b"a", b"b", b"c", b"d"]
    made = [tuple(bytes_mutations.rearranged(frames, Random(number))) for number in range(100)]
    assert len(set(made)) > 50
    assert {3, 4, 5} <= {len(each) for each in made}
    assert frames == [b"a", b"b", b"c", b"d"]


def test_body_that_is_lost_or_doubled_is_an_error() -> None:
    bodies = NumberedBodies()
    first = bodies.next()
    assert bodies.is_last(first)
    assert not bodies.is_last("another-1"), "of an earlier process"
    second = bodies.next()
    with pytest.raises(RuntimeError, match="came twice"):
        bodies.is_last(first)
    bodies.next()
    with pytest.raises(RuntimeError, match="one is lost"):
        bodies.is_last(second)


# ---------------------------------------------------------------- judgement


def line(level: str = "ERROR", logger: str = "pybroker.x", exception: str | None = None) -> dict[str, Any]:
    fields: dict[str, Any] = {"time": "2026-11-26T10:15:02.123+00:00", "level": level, "logger": logger, "message": "m"}
    if exception is not None:
        fields["exception"] = [
            "  | Traceback (most recent call last):",
            '  |   File "x.py", line 1',
            f"  | {exception}",
        ]
    return fields


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (line("WARNING"), False),
        (line("ERROR"), False),
        (line("CRITICAL"), True),
        (line(exception="KeyError: 'x'"), True),
        (line(exception="struct.error: short"), True),
        (line(exception="AssertionError"), True),
        (line(exception="pybroker.broker.domain.errors.MalformedData: x"), False),
        (line(exception="pybroker.broker.domain.states.ImpossibleEvent: x"), True),
        (line(exception="pybroker.no.such.Module: x"), True),
        (line("ERROR", "asyncio"), True),
        (line("INFO", "asyncio"), False),
    ],
)
def test_exceptions_of_others_are_undocumented(fields: dict[str, Any], expected: bool) -> None:
    assert judgement.is_undocumented(fields) is expected


def test_log_reader_reports_each_line_once_and_what_is_no_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(json.dumps(line("INFO")) + "\n" + json.dumps(line(exception="KeyError: 1")) + "\nFatal Python")
    reader = judgement.LogReader(log)
    (found,) = reader.findings()
    assert (found.kind, found.what.endswith("KeyError: 1")) == (judgement.LOG, True)
    assert reader.findings() == []
    with log.open("a") as file:
        file.write(" error: Aborted\n")
    (found,) = reader.findings()
    assert "Fatal Python error" in found.what


def test_suspects_are_the_cases_of_that_time() -> None:
    made = Round(frames=0, sent=0, next_case=3, spans=[(0, 10.0, 11.0), (1, 20.0, 21.0), (2, 20.5, 22.0)], wait_ms=0.0)
    assert suspects(made, judgement.Finding(kind="log", what="", at=20.7)) == [1, 2]
    assert suspects(made, judgement.Finding(kind="log", what="")) == [0, 1, 2]


# ---------------------------------------------------------------- reduction


def test_minimal_keeps_what_is_needed_together() -> None:
    assert minimal(range(100), lambda some: {7, 60} <= set(some)) == [7, 60]
    assert minimal([1], lambda some: True) == [1]
    assert minimal(range(5), lambda some: len(some) == 5) == [0, 1, 2, 3, 4]


def test_reduction_shortens_conversations_and_their_frames() -> None:
    made = [
        Conversation(listener=STOMP, parts=(b"begin", *(b"%d.%d" % (number, part) for part in range(6))), marker=b"|")
        for number in range(9)
    ]

    def fails(some: list[Conversation]) -> bool:
        sent = {part for each in some for part in each.parts}
        return b"2.3" in sent and b"5.1" in sent

    assert [each.parts for each in reduced(made, fails)] == [(b"begin", b"2.3"), (b"begin", b"5.1")]


def test_reduction_ends_after_its_trials() -> None:
    made = [Conversation(listener=STOMP, parts=(b"", b"%d" % number), marker=b"") for number in range(64)]
    calls: list[int] = []

    def fails(some: list[Conversation]) -> bool:
        calls.append(len(some))
        return any(each.parts[1] == b"63" for each in some)

    found = reduced(made, fails, trials_max=4)
    assert len(calls) == 4
    assert fails(found)


# ---------------------------------------------------------------- decoders


def test_decoders_withstand_frames() -> None:
    """Every decoder gets some hundred; `make fuzz` has a million."""
    assert list(decoders.run(1, 0, 6_000, time.monotonic() + 60)) == [6_000]


def test_decoders_take_time_and_memory_in_proportion() -> None:
    assert list(decoders.grown()) == []


def refuse(_: bytes) -> None:
    raise MalformedData


@pytest.mark.parametrize(
    ("decode", "judge", "text"),
    [
        (refuse, decoders.judged, ""),
        (lambda data: data[99], decoders.judged, "IndexError"),
        (lambda data: bytes(50 << 20), decoders.weighed, "bytes of memory for 3 bytes"),
        (lambda data: bytes(100), decoders.weighed, ""),
    ],
)
def test_decoder_that_does_not_withstand_is_found(
    decode: Callable[[bytes], object], judge: Callable[..., Any], text: str
) -> None:
    found = " ".join(judge(decode, b"abc"))
    assert text in found if text else not found
