"""Headers of the PROXY protocol, version 2: parsed whole or in part, and what is none."""

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.transports.proxy_protocol import BYTES_MAX, SIGNATURE, ProxyHeader, ProxyHeaderError, parse

TLVS = b"\x05\x00\x04\x01\x02\x03\x04" + b"\x03\x00\x04" + bytes(4)
"""A unique id, and a CRC-32C, which is not checked."""


def header(command: int, family: int, addresses: bytes) -> bytes:
    return SIGNATURE + bytes((command, family)) + struct.pack(">H", len(addresses)) + addresses


def ipv4(source: str = "192.0.2.7", port: int = 50312) -> bytes:
    return socket.inet_aton(source) + socket.inet_aton("192.0.2.1") + struct.pack(">HH", port, 61616)


def ipv6(source: str = "2001:db8::7", port: int = 50312) -> bytes:
    return (
        socket.inet_pton(socket.AF_INET6, source)
        + socket.inet_pton(socket.AF_INET6, "2001:db8::1")
        + struct.pack(">HH", port, 61616)
    )


@pytest.mark.parametrize(
    ("captured", "source"),
    [
        ("2111000c7f0000057f000001a8ca6252", ("127.0.0.5", 43210)),
        ("211100197f0000057f000001a8cb6253030004d923b144050003616263", ("127.0.0.5", 43211)),
        ("20000000", None),
    ],
    ids=["send-proxy-v2", "proxy-v2-options crc32c,unique-id", "check-send-proxy"],
)
def test_bytes_that_haproxy_sends(captured: str, source: tuple[str, int] | None) -> None:
    """Captured behind HAProxy 2.6.12, whose clients connected from 127.0.0.5."""
    data = SIGNATURE + bytes.fromhex(captured)
    assert parse(data) == ProxyHeader(source, len(data))


@pytest.mark.parametrize(
    ("data", "source"),
    [
        (header(0x21, 0x11, ipv4()), ("192.0.2.7", 50312)),
        (header(0x21, 0x11, ipv4() + TLVS), ("192.0.2.7", 50312)),
        (header(0x21, 0x21, ipv6()), ("2001:db8::7", 50312)),
        (header(0x21, 0x21, ipv6() + TLVS), ("2001:db8::7", 50312)),
        (header(0x21, 0x31, bytes(216)), None),
        (header(0x21, 0x00, b""), None),
        (header(0x21, 0x00, TLVS), None),
        (header(0x20, 0x00, b""), None),
        (header(0x20, 0x11, ipv4()), None),
        (header(0x20, 0xFF, b"ignored"), None),
    ],
    ids=["ipv4", "ipv4-tlvs", "ipv6", "ipv6-tlvs", "unix", "unspec", "unspec-tlvs", "local", "local-ipv4", "local-any"],
)
def test_header_has_the_client_address_or_none(data: bytes, source: tuple[str, int] | None) -> None:
    assert parse(data) == parse(data + b"CONNECT") == ProxyHeader(source, len(data))
    assert [parse(data[:length]) for length in range(len(data))] == [None] * len(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"C", "no header of the PROXY protocol"),
        (SIGNATURE[:-1] + b"\r", "no header of the PROXY protocol"),
        (b"PROXY TCP4 192.0.2.7 192.0.2.1 50312 61616\r\n", "version 1, where version 2 is needed"),
        (header(0x11, 0x11, ipv4()), "unknown version and command 0x11"),
        (header(0x22, 0x11, ipv4()), "unknown version and command 0x22"),
        (header(0x21, 0x11, ipv4()[:-1]), "11 bytes for the addresses of family 0x11"),
        (header(0x21, 0x21, ipv4()), "12 bytes for the addresses of family 0x21"),
        (header(0x21, 0x31, bytes(215)), "215 bytes for the addresses of family 0x31"),
        (header(0x21, 0x12, ipv4()), "12 bytes for the addresses of family 0x12"),  # UDP
        (header(0x21, 0x41, bytes(300)), "300 bytes for the addresses of family 0x41"),
        (header(0x20, 0x00, bytes(BYTES_MAX - 15)), "a header of 8193 bytes, where 8192 are allowed"),
        (header(0x20, 0x00, bytes(65535))[:16], "a header of 65551 bytes, where 8192 are allowed"),
    ],
)
def test_what_is_no_header_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(ProxyHeaderError, match=message):
        parse(data)


def test_longest_header_is_taken() -> None:
    data = header(0x20, 0x00, bytes(BYTES_MAX - 16))
    assert parse(data) == ProxyHeader(None, BYTES_MAX)


@given(st.binary(max_size=100), st.binary(max_size=300))
def test_any_bytes_are_a_header_or_a_known_error(head: bytes, rest: bytes) -> None:
    for data in (head, SIGNATURE + rest):
        try:
            found = parse(data)
        except ProxyHeaderError:
            continue
        assert found is None or found.size <= len(data)
