"""DER, as far as key stores need it."""

import pytest

from pybroker.broker.domain.errors import MalformedData
from pybroker.security import der


def test_elements_follow_one_another() -> None:
    short, long = b"\x04\x02ab", b"\x04\x82\x01\x00" + bytes(256)
    assert [(each.tag, each.content, each.encoded) for each in der.elements(short + long)] == [
        (4, b"ab", short),
        (4, bytes(256), long),
    ]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x04", "cut off"),
        (b"\x04\x02a", "cut off"),
        (b"\x04\x84\xff\xff\xff\xff", "cut off"),
        (b"\x04\x80ab\0\0", "no definite length"),
        (b"\x04\x85\0\0\0\0\1a", "no definite length"),
        (b"\x1f\x81\0", "tag above 30"),
    ],
)
def test_what_is_no_der_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(MalformedData, match=reason):
        list(der.elements(data))


@pytest.mark.parametrize("data", [b"", b"\x05\0\x05\0"])
def test_one_element_is_neither_none_nor_two(data: bytes) -> None:
    with pytest.raises(MalformedData, match="in place of one"):
        der.element(data)


def test_parts_have_the_tag_and_number_that_are_expected() -> None:
    given = der.element(b"\x30\x02\x05\0")
    assert len(given.parts(der.SEQUENCE, at_least=1)) == 1
    with pytest.raises(MalformedData, match="0x30 in place of 0x31"):
        given.parts(der.SET)
    with pytest.raises(MalformedData, match="1 parts, of at least 2"):
        given.parts(der.SEQUENCE, at_least=2)


@pytest.mark.parametrize(
    ("content", "number"), [(b"\0", 0), (b"\x27\x10", 10_000), (b"\0\x80", 128), (b"\x7f" * 8, 0x7F7F7F7F7F7F7F7F)]
)
def test_numbers(content: bytes, number: int) -> None:
    assert der.unsigned(der.DerElement(der.INTEGER, content, b"")) == number


@pytest.mark.parametrize("content", [b"", b"\x80", bytes(9)])
def test_other_numbers_are_refused(content: bytes) -> None:
    with pytest.raises(MalformedData, match="outside"):
        der.unsigned(der.DerElement(der.INTEGER, content, b""))


@pytest.mark.parametrize(
    ("content", "text"),
    [("2a864886f70d010701", "1.2.840.113549.1.7.1"), ("550403", "2.5.4.3"), ("8837", "2.999"), ("2b", "1.3")],
)
def test_object_identifiers(content: str, text: str) -> None:
    assert der.object_identifier(der.DerElement(der.OBJECT_IDENTIFIER, bytes.fromhex(content), b"")) == text


@pytest.mark.parametrize("content", [b"", b"\x2a\x86", b"\x2a" * 33])
def test_other_object_identifiers_are_refused(content: bytes) -> None:
    with pytest.raises(MalformedData, match="object identifier"):
        der.object_identifier(der.DerElement(der.OBJECT_IDENTIFIER, content, b""))
