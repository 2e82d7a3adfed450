"""A conversation's beginning and end, its timers, its errors and its flow."""

import logging
from typing import Any

import pytest

from pybroker import __version__
from pybroker.broker.domain.errors import ResourceLimit, StoreUnavailable
from pybroker.broker.domain.stomp.frames import StompLimits
from pybroker.transports.stomp.states import StompState

# ---------------------------------------------------------------- CONNECT


@pytest.mark.parametrize(
    ("accept", "version"),
    [
        ("", "1.0"),
        ("accept-version:1.0\n", "1.0"),
        ("accept-version:1.0,1.1,1.2\n", "1.2"),
        ("accept-version:1.1,9.9\n", "1.1"),
        ("accept-version:1.0, 1.1\n", "1.0"),
    ],
)
def test_highest_common_version_is_chosen(connect: Any, parsed: Any, accept: str, version: str) -> None:
    [answer] = connect(None).send(f"STOMP\n{accept}\n^")
    assert parsed(answer) == (
        "CONNECTED",
        {
            "version": version,
            "heart-beat": "0,0",
            "session": "ID:host-1-1",
            "server": f"ActiveMQ/5.17.2 pybroker/{__version__}",
        },
        "",
    )


def test_connected_repeats_client_id_and_request(connect: Any, parsed: Any, broker: Any) -> None:
    [answer] = connect(None).send("CONNECT\nclient-id:me\nrequest-id:7\nreceipt:8\nheart-beat:1000,2000\n\n^")
    _, headers, _ = parsed(answer)
    assert (headers["session"], headers["response-id"], headers["receipt-id"]) == ("me", "7", "7")
    assert headers["heart-beat"] == "2000,1000"
    assert broker.connections[0].client_id == "me"


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ("accept-version:2.0\n", "Invalid Protocol version[2.0], supported versions are: [1.2, 1.1, 1.0]"),
        ("heart-beat:x\n", "Invalid heart-beat header:x"),
        ("client-id:taken\n", "Broker: fake - Client: taken already connected"),
    ],
)
def test_refused_connect_closes_with_the_reason(
    connect: Any, parsed: Any, broker: Any, headers: str, message: str
) -> None:
    connect("1.2", headers="client-id:taken\n")
    peer = connect(None)
    [answer] = peer.send(f"CONNECT\nreceipt:1\n{headers}\n^")
    command, answered, body = parsed(answer)
    assert (command, answered["message"], answered["receipt-id"]) == ("ERROR", message, "1")
    assert int(answered["content-length"]) == len(body.encode())
    assert body.startswith(message)
    assert len(body) > len(message), "no remedy"
    assert peer.link.closed
    assert len(broker.connections) == 1


def test_refused_connect_of_a_user_who_has_all_its_connections_has_that_remedy_alone(
    connect: Any, parsed: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="pybroker.audit")
    peer = connect(None)
    [answer] = peer.send("CONNECT\nreceipt:1\nclient-id:one too many\n\n^")
    command, headers, body = parsed(answer)
    assert (command, headers["message"], headers["receipt-id"]) == ("ERROR", body, "1")
    assert body == "User u has 2 connections already: close some, or raise connections_per_user"
    assert peer.link.closed
    [line] = [each for each in caplog.records if each.name == "pybroker.audit"]
    assert line.getMessage().endswith(f"refused: {body}")
    assert vars(line)["audit"]["event"] == "refused"


def test_frames_may_follow_connect_at_once_in_the_agreed_version(connect: Any, broker: Any) -> None:
    peer = connect(None)
    answers = peer.send("CONNECT\naccept-version:1.2\n\n^\nSEND\ndestination:/queue/a\nreceipt:x\\cy\n\n^")
    assert answers[1] == "RECEIPT\nreceipt-id:x\\cy\n\n"
    assert len(broker.received) == 1


def test_refusal_before_connect_leaves_connection_open(connect: Any) -> None:
    peer = connect(None)
    assert peer.send("SEND\nreceipt:1\n\n^")[0].startswith("ERROR\nmessage:Not connected.\n")
    assert not peer.link.closed
    assert peer.send("CONNECT\n\n^")[0].startswith("CONNECTED\n")


# ---------------------------------------------------------------- errors


def test_large_frame_before_connect_is_refused_by_its_head(connect: Any) -> None:
    peer = connect(None, limits=StompLimits(unconnected_body_bytes=100))
    [answer] = peer.send("SEND\ncontent-length:101\n\n")
    assert answer.startswith("ERROR\nmessage:The maximum data length was exceeded\n")
    assert peer.link.closed


def test_large_frame_before_connect_without_length_is_refused(connect: Any) -> None:
    peer = connect(None, limits=StompLimits(unconnected_body_bytes=100))
    assert peer.send("SEND\n\n" + "x" * 100) == []
    assert peer.send("x")[0].startswith("ERROR\nmessage:The maximum data length was exceeded\n")


