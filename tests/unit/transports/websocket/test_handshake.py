"""Requests and their answers: spec of section 2, with limits, origins and what is no upgrade."""

import logging
from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.transports.websocket.handshake import refuse
from tests.unit.transports.websocket.conversation import (
    ACCEPTED,
    CLOSE,
    PING,
    TEXT,
    Conversation,
    cut,
    frame,
    request,
)


def answer(data: bytes, origins: str = "same-host") -> tuple[int, dict[str, str], Conversation]:
    """Return the status, the headers and the conversation after a request."""
    conversation = Conversation(origins=origins)
    conversation.feed(data)
    head, _, body = conversation.link.sent().decode().partition("\r\n\r\n")
    first, *lines = head.split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert len(body) == int(headers.get("Content-Length", "0"))
    return int(first.split()[1]), headers, conversation


@pytest.mark.parametrize("path", ["/", "/stomp", "/ws", "/a/b?x=1", "*"])
def test_any_path_is_upgraded(path):
    status, headers, conversation = answer(request(start=f"GET {path} HTTP/1.1"))
    assert status == 101
    assert headers["Sec-WebSocket-Accept"] == ACCEPTED
    assert {each.lower() for each in headers} == {"date", "upgrade", "connection", "sec-websocket-accept"}
    assert conversation.inner.received == b""
    assert not conversation.link.is_closed


@pytest.mark.parametrize(
    ("offers", "chosen"),
    [
        (["v12.stomp"], "v12.stomp"),
        (["v10.stomp, v11.stomp,v12.stomp"], "v12.stomp"),
        (["v10.stomp", "v11.stomp"], "v11.stomp"),
        (["stomp"], "stomp"),
        (["mqtt, v12.stomp"], "v12.stomp"),
        (["v12.stomp, mqtt"], "v12.stomp"),
    ],
)
def test_offered_subprotocol_is_chosen(offers, chosen):
    status, headers, _ = answer(request(*(f"Sec-WebSocket-Protocol: {each}" for each in offers)))
    assert status == 101
    assert headers["Sec-WebSocket-Protocol"] == chosen


@pytest.mark.parametrize("offer", ["mqtt", "mqttv3.1", "amqp", "xstomp", "chat", "soap, wamp"])
def test_offer_without_a_served_subprotocol_is_refused(offer, caplog):
    with caplog.at_level(logging.INFO):
        status, _, conversation = answer(request(f"Sec-WebSocket-Protocol: {offer}"))
    assert status == 400
    assert conversation.link.is_closed
    assert "no offered subprotocol is served; served are v12.stomp, v11.stomp, v10.stomp, stomp" in caplog.text


def test_extensions_are_declined():
    status, headers, _ = answer(request("Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"))
    assert status == 101
    assert "Sec-WebSocket-Extensions" not in headers


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (request(without="Upgrade"), 200),
        (b"GET / HTTP/1.1\r\nHost: b\r\n\r\n", 200),
        (b"HEAD / HTTP/1.1\r\nHost: b\r\n\r\n", 200),
        (b"OPTIONS * HTTP/1.1\r\nHost: b\r\n\r\n", 200),
        (b"POST / HTTP/1.1\r\nHost: b\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"TRACE / HTTP/1.1\r\n\r\n", 405),
        (b"get / HTTP/1.1\r\n\r\n", 405),
        (b"\r\n\r\n", 405),
        (b"GET /\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno header\r\n\r\n", 400),
        (request("Content-Length: 5"), 400),
        (request("Transfer-Encoding: chunked"), 400),
        (request("Host: another"), 400),
        (request("Origin: http://b.example", "Origin: http://b.example"), 400),
        (request("Sec-WebSocket-Key: AAAA"), 400),
        (request("Upgrade: h2c"), 426),
        (request(without="Connection"), 426),
        (request(without="Sec-WebSocket-Key"), 400),
        (request("Sec-WebSocket-Key: short", without="Sec-WebSocket-Key"), 400),
        (request("Sec-WebSocket-Version: 8", without="Sec-WebSocket-Version"), 400),
    ],
)
def test_what_is_no_upgrade_is_answered_and_ends(data, status):
    found, headers, conversation = answer(data)
    assert found == status
    assert conversation.link.is_closed
    assert conversation.link.wake is None
    assert not conversation.made
    assert headers["Connection"] == "close"
    if status == 400:
        assert headers["Sec-WebSocket-Version"] == "13"
    if status == 405:
        assert headers["Allow"] == "GET, HEAD, OPTIONS"


