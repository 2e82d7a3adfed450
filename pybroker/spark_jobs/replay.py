"""Exported messages back into a broker, through the client: any broker, any failover URI.

Spark reads and orders them; one connection sends them, in transactions, in each destination's order.

Every message has the id of the one it repeats in the property `pybrokerReplayOf`. Sends are also recorded in a ledger
beside the export, batch by batch: a run that was broken off goes on where it stopped, and a finished one sends nothing.
Only a batch during whose commit the process or the broker died may come twice; the property shows it.

Text, bytes, map and stream messages are sent with the types they had, and so are those without a body. Object and blob
messages cannot be made by this client: they are counted, and left. An expiration that has passed is left out, since the
broker would throw the message away at once.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
from pyspark.sql import DataFrame, SparkSession

from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, decode
from pybroker.client.arguments import MessageHeaders
from pybroker.client.errors import TransactionRolledBack
from pybroker.client.messages import Body
from pybroker.client.sync import Connection, connect
from pybroker.spark_jobs.session import session

REPLAY_OF: Final = "pybrokerReplayOf"
"""The property that names the message which is repeated."""
BATCH: Final = 100
"""Messages in a transaction: few enough to repeat, enough to share a disk sync."""
ATTEMPTS_MAX: Final = 5
"""Attempts at a transaction that the broker rolls back, as at a failover."""
RATE_MAX: Final = 1_000_000
"""The highest rate, in messages a second."""

_COLUMNS: Final = ("destination_type", "destination", "message_id", "message")
_TYPES: Final = {"queue": DestinationType.QUEUE, "topic": DestinationType.TOPIC}

Progress = Callable[[int, int], None]
"""Called after each batch with the messages done and the messages in all."""


class Repeated(NamedTuple):
    """A message to send."""

    destination: Destination
    message_id: str
    body: Body
    headers: MessageHeaders


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The result of a replay.

    Attributes:
        sent: messages that are safe in the broker.
        skipped: messages that an earlier run had sent.
        left: messages that the client cannot make, or that do not decode.
    """

    sent: int
    skipped: int
    left: int


class Ledger:
    """The messages that were sent, one per line: its destination, a tab, its id."""

    def __init__(self, path: Path) -> None:
        """Read the file; an incomplete last line of a crash is not counted."""
        self.path = path
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            path.write_text(whole, encoding="utf-8")
        self._sent = set(whole.splitlines())

    def __contains__(self, message: Repeated) -> bool:
        return _line(message) in self._sent

    def record(self, messages: Iterable[Repeated]) -> None:
        """Add messages; they are on disk on return."""
        lines = [_line(message) for message in messages]
        self._sent.update(lines)
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())


def _line(message: Repeated) -> str:
    return f"{message.destination}\t{message.message_id}"


