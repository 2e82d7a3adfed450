# mypy: disable-error-code="arg-type"
"""A stream that follows a journal while brokers write it: the broker's own counts, and each record exactly once.

One story, as every start of a cluster and of a query costs seconds: under load the table has what the broker has
confirmed; the stream is stopped and started from its checkpoint; the master is killed and the other goes on; at the
end the stream has read each record of the journal once, and every message that the broker holds.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pybroker.client.errors import ClientError
from pybroker.client.sync import connect
from pybroker.store.journal.commands import CommandType
from pybroker.store.journal.reader import DataFileWalk, data_files
from pybroker.testing import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DESTINATION = "FOLLOWED"
SCHEMA = "file int, offset long, record_type string, message_id string, text string"
CHUNK = 20
"""Messages sent before their answers are waited for."""
STEP = 160
"""Messages between two parts of the story."""
PAUSE_SECONDS = 0.1
"""Between two chunks: what is written in that time has to be read, too."""
CONSUMED = 100
WAIT_SECONDS = 120.0


class Load:
    """Sends numbered messages from a thread, each until it is confirmed, whichever member is master."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._ending = threading.Event()
        self._moved = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="load")
        self.attempted: Counter[str] = Counter()
        self.confirmed: set[str] = set()

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._ending.set()
            self._thread.join(WAIT_SECONDS)

    def wait_for_more(self) -> None:
        """Wait until so many more are confirmed."""
        with self._moved:
            goal = len(self.confirmed) + STEP
            assert self._moved.wait_for(lambda: len(self.confirmed) >= goal, WAIT_SECONDS), "the load stands still"

    def _run(self) -> None:
        number = 0
        while not self._ending.is_set():
            texts = [f"message {number + index} {'x' * 4000}" for index in range(CHUNK)]
            while not self._send(texts) and not self._ending.is_set():
                pass
            number += CHUNK
            self._ending.wait(PAUSE_SECONDS)

    def _send(self, texts: list[str]) -> bool:
        try:
            with connect(self._uri, timeout=WAIT_SECONDS) as connection:
                self.attempted.update(texts)
                for sending in [connection.begin_send(DESTINATION, text) for text in texts]:
                    sending.wait(WAIT_SECONDS)
        except ClientError:
            return False
        with self._moved:
            self.confirmed.update(texts)
            self._moved.notify_all()
        return True


def follow(spark: "SparkSession", journal: Path, folder: Path) -> None:
    """Read what is there by now, from where the last call left off."""
    rows = spark.readStream.format("kahadb").schema(SCHEMA).option("maxBytesPerTrigger", 16_000_000).load(str(journal))
    query = (
        rows.writeStream.format("parquet")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(WAIT_SECONDS)


def records(journal: Path) -> Counter[tuple[int, int, int]]:
    """Return file, offset and type of all records, as the journal's own reader finds them."""
    found: Counter[tuple[int, int, int]] = Counter()
    for file_id, path in data_files(journal).items():
        walk = DataFileWalk(path.read_bytes(), file_id)
        found.update((*location, payload[0]) for location, payload in walk)
        assert not [damage for damage in walk.damages if not damage.at_end]
    return found


@pytest.mark.component("java")
@pytest.mark.timeout(500)
def test_stream_has_each_record_of_the_brokers_once(spark: Any, tmp_path: Path) -> None:
    settings = {"journal_file_max": "1mb", "journal_batch_max": "256kb", "cleanup_interval": "1h"}
    with Cluster(2, settings=settings) as cluster:
        journal = cluster.store / "kahadb"
        load = Load(cluster.uri)
        with load.running():
            load.wait_for_more()

            confirmed = len(load.confirmed)
            table = spark.read.format("kahadb").schema(SCHEMA).load(str(journal))
            stored = table.where("record_type = 'add_message'").count()
            assert confirmed <= stored <= sum(load.attempted.values())

            follow(spark, journal, tmp_path)
            load.wait_for_more()
            cluster.kill9("master")
            load.wait_for_more()
            follow(spark, journal, tmp_path)
            load.wait_for_more()

        with connect(cluster.uri, timeout=WAIT_SECONDS) as connection:
            held = Counter(message.body for message in connection.browse(DESTINATION))
        consume(cluster.uri)
        cluster.stop("master")
        follow(spark, journal, tmp_path)

        rows = spark.read.parquet(str(tmp_path / "rows")).collect()
        kinds = [kind.name.lower() for kind in CommandType]
        streamed = Counter((row["file"], row["offset"], kinds.index(row["record_type"])) for row in rows)
        assert streamed == records(journal), "each record once, and none else"
        assert len(data_files(journal)) > 3, "the stream followed from file to file"

        added = Counter(row["text"] for row in rows if row["record_type"] == "add_message")
        assert added == held, "what the broker shows to a browser"
        assert load.confirmed <= added.keys() <= load.attempted.keys()
        assert sum(row["record_type"] == "remove_message" for row in rows) == CONSUMED


def consume(uri: str) -> None:
    """Take the oldest messages."""
    with (
        connect(uri, timeout=WAIT_SECONDS) as connection,
        connection.consumer(DESTINATION, ack="individual", prefetch=CONSUMED) as consumer,
    ):
        for _ in range(CONSUMED):
            consumer.receive(timeout=WAIT_SECONDS).ack()
