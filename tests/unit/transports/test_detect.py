# mypy: disable-error-code="arg-type, attr-defined"
"""The first bytes of a connection identify its protocol, however they are cut."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.transports.detect import DetectedProtocol, Detector, detect

OPENWIRE = bytes.fromhex("00000016 01 4163746976654d51 0000000c 01 00000004 00000000")
"""The shortest WireFormatInfo: version 12, no properties."""

KNOWN = [
    (OPENWIRE, DetectedProtocol.OPENWIRE),
    (b"CONNECT\naccept-version:1.2\n\n\0", DetectedProtocol.STOMP),
    (b"STOMP\r\n\r\n\0", DetectedProtocol.STOMP),
    (b"\n\r\n \tCONNECT\n\n\0", DetectedProtocol.STOMP),
    (b"\n" * 5000 + b"STOMP\n\n\0", DetectedProtocol.STOMP),
    (b"AMQP\3\1\0\0", DetectedProtocol.AMQP),
    (bytes.fromhex("100d00044d5154540402003c000170"), DetectedProtocol.MQTT),
    (b"GET / HTTP/1.1\r\n", DetectedProtocol.WEBSOCKET),
]
UNKNOWN = [
    b"GETS\n",
    b"\nGET / HTTP/1.1\r\n",
    b"POST / HTTP/1.1\r\n",
    b"SEND\n",
    b"stomp\n",
    b"\x16\x03\x01\x02\x00",
    b"\0\0\0\0\0\0\0",
    b"\0\0\0\x16\x02ActiveMQ",
    b"\n" + OPENWIRE,
    b"\0CONNECT\n",
]


class Link:
    """A detector's effects on its connection."""

    peer = "10.0.0.1:5"

    def __init__(self) -> None:
        self.session: object = None
        self.wake: float | None = None
        self.is_closed = False
        self.is_input_waiting = False

    def time(self) -> float:
        return 100.0

    def wake_at(self, when: float | None) -> None:
        self.wake = when

    def become(self, session: object) -> None:
        self.session = session

    def close(self) -> None:
        self.is_closed = True


class Real:
    """The session that a connection is handed to."""

    def __init__(self, spoken: DetectedProtocol) -> None:
        self.spoken = spoken
        self.received = b""

    def receive(self, chunk: bytes) -> bool:
        self.received += chunk
        return False


def detector(*spoken: DetectedProtocol) -> tuple[Detector, Link]:
    link = Link()
    sessions = {
        each: (lambda link, each=each: Real(each))
        for each in spoken or set(DetectedProtocol) - {DetectedProtocol.UNKNOWN, DetectedProtocol.UNDECIDED}
    }
    return Detector(link, sessions, seconds=30), link


def feed(detector: Detector, link: Link, chunks: list[bytes]) -> None:
    """Feed as a connection does: to the session that serves it, and to none after a close."""
    for chunk in chunks:
        if not link.is_closed:
            (link.session or detector).receive(chunk)


@pytest.mark.parametrize(("opening", "spoken"), KNOWN)
def test_the_connection_is_handed_over_with_all_that_matters(opening, spoken):
    whole, link = detector()
    whole.receive(opening)
    assert link.session.spoken is spoken
    assert link.session.received == opening


@pytest.mark.parametrize(("opening", "spoken"), KNOWN)
def test_byte_by_byte_is_as_good_as_whole(opening, spoken):
    slow, link = detector()
    feed(slow, link, [bytes([byte]) for byte in opening])
    assert link.session.spoken is spoken
    assert link.session.received.lstrip() == opening.lstrip()


@pytest.mark.parametrize(("opening", "spoken"), KNOWN)
def test_any_start_of_an_opening_needs_more(opening, spoken):
    needed = next(
        length for length in range(len(opening)) if detect(opening[:length]) is not DetectedProtocol.UNDECIDED
    )
    assert all(detect(opening[:length]) is DetectedProtocol.UNDECIDED for length in range(needed))
    assert detect(opening[:needed]) is spoken


@pytest.mark.parametrize("opening", UNKNOWN)
def test_unsupported_protocol_is_closed_with_one_line(opening, caplog):
    strict, link = detector()
    with caplog.at_level(logging.INFO):
        strict.receive(opening)
    assert link.is_closed
    assert link.wake is None
    (line,) = caplog.messages
    assert line.startswith("10.0.0.1:5 closed: it speaks ")


@given(st.one_of(st.binary(max_size=40), st.sampled_from([opening for opening, _ in KNOWN] + UNKNOWN)), st.data())
def test_how_the_bytes_are_cut_makes_no_difference(opening, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(opening)), max_size=6)))
    chunks = [opening[start:end] for start, end in zip([0, *cuts], [*cuts, len(opening)], strict=True)]
    (whole, link), (cut, other) = detector(), detector()
    feed(whole, link, [opening])
    feed(cut, other, chunks)
    assert link.is_closed == other.is_closed
    assert (link.session and link.session.spoken) == (other.session and other.session.spoken)


def test_little_is_kept_of_a_peer_that_sends_line_ends_for_ever():
    patient, link = detector()
    for _ in range(1000):
        patient.receive(b"\r\n" * 1000)
    assert len(patient._head) == 1
    assert not link.is_closed
    assert link.wake == 130.0


def test_silent_peer_is_closed_in_time(caplog):
    patient, link = detector()
    patient.receive(b"CON")
    with caplog.at_level(logging.INFO):
        patient.on_timer()
    assert link.is_closed
    assert caplog.messages == ["10.0.0.1:5 closed: its first bytes did not show a protocol within 30 seconds"]


def test_a_protocol_that_is_not_spoken_here_is_named(caplog):
    stomp_only, link = detector(DetectedProtocol.STOMP)
    with caplog.at_level(logging.INFO):
        stomp_only.receive(OPENWIRE)
    assert link.is_closed
    assert "it speaks OpenWire, which this port does not support" in caplog.text


def test_tls_on_the_plain_port_is_recognised(caplog):
    plain, _ = detector()
    with caplog.at_level(logging.INFO):
        plain.receive(b"\x16\x03\x01\x02\x00\x01")
    assert "it speaks TLS" in caplog.text