def test_older_http_is_refused():
    """With 400 by some versions of the library, with 505 by others."""
    status, _, conversation = answer(request(start="GET / HTTP/1.0"))
    assert status in (400, 505)
    assert not conversation.made


@pytest.mark.parametrize(
    ("origins", "origin", "status"),
    [
        ("same-host", "http://b.example", 101),
        ("same-host", "http://evil.example", 403),
        ("same-host", "null", 403),
        ("https://app.example", "https://app.example", 101),
        ("https://app.example", "http://b.example", 403),
        ("*", "http://evil.example", 101),
    ],
)
def test_origin_is_checked(origins, origin, status, caplog):
    with caplog.at_level(logging.INFO):
        found, _, _ = answer(request(f"Origin: {origin}"), origins)
    assert found == status
    refusals = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(refusals) == (status == 403)
    assert all("list them in websocket_origins" in record.getMessage() for record in refusals)


def test_limits_to_the_request_are_inclusive():
    fits = request("X: " + "x" * (8192 - len(request("X: "))))
    assert len(fits) == 8192
    assert answer(fits)[0] == 101
    assert answer(fits[:-4] + b"x\r\n\r\n")[0] == 431
    assert answer(request(*["A: b"] * 95))[0] == 101
    assert answer(request(*["A: b"] * 96))[0] == 431


def test_request_without_an_end_is_cut_at_the_limit():
    conversation = Conversation()
    for _ in range(8192 // 32):
        conversation.feed(b"G" * 32)
    assert not conversation.link.is_closed
    conversation.feed(b"G")
    assert conversation.link.sent().startswith(b"HTTP/1.1 431 ")
    assert conversation.link.is_closed


@given(st.lists(st.integers(0, 300), max_size=8))
def test_how_the_request_is_cut_makes_no_difference(cuts):
    data = request("Sec-WebSocket-Protocol: v11.stomp") + bytes.fromhex("8182 00000000 6869")
    conversation = Conversation()
    conversation.feed(*cut(data, cuts))
    assert conversation.inner.received == b"hi"


@given(st.binary(max_size=300))
def test_random_request_raises_nothing(data):
    conversation = Conversation()
    conversation.feed(data, b"\r\n\r\n")
    assert conversation.link.is_closed or conversation.made


def test_answer_that_is_made_in_advance_has_no_date():
    data = refuse(HTTPStatus.SERVICE_UNAVAILABLE, "later").data
    assert data.endswith(b"\r\n\r\nlater\n")
    assert b"Date:" not in data


def test_library_logs_neither_frames_nor_headers(caplog):
    with caplog.at_level(logging.DEBUG):
        _, _, conversation = answer(request("Authorization: Basic c2VjcmV0", "Sec-WebSocket-Protocol: v12.stomp"))
        conversation.feed(frame(TEXT, b"passcode:secret"), frame(PING, b"secret"), frame(CLOSE, b"\x03\xe8secret"))
        conversation.session.lost()
    assert conversation.inner.received == b"passcode:secret"
    assert "secret" not in caplog.text
    assert "c2VjcmV0" not in caplog.text


def test_late_request_is_answered_and_cut(caplog):
    conversation = Conversation()
    assert conversation.link.wake == 130.0
    conversation.feed(b"GET / HTTP/1.1\r\n")
    conversation.link.is_input_waiting = True
    conversation.session.on_timer()
    assert conversation.link.wake == 101.0
    conversation.link.is_input_waiting = False
    with caplog.at_level(logging.INFO):
        conversation.session.on_timer()
    assert conversation.link.sent().startswith(b"HTTP/1.1 408 ")
    assert conversation.link.is_closed
    assert "no whole request came within 30 seconds" in caplog.text