class Pace:
    """Holds messages back to so many a second."""

    def __init__(
        self,
        per_second: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._per_second = per_second
        self._clock = clock
        self._sleep = sleep
        self._due = clock()

    def wait(self, count: int) -> None:
        """Return when that many more may go; time that was not used is not made up for."""
        if self._per_second is None:
            return
        now = self._clock()
        if self._due > now:
            self._sleep(self._due - now)
        self._due = max(self._due, now) + count / self._per_second


def replay(
    spark: SparkSession,
    source: str | Path | DataFrame,
    uri: str,
    *,
    ledger: Path,
    to: Destination | None = None,
    rate: float | None = None,
    batch: int = BATCH,
    user: str | None = None,
    password: str | None = None,
    progress: Progress | None = None,
) -> Replayed:
    """Send exported messages.

    Args:
        spark: the session.
        source: Parquet that `export` wrote, or the table itself.
        uri: a broker's, such as `failover:(tcp://a:61616,tcp://b:61616)`.
        ledger: the file in which sent messages are recorded.
        to: send all of it there; by default each message goes where it was.
        rate: messages a second, at most.
        batch: messages in a transaction.
        user: for the broker.
        password: for the broker.
        progress: called after each batch.

    Raises:
        ClientError: the broker is missing, or refuses; see `pybroker.client.errors`. The ledger knows what was sent.
    """
    table = source if isinstance(source, DataFrame) else spark.read.parquet(str(source))
    rows = table.orderBy("directory", "destination_type", "destination", "order", "order_within").select(*_COLUMNS)
    total = table.count()
    book, counts = Ledger(ledger), {"skipped": 0, "left": 0}
    waiting = _waiting(rows, to, book, counts)
    sent, pace = 0, Pace(rate)
    with connect(uri, user=user, password=password) as connection:
        while messages := list(islice(waiting, batch)):
            pace.wait(len(messages))
            _commit(connection, messages)
            book.record(messages)
            sent += len(messages)
            if progress is not None:
                progress(sent + sum(counts.values()), total)
    return Replayed(sent=sent, **counts)


def _waiting(rows: DataFrame, to: Destination | None, book: Ledger, counts: dict[str, int]) -> Iterator[Repeated]:
    """Yield the messages left to send; count the others by the reason."""
    now = int(time.time() * 1000)
    for row in rows.toLocalIterator(prefetchPartitions=True):
        destination = to or _destination(row.destination_type, row.destination)
        message = None if destination is None else repeated(destination, row.message_id, row.message, now)
        if message is None:
            counts["left"] += 1
        elif message in book:
            counts["skipped"] += 1
        else:
            yield message


def _destination(kind: str, name: str) -> Destination | None:
    """Return where a message goes; None for a temporary destination, which is gone with its connection."""
    return Destination(_TYPES[kind], name) if kind in _TYPES else None


def repeated(destination: Destination, message_id: str, data: bytes, now: int) -> Repeated | None:
    """Return a stored message as the client sends it; None for one that it cannot make, or that does not decode.

    Args:
        destination: where to.
        message_id: the stored message's.
        data: OpenWire v11, from its data type on.
        now: milliseconds since the epoch; an expiration before that is left out.
    """
    try:
        fields = decode(bytes(data))
        if fields.type in (MessageType.OBJECT, MessageType.BLOB):
            return None
        return Repeated(destination, message_id, _body(fields), _headers(fields, message_id, now))
    except MalformedOpenWire:
        return None


def _body(fields: OpenWireMessage) -> Body:
    match fields.type:
        case MessageType.TEXT:
            return fields.text() or ""
        case MessageType.MAP:
            return fields.map()
        case MessageType.STREAM:
            return list(fields.stream())
        case MessageType.BYTES:
            return fields.body_bytes()
        case _:
            return None


def _headers(fields: OpenWireMessage, message_id: str, now: int) -> MessageHeaders:
    headers = MessageHeaders(
        properties={**fields.properties, REPLAY_OF: message_id},
        persistent=fields.persistent,
        priority=fields.priority,
    )
    if fields.expiration > now:
        headers["expiration"] = fields.expiration
    if fields.reply_to is not None:
        headers["reply_to"] = fields.reply_to
    if fields.correlation_id is not None:
        headers["correlation_id"] = fields.correlation_id
    if fields.jms_type is not None:
        headers["type"] = fields.jms_type
    if fields.group_id is not None:
        headers["group_id"] = fields.group_id
        headers["group_sequence"] = fields.group_sequence
    return headers


def _commit(connection: Connection, messages: Iterable[Repeated]) -> None:
    """Send a batch in a transaction, again where the broker rolled it back: then nothing of it was done."""
    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            with connection.transaction() as transaction:
                for message in messages:
                    transaction.send(message.destination, message.body, **message.headers)
            return
        except TransactionRolledBack:
            if attempt == ATTEMPTS_MAX:
                raise


def _checked_rate(_context: click.Context, _parameter: click.Parameter, rate: float | None) -> float | None:
    if rate is not None and not 0 < rate <= RATE_MAX:
        raise click.BadParameter(f"it must be above 0 and at most {RATE_MAX}; given was {rate:g}")
    return rate


@click.command(help="Send exported messages to the broker at URI, except for those that an earlier run has sent.")
@click.argument("parquet", type=click.Path(exists=True, path_type=Path))
@click.argument("uri")
@click.option("--ledger", type=click.Path(path_type=Path), help="File that records the sent messages [PARQUET.sent].")
@click.option("--to", help="Send everything there: queue://NAME or topic://NAME.")
@click.option("--rate", type=float, callback=_checked_rate, help="Messages a second, at most.")
@click.option("--user", help="For the broker.")
@click.option("--password", envvar="PYBROKER_PASSWORD", help="For the broker; better in the environment.")
def main(parquet: Path, uri: str, ledger: Path | None, to: str | None, **settings: Any) -> None:
    """Run it as a program."""
    book = ledger or parquet.with_name(f"{parquet.name}.sent")
    target = None if to is None else _named(to)
    with click.progressbar(length=1, label="sending") as bar:

        def show(done: int, total: int) -> None:
            bar.length = total
            bar.update(done - bar.pos)

        done = replay(session("replay"), parquet, uri, ledger=book, to=target, progress=show, **settings)
    click.echo(f"sent {done.sent}, sent before {done.skipped}, left {done.left}; recorded in {book}")


def _named(name: str) -> Destination:
    kind, _, bare = name.rpartition("://")
    destination = _destination(kind or "queue", bare)
    if destination is None or not bare:
        raise click.BadParameter(f"{name} is neither queue://NAME nor topic://NAME", param_hint="--to")
    return destination


if __name__ == "__main__":
    main()
