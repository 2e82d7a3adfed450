"""The XML pages that Telegraf reads."""

import asyncio
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from tests.unit.management.brokers import METHODS, STANDBY_METHODS
from tests.unit.management.simulated import row, site


def page(name: str, **methods: Any) -> tuple[str, ElementTree.Element]:
    """Return the media type and the document of a page."""

    async def run() -> tuple[str, str]:
        async with site(METHODS | methods) as there:
            status, headers, text = await there.ask_raw(f"/admin/xml/{name}.jsp")
            assert status == 200
            return headers["content-type"], text

    media_type, text = asyncio.run(run())
    return media_type, ElementTree.fromstring(text)


def test_queues_have_their_counts() -> None:
    media_type, document = page("queues")
    assert (media_type, document.tag) == ("text/xml; charset=utf-8", "queues")
    assert [each.get("name") for each in document] == ["ORDERS", "a=b:c*?", "EMPTY"]
    stats = document[0].find("stats")
    assert stats is not None
    assert stats.attrib == {"size": "7", "consumerCount": "1", "enqueueCount": "11", "dequeueCount": "4"}
    atom = document[0].find("feed/atom")
    assert atom is not None
    assert atom.text == "queueBrowse/ORDERS?view=rss&feedType=atom_1.0"


def test_topics_have_their_counts() -> None:
    _, document = page("topics")
    assert [each.get("name") for each in document] == ["PRICES"]


def test_active_subscribers_come_first() -> None:
    _, document = page("subscribers")
    assert [each.attrib for each in document] == [
        {
            "clientId": "app",
            "subscriptionName": "sub1",
            "connectionId": "ID:c",
            "destinationName": "PRICES",
            "selector": "",
            "active": "yes",
        },
        {
            "clientId": "off",
            "subscriptionName": "gone",
            "connectionId": "NOTSET",
            "destinationName": "PRICES",
            "selector": "x < 1",
            "active": "no",
        },
    ]
    stats = document[1].find("stats")
    assert stats is not None
    assert stats.attrib == {
        "pendingQueueSize": "4",
        "dispatchedQueueSize": "0",
        "dispatchedCounter": "0",
        "enqueueCounter": "4",
        "dequeueCounter": "0",
    }


def test_names_are_escaped_once() -> None:
    name = "a<b>&\"'é\x01\ud800\ufffe"
    _, document = page("queues", destinations=lambda _: [row(name)])
    assert document[0].get("name") == "a<b>&\"'é???"


@pytest.mark.parametrize("name", ["queues", "topics", "subscribers"])
def test_a_standby_answers_503(name: str) -> None:
    async def run() -> int:
        async with site(STANDBY_METHODS) as there:
            return (await there.ask_raw(f"/admin/xml/{name}.jsp"))[0]

    assert asyncio.run(run()) == 503
