"""The URL of a register in etcd."""

import pytest

from pybroker.broker.domain.errors import ConfigError
from pybroker.locks.election.etcd_url import EtcdUrl
from pybroker.locks.election.http_calls import HttpAddress


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("etcd://h/orders", "etcd://h:2379/orders"),
        ("etcd://h", "etcd://h:2379/pybroker"),
        ("etcd://h:1/", "etcd://h:1/pybroker"),
        (
            "etcd+https://h1:1,h2,[::1]:3,[fe80::2]/or%20ders",
            "etcd+https://h1:1,h2:2379,[::1]:3,[fe80::2]:2379/or%20ders",
        ),
    ],
)
def test_url_has_one_form(url: str, text: str) -> None:
    assert str(EtcdUrl.parse(url)) == text
    assert str(EtcdUrl.parse(text)) == text


def test_url_has_addresses_and_a_name() -> None:
    found = EtcdUrl.parse("etcd+https://h1:1,[::1]:3/x")
    assert found == EtcdUrl(addresses=(HttpAddress("h1", 1), HttpAddress("::1", 3)), cluster="x", is_tls=True)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "h:2379/x",
        "http://h:2379/x",
        "etcd:///x",
        "etcd://h:0/x",
        "etcd://h:65536/x",
        "etcd://h:port/x",
        "etcd://h1:1,/x",
        "etcd://[::1/x",
        "etcd://user:s3cret@h/x",
        "etcd://h/x/y",
        "etcd://h/x?compact=1h",
        "etcd://h/x#y",
        "etcd://h/%0a",
        "etcd://h/" + "x" * 201,
        "etcd://" + ",".join(["h"] * 10) + "/x",
        "etcd://h h/x",
    ],
)
def test_wrong_url_is_refused_and_not_quoted(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^replica: this is not the URL of an etcd register") as caught:
        EtcdUrl.parse(url, "replica")
    assert "s3cret" not in str(caught.value)
