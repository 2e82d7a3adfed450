"""Addresses of members: read from URLs, which may have no password, and judged by who can read what is sent there."""

import pytest

from pybroker.management_client.address import ApiAddress, addresses
from pybroker.management_client.errors import UnusableAddress


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://a:8161", "http://a:8161"),
        ("a:8161", "http://a:8161"),
        ("https://a.example.org", "https://a.example.org:8161"),
        ("http://[::1]:1", "http://[::1]:1"),
        ("http://proxy:80/broker-a/", "http://proxy:80/broker-a"),
    ],
)
def test_an_address_is_read_from_a_url(text: str, url: str) -> None:
    assert ApiAddress.of(text).url == url


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("ftp://a:1", "write http://HOST:PORT"),
        ("http://", "write http://HOST:PORT"),
        ("http://a:x", "no address"),
        ("http://a:8161?x=1", "write http://HOST:PORT"),
        ("http://anna:secret@a:8161", "use --user"),
        ("http://anna:secret@a:x", "no address"),
    ],
)
def test_another_text_is_refused_without_its_password(text: str, word: str) -> None:
    with pytest.raises(UnusableAddress, match=word) as raised:
        ApiAddress.of(text)
    assert "secret" not in str(raised.value)


def test_addresses_may_be_repeated_or_have_commas() -> None:
    found = addresses(["http://a:1, http://b:2", "http://c:3", "http://a:1", ""])
    assert [each.url for each in found] == ["http://a:1", "http://b:2", "http://c:3"]


@pytest.mark.parametrize(
    ("text", "is_confidential"),
    [
        ("http://127.0.0.1", True),
        ("http://127.1.2.3", True),
        ("http://[::1]", True),
        ("http://localhost", True),
        ("http://localhost.example.org", False),
        ("http://10.0.0.1", False),
        ("https://10.0.0.1", True),
    ],
)
def test_only_tls_and_this_host_are_confidential(text: str, is_confidential: bool) -> None:
    assert ApiAddress.of(text).is_confidential is is_confidential
