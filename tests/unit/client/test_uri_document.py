"""docs/failover-uri.md lists every option with its default, and shows real errors."""

import re
from pathlib import Path

import pytest

from pybroker.client.errors import UnusableURI
from pybroker.client.uri import FAILOVER_OPTIONS, TRANSPORT_OPTIONS, parse

PAGE = (Path(__file__).parents[3] / "docs" / "failover-uri.md").read_text()
MOVING, _, CONNECTION = PAGE.partition("## Moving between brokers")[2].partition("## One broker's connection")


def rows(section: str) -> dict[str, str]:
    """Return the default of each option of a section's table."""
    found = re.findall(r"^\| (`[^|]+) \| ([^|]*)\|", section, re.MULTILINE)
    return {name: default.strip() for names, default in found for name in re.findall(r"`([\w.…]+)`", names)}


def test_every_option_is_on_the_page_and_no_other() -> None:
    assert rows(MOVING).keys() == {*FAILOVER_OPTIONS, "nested.…"}
    assert rows(CONNECTION).keys() == set(TRANSPORT_OPTIONS)


@pytest.mark.parametrize(("name", "default"), [item for item in rows(MOVING).items() if item[1]])
def test_the_pages_defaults_are_the_real_ones(name: str, default: str) -> None:
    assert parse(f"failover:(tcp://a:1)?{name}={default}").failover == parse("failover:(tcp://a:1)").failover


@pytest.mark.parametrize(("name", "default"), [item for item in rows(CONNECTION).items() if re.match(r"\w+$", item[1])])
def test_the_defaults_of_a_connection_are_the_real_ones(name: str, default: str) -> None:
    written, plain = parse(f"tcp://a:1?{name}={default}"), parse("tcp://a:1")
    assert written.addresses[0].options == plain.addresses[0].options


@pytest.mark.parametrize(
    ("uri", "error"),
    list(
        zip(
            (
                "failover:(tcp://b:61616)?randomise=false",
                "failover:(tcp://b:61616)?maxReconnectDelay=1s",
                "failover:tcp://b:61616?randomize=false",
            ),
            re.findall(r"^(?:UnknownOption|BadOption): .*$", PAGE, re.MULTILINE),
            strict=True,
        )
    ),
)
def test_the_pages_errors_are_the_real_ones(uri: str, error: str) -> None:
    with pytest.raises(UnusableURI) as raised:
        parse(uri)
    assert f"{type(raised.value).__name__}: {raised.value}" == error
