"""Heart-beats: what is agreed, when a beat is due, when a peer is dead."""

from itertools import pairwise

import pytest

from pybroker.broker.domain.errors import ProtocolError
from pybroker.transports.stomp.heartbeat import HeartBeat, HeartbeatIntervals, negotiate


@pytest.mark.parametrize(
    ("header", "answer"),
    [("0,0", "0,0"), ("1000,2000", "2000,1000"), (" 1000,0 ", "0,1000"), ("-1,500", "500,-1"), ("1,5", "100,100")],
)
def test_server_beats_as_requested_down_to_a_minimum(header: str, answer: str) -> None:
    assert str(negotiate(header, minimum_ms=100)) == answer


@pytest.mark.parametrize(
    "header", ["", "x", "1", "1,", "1, 2", "1,2,3", "1.5,2", "1,99999999999", "4294967296,1", "١,٢"]
)
def test_header_must_be_two_integers(header: str) -> None:
    with pytest.raises(ProtocolError, match="Invalid heart-beat header:"):
        negotiate(header, minimum_ms=100)


def test_without_heart_beats_there_are_no_checks() -> None:
    beat = HeartBeat(HeartbeatIntervals(server_ms=0, client_ms=-1), grace=3, now=0)
    assert beat.next_check() is None
    assert not beat.is_beat_due(1e9)
    assert not beat.is_peer_dead(1e9)


def test_silence_of_the_server_never_exceeds_the_interval() -> None:
    beat = HeartBeat(HeartbeatIntervals(server_ms=1000, client_ms=0), grace=3, now=0.0)
    written, now = [0.0], 0.0
    while now < 20:
        look = beat.next_check()
        assert look is not None
        if 5 < now < 8:
            beat.wrote = True
            written.append(now + 0.01)
        now = look
        if beat.is_beat_due(now):
            written.append(now)
    gaps = [later - earlier for earlier, later in pairwise(written)]
    assert max(gaps) <= 1.0
    assert len(written) > 20


def test_looking_too_early_changes_nothing() -> None:
    beat = HeartBeat(HeartbeatIntervals(server_ms=1000, client_ms=0), grace=3, now=0.0)
    beat.wrote = False
    assert not beat.is_beat_due(0.4)
    assert beat.is_beat_due(0.5)


def test_peer_is_dead_after_three_missed_beats() -> None:
    """500,500: ActiveMQ 5.17.2 closed after 1.5 s."""
    beat = HeartBeat(negotiate("500,0", minimum_ms=100), grace=3, now=0.0)
    assert beat.next_check() == 1.5
    assert not beat.is_peer_dead(1.49)
    assert beat.is_peer_dead(1.5)
    beat.received(1.49)
    assert not beat.is_peer_dead(2.9)
    assert beat.next_check() == pytest.approx(2.99)
