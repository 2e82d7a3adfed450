"""`pybroker messages`: the messages of a queue or durable subscription, also those that consumers have.

A page of the API has so many bytes at most: pages follow one another until there are as many messages as asked for.
"""

import base64
import json
import re
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pybroker.broker.app.operator_text import Row, TableColumn, age, cut, number, plain, table

if TYPE_CHECKING:
    from pybroker.management_client.client import ManagementClient

PAGE: Final = 500
"""Messages of a page, the most that a member sends."""

BODY_SHOWN_MAX: Final = 60
_CONTROL: Final = re.compile(r"[\x00-\x08\x0e-\x1f]")

_COLUMNS: Final = (
    TableColumn("POSITION", "position", number, True),
    TableColumn("MESSAGE", "message_id", plain),
    TableColumn("STATE", "where", plain),
    TableColumn("AGE", "age", plain, True),
    TableColumn("SIZE", "size", number, True),
    TableColumn("TYPE", "body_type", plain),
    TableColumn("BODY", "shown", plain),
)


class MessagesRequest(NamedTuple):
    """The messages that are wanted.

    Attributes:
        where: `queues` or `subscriptions`, and the name or key.
        selector: only messages that match; None: all.
        after: the cursor of the messages before; None: from the first one on.
        limit: the number of messages, at most.
        body: `none`, `preview` or `full`.
    """

    where: tuple[str, str]
    selector: str | None
    after: int | None
    limit: int
    body: str


class Browsed(NamedTuple):
    """Messages.

    Attributes:
        messages: they, as the API has them.
        cursor: the cursor of the messages that follow; None: these were the last ones.
    """

    messages: Sequence[Row]
    cursor: int | None

    def as_json(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        return {"messages": list(self.messages), "cursor": self.cursor}


def fetch_messages(client: "ManagementClient", asked: MessagesRequest) -> Browsed:
    """Return the messages.

    Raises:
        ManagementError: there are none.
    """
    found: list[Row] = []
    after: int | None = asked.after
    while True:
        count = min(PAGE, asked.limit - len(found))
        query = {"after": after, "count": count, "selector": asked.selector, "body": asked.body}
        page = client.get(*asked.where, "messages", **query)
        found += page["messages"]
        after = page["cursor"]
        if page["end"] == "last":
            return Browsed(found, None)
        if len(found) >= asked.limit:
            return Browsed(found, after)


def described(messages: Iterable[Row], now_ms: int) -> Iterator[str]:
    """Yield the lines of a table of messages."""
    yield from table(_COLUMNS, [_row(each, now_ms) for each in messages])


def _row(message: Row, now_ms: int) -> Row:
    holder = message["holder"]
    delivered = f" ({message['redelivery_count']}x)" if message["redelivery_count"] else ""
    sent_ms = message.get("timestamp_ms")
    return {
        **message,
        "where": (f"at {holder['client_id']}" if holder else message["state"]) + delivered,
        "age": age(now_ms - sent_ms) if sent_ms else "-",
        "shown": cut(plain(_body(message)), BODY_SHOWN_MAX),
    }


def described_whole(message: Row) -> Iterator[str]:
    """Yield the lines of one message: its headers, its properties, an empty line and its body."""
    for name, value in message.items():
        if name not in ("body", "properties", "holder") and value not in (None, ""):
            yield f"{name}: {plain(value)}"
    holder: Mapping[str, Any] = message["holder"] or {}
    for name, value in holder.items():
        yield f"holder.{name}: {plain(value)}"
    properties: Mapping[str, Any] = message.get("properties", {})
    for name, value in properties.items():
        yield f"properties.{plain(name)}: {plain(value)}"
    yield ""
    body = _body(message)
    yield "\n".join(plain(line) for line in body.split("\n")) if isinstance(body, str) else json.dumps(body)


def _body(message: Mapping[str, Any]) -> Any:
    body = message.get("body")
    if body is None:
        return message.get("error") or ""
    if message.get("body_type") == "bytes":
        return _text_of_bytes(body, is_cut=message.get("body_is_cut", False))
    return body if isinstance(body, str) else json.dumps(body)


def _text_of_bytes(body: str, *, is_cut: bool) -> str:
    """Return a body in base64 as the text that it is in UTF-8, as many STOMP clients send texts; else as it is."""
    try:
        text = getincrementaldecoder("utf-8")().decode(base64.b64decode(body), final=not is_cut)
    except UnicodeDecodeError:
        return body
    return body if _CONTROL.search(text) else text