def test_large_frame_right_behind_connect_is_accepted(connect: Any, broker: Any) -> None:
    peer = connect(None, limits=StompLimits(unconnected_body_bytes=100))
    peer.send("CONNECT\n\n^SEND\ndestination:/queue/a\ncontent-length:1000\n\n", "x" * 1000 + "^")
    assert len(broker.received) == 1


def test_unknown_command_closes_with_its_receipt_id(connect: Any, parsed: Any) -> None:
    peer = connect()
    [answer] = peer.send("SENDX\nreceipt:14\n\n^", "SEND\ndestination:/queue/a\nreceipt:15\n\n^")
    command, headers, _ = parsed(answer)
    assert (command, headers["receipt-id"]) == ("ERROR", "14")
    assert headers["message"] == "Unknown STOMP action\\c SENDX"
    assert peer.link.closed
    assert peer.send("SEND\ndestination:/queue/a\nreceipt:16\n\n^") == []


def test_broken_frame_closes_without_receipt_id(connect: Any, parsed: Any, broker: Any) -> None:
    peer = connect()
    [answer] = peer.send("SEND\ndestination:/queue/a\ncontent-length:2\nreceipt:1\n\nbody^")
    assert "receipt-id" not in parsed(answer)[1]
    assert peer.link.closed
    assert broker.connections == []


def test_client_error_of_the_core_leaves_the_connection_open(connect: Any, parsed: Any) -> None:
    peer = connect()
    [answer] = peer.send("SEND\ndestination:/remote-temp-queue/ID:gone\nreceipt:1\n\n^")
    _, headers, body = parsed(answer)
    assert headers["receipt-id"] == "1"
    assert body == "The destination temp-queue://ID:gone does not exist."
    assert not peer.link.closed


