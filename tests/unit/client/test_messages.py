"""The text of a received message, as a program prints it."""

import pytest

from pybroker.broker.domain.destination import queue
from pybroker.client.errors import UnreadableMessage
from pybroker.client.messages import Body, Message


def printed(body: Body, redelivery_count: int = 0) -> str:
    message = Message(
        id="ID:a:1",
        destination=queue("Q"),
        read_body=lambda: body,
        read_properties=dict,
        redelivery_count=redelivery_count,
    )
    assert repr(message) == str(message)
    return str(message)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("tea", "'tea'"),
        (None, "None"),
        (b"\x00", "b'\\x00'"),
        ({"item": "tea", "grams": 250}, "{'grams': 250, 'item': 'tea'}"),
        ([1, 2.5], "[1, 2.5]"),
    ],
)
def test_a_message_shows_where_it_was_sent_and_its_body(body: Body, shown: str) -> None:
    assert printed(body) == f"<Message queue://Q, ID:a:1, {shown}>"


@pytest.mark.parametrize("body", ["x" * 10_000, b"x" * 10_000, {"k": b"x" * 10_000}, [list(range(1000))] * 1000])
def test_a_large_body_is_shown_in_part(body: Body) -> None:
    assert len(printed(body)) < 600


def test_a_redelivered_message_shows_that() -> None:
    assert printed("tea", redelivery_count=1) == "<Message queue://Q, ID:a:1, redelivered, 'tea'>"


def test_a_damaged_message_can_be_shown() -> None:
    def read() -> Body:
        raise UnreadableMessage("no text")

    message = Message(id="ID:a:1", destination=queue("Q"), read_body=read, read_properties=dict)
    assert str(message) == "<Message queue://Q, ID:a:1, unreadable: no text>"