def test_error_of_several_lines_has_its_first_as_message(connect: Any, parsed: Any, broker: Any) -> None:
    peer = connect("1.0")

    def fail(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("no space\nleft\0", hint="free space")

    broker.connections[0].send = fail
    [answer] = peer.send("SEND\ndestination:/queue/a\nreceipt:1\n\n^")
    _, headers, body = parsed(answer)
    assert headers["message"] == "no space"
    assert body == "no space\nleft\ufffd; free space"
    assert peer.link.closed


# ---------------------------------------------------------------- timers


def test_silence_before_connect_ends_in_an_error(connect: Any) -> None:
    peer = connect(None, limits=StompLimits(connect_seconds=30))
    assert peer.link.wake == 130.0
    peer.link.now = 130.0
    peer.session.on_timer()
    assert peer.receive()[0].startswith("ERROR\nmessage:No CONNECT within 30 seconds\n")
    assert peer.link.closed


def test_without_heart_beats_no_timer_is_set(connect: Any) -> None:
    assert connect().link.wake is None


def test_server_beats_and_gives_a_silent_client_up_as_recorded(connect: Any, broker: Any) -> None:
    """18-heartbeat, 500,500: a beat, then the end after 1.5 s, without an ERROR."""
    peer = connect("1.2", headers="heart-beat:500,500\n")
    beats: list[float] = []
    while not peer.link.closed:
        peer.link.now = peer.link.wake
        peer.session.on_timer()
        if bytes(peer.link.output) == b"\n":
            beats.append(peer.link.now - 100)
            peer.link.output.clear()
    assert beats == [0.5, 1.0]
    assert peer.link.now == 101.5
    assert peer.receive() == []
    assert broker.connections == []
    assert peer.link.wake is None


def test_bytes_and_frames_count_as_heart_beats(connect: Any) -> None:
    peer = connect("1.2", headers="heart-beat:500,500\n")
    for _ in range(40):
        peer.link.now += 0.25
        peer.send("\n")
        peer.send("SEND\ndestination:/queue/a\nreceipt:1\n\n^")
        peer.session.on_timer()
        assert peer.receive() == []
    assert not peer.link.closed


def test_silence_counts_only_while_the_client_is_read(connect: Any) -> None:
    """A producer slowed down by the core sends its beats in vain: they wait in the kernel, unread."""
    peer = connect("1.2", headers="heart-beat:1000,0\n")
    peer.link.pause_reading()
    while peer.link.now < 200:
        peer.link.now = peer.link.wake
        peer.session.on_timer()
    peer.link.resume_reading()
    resumed_at = peer.link.now
    while not peer.link.closed:
        peer.link.now = peer.link.wake
        peer.session.on_timer()
    assert peer.link.now == resumed_at + 3
    assert peer.receive() == []


def test_timer_that_comes_late_is_harmless(connect: Any) -> None:
    peer = connect("1.2", headers="heart-beat:500,500\n")
    peer.send("DISCONNECT\n\n^")
    peer.session.on_timer()
    assert peer.receive() == []


# ---------------------------------------------------------------- DISCONNECT


def test_disconnect_is_answered_after_earlier_changes(connect: Any, broker: Any) -> None:
    peer = connect()
    broker.disk_is_slow = True
    assert peer.send(
        "SEND\ndestination:/queue/a\npersistent:true\nreceipt:1\n\n^",
        "DISCONNECT\nreceipt:2\n\n^",
        "SEND\ndestination:/queue/a\nreceipt:3\n\n^",
    ) == []  # fmt: skip
    assert not peer.link.closed
    assert broker.connections == []
    broker.sync()
    assert peer.receive() == ["RECEIPT\nreceipt-id:1\n\n", "RECEIPT\nreceipt-id:2\n\n"]
    assert peer.link.closed
    assert len(broker.received) == 1


def test_disconnect_without_receipt_just_closes(connect: Any) -> None:
    peer = connect()
    assert peer.send("DISCONNECT\n\n^") == []
    assert peer.link.closed
    assert peer.session.state is StompState.CLOSED


def test_receipts_after_a_lost_connection_are_dropped(connect: Any, broker: Any) -> None:
    peer = connect("1.2", headers="client-id:c\n")
    broker.disk_is_slow = True
    peer.send("SUBSCRIBE\nid:1\ndestination:/topic/t\nactivemq.subscriptionName:n\nreceipt:s\n\n^")
    peer.session.lost()
    broker.sync()
    assert peer.receive() == []


# ---------------------------------------------------------------- flow


def test_slow_reader_pauses_deliveries_until_its_output_has_left(connect: Any, broker: Any) -> None:
    peer = connect()
    peer.send("SUBSCRIBE\nid:1\ndestination:/queue/a\n\n^")
    peer.session.pause_writing()
    assert peer.send("SEND\ndestination:/queue/a\n\n^") == []
    assert peer.flush()[0].startswith("MESSAGE\n")


def test_answers_go_on_while_deliveries_are_paused(connect: Any) -> None:
    peer = connect()
    peer.session.pause_writing()
    assert peer.send("BEGIN\ntransaction:t\nreceipt:1\n\n^") == ["RECEIPT\nreceipt-id:1\n\n"]


def test_what_the_kernel_was_handed_counts_as_seen(connect: Any, broker: Any) -> None:
    peer = connect()
    before = broker.connections[0].written_count
    peer.session.handed_over()
    assert broker.connections[0].written_count == before + 1


def test_core_slows_the_client_down_through_the_link(connect: Any, broker: Any) -> None:
    peer = connect()
    broker.connections[0].throttle.pause_reading()
    assert peer.link.reading_since is None


def test_slow_peer_before_connect_is_paused_at_once(connect: Any, broker: Any) -> None:
    peer = connect(None)
    peer.session.pause_writing()
    peer.send("CONNECT\n\n^")
    assert broker.connections[0].paused
    peer.session.written()
    assert not broker.connections[0].paused


# ---------------------------------------------------------------- memory of frames


def test_head_before_connect_is_small(connect: Any) -> None:
    peer = connect(None)
    [error] = peer.send("CONNECT\n" + "".join(f"h{number}:{'x' * 5000}\n" for number in range(14)))
    assert error.startswith("ERROR\n")
    assert "Command and headers may have 65536 bytes together." in error


@pytest.mark.parametrize("has_length", [True, False])
def test_large_frame_reserves_memory_until_it_is_complete(connect: Any, *, has_length: bool) -> None:
    peer = connect("1.2")
    head = "SEND\ndestination:/queue/A\n" + ("content-length:100000\n" if has_length else "") + "\n"
    peer.send(head + "x" * 30_000)
    assert peer.link.reserved == 0
    peer.send("x" * 20_000)
    assert peer.link.reserved == (len(head) + 100_001 if has_length else 65_536)
    peer.send("x" * 50_000 + "^")
    assert peer.link.reserved == 0
    assert len(peer.broker.received) == 1


def test_connection_is_given_up_with_an_error_frame(connect: Any) -> None:
    peer = connect("1.2")
    peer.session.give_up(ResourceLimit("frames take too much memory"))
    [error] = peer.receive()
    assert error.startswith("ERROR\n")
    assert "frames take too much memory" in error
    assert peer.link.closed


def test_closed_session_keeps_no_part_of_a_frame(connect: Any) -> None:
    peer = connect("1.2")
    peer.send("SEND\ndestination:/queue/A\n\n" + "x" * 100_000)
    peer.session.lost()
    assert peer.session._decoder.received == 0


def test_peer_is_a_client_once_it_has_sent_connect(connect: Any) -> None:
    peer = connect(None)
    assert not peer.session.is_connected
    peer.send("CONNECT\n\n^")
    assert peer.session.is_connected
