"""Why data files stay, and which messages hold them: the answer of `pybroker journal why`, from Spark.

Spark counts what lies where: live messages per file, and which file's records answer which other file's. What follows
from that is a question about files, of which there are few, and is answered here by the rules of the store's cleanup.

A file that holds nothing is listed with `held` false; `pybroker journal why` also says what would be written anew
before such a file goes.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from pybroker.broker.domain.destination import queue
from pybroker.spark_jobs.cli import run
from pybroker.spark_jobs.history import PREPARED, History, Source, Tables, file_of, full_name, history
from pybroker.spark_jobs.lives import FILE_SHIFT, Event, SubscriptionLife, subscription_lives
from pybroker.store.journal.kept import KEPT, KeptQueues, decode_kept
from pybroker.store.journal.reader import data_files
from pybroker.store.journal.tools.why import Cause

EXAMPLES_MAX: Final = 3
"""Message ids named per reason: the oldest."""

_REASONS: Final = (
    "directory string, file int, bytes bigint, held boolean, cause string, what string, destination string, "
    "messages bigint, message_bytes bigint, oldest_time timestamp, examples array<string>, "
    "files array<int>, because array<int>"
)


class Reason(NamedTuple):
    """One thing that holds a data file; the fields are the table's columns."""

    cause: str
    what: str
    destination: str | None = None
    messages: int = 0
    message_bytes: int | None = None
    oldest_time: object = None
    examples: Sequence[str] = ()
    files: Sequence[int] = ()
    because: Sequence[int] = ()


@dataclass(slots=True)
class Files:
    """The data files of one directory, and what lies in them.

    Attributes:
        sizes: bytes by file.
        compacted: files that ActiveMQ made of others.
        reasons: what each file has itself that holds it.
        references: per file those whose records it makes void.
        counted: acknowledgements and examples of message ids by answering and answered file.
    """

    sizes: dict[int, int] = field(default_factory=dict[int, int])
    compacted: set[int] = field(default_factory=set[int])
    reasons: defaultdict[int, list[Reason]] = field(default_factory=lambda: defaultdict[int, list[Reason]](list))
    references: defaultdict[int, set[int]] = field(default_factory=lambda: defaultdict[int, set[int]](set))
    counted: dict[tuple[int, int], tuple[int, list[str]]] = field(
        default_factory=dict[tuple[int, int], tuple[int, list[str]]]
    )

    @property
    def lowest_writable(self) -> int:
        """The lowest file that may have been written last: below it are none but those that are finished."""
        lowest = 0
        for file_id in sorted(self.sizes, reverse=True):
            lowest = file_id
            if file_id not in self.compacted:
                break
        return lowest

    def refer(self, by: int, of: Iterable[int]) -> None:
        """Note that a file answers others."""
        self.references[by].update(other for other in of if other != by)

    def held(self) -> set[int]:
        """Return the files that cannot be deleted: for what they have, or for what they answer."""
        staying = [file_id for file_id in self.sizes if self.reasons[file_id] or file_id >= self.lowest_writable]
        held = set(staying)
        referrers: defaultdict[int, list[int]] = defaultdict(list)
        for by, answered in self.references.items():
            for of in answered:
                referrers[of].append(by)
        while staying:
            for by in referrers[staying.pop()]:
                if by in self.sizes and by not in held:
                    held.add(by)
                    staying.append(by)
        return held

    def explained(self) -> Iterator[tuple[int, bool, Reason | None]]:
        """Yield each file with whether it is held, once per reason; None for a file without any."""
        held = self.held()
        for file_id in self.sizes:
            if file_id >= self.lowest_writable:
                self.reasons[file_id].insert(0, Reason(Cause.WRITTEN.value, "it is being written, or was written last"))
        own = {file_id for file_id in held if self.reasons[file_id]}
        for file_id in sorted(self.sizes):
            reasons: list[Reason | None] = [*self.reasons[file_id]]
            answered = sorted(self.references[file_id] & held)
            if file_id in held and answered:
                reasons.append(self._answers(file_id, answered, held, own))
            for reason in reasons or [None]:
                yield file_id, file_id in held, reason

    def _answers(self, file_id: int, answered: Sequence[int], held: set[int], own: set[int]) -> Reason:
        counted = [self.counted[file_id, other] for other in answered if (file_id, other) in self.counted]
        names = ", ".join(f"db-{other}.log" for other in answered)
        return Reason(
            Cause.ANSWERS.value,
            f"acknowledgements, outcomes or ends for records in {names}, which stay",
            messages=sum(count for count, _ in counted),
            examples=[example for _, examples in counted for example in examples][:EXAMPLES_MAX],
            files=answered,
            because=self._chain(file_id, held, own),
        )

    def _chain(self, file_id: int, held: set[int], own: set[int]) -> list[int]:
        """Return the shortest way along references to a file that is held by something of its own."""
        ways: dict[int, list[int]] = {file_id: []}
        waiting = [file_id]
        for current in waiting:
            if current in own and current != file_id:
                return ways[current]
            for other in sorted(self.references[current] & held):
                if other not in ways:
                    ways[other] = [*ways[current], other]
                    waiting.append(other)
        return []


def journal_pins(spark: SparkSession, source: Source | History) -> Tables:
    """Return `files`, a row per file and reason that holds it, or one without `cause`; and `live`, messages by file."""
    past = history(spark, source)
    live = _live_by_file(past)
    rows = [
        (directory, file_id, files.sizes[file_id], held, *(reason or (None,) * len(Reason._fields)))
        for directory, files in sorted(_files(past, live).items())
        for file_id, held, reason in files.explained()
    ]
    return {"files": spark.createDataFrame(rows, _REASONS), "live": live.orderBy("directory", "file")}


# ---------------------------------------------------------------- what lies where


def _live_by_file(past: History) -> DataFrame:
    """Count live messages by file and destination; duplicates and superseded versions count in theirs."""
    keys = ("directory", "file", "destination_type", "destination")
    files = F.concat(F.array(file_of("location")), "superseded")
    in_order = Window.partitionBy(*keys).orderBy("added_at", "added_pos")
    example = F.when(F.col("rank") <= EXAMPLES_MAX, F.struct("rank", "message_id"))
    return (
        past.live.withColumn("file", F.explode(files))
        .withColumn("rank", F.row_number().over(in_order))
        .groupBy(*keys)
        .agg(
            F.count("*").alias("messages"),
            F.sum("size").alias("bytes"),
            F.min("added_time").alias("oldest_time"),
            F.array_sort(F.collect_list(example)).alias("first"),
        )
        .withColumn("examples", F.col("first.message_id"))
        .drop("first")
    )


def _files(past: History, live: DataFrame) -> dict[str, Files]:
    found: defaultdict[str, Files] = defaultdict(Files)
    _note_files(past, found)
    for row in live.withColumn("name", full_name()).orderBy("file", F.col("oldest_time").asc_nulls_first()).collect():
        reason = Reason(
            Cause.MESSAGES.value,
            f"messages of {row.name}",
            row.name,
            row.messages,
            row.bytes,
            row.oldest_time,
            row.examples,
        )
        found[row.directory].reasons[row.file].append(reason)
    _note_transactions(past, found)
    _note_answers(past, found)
    _note_destinations(past, found)
    return found


def _note_files(past: History, found: Mapping[str, Files]) -> None:
    is_copy = F.col("record_type") == "rewritten_data_file"
    seen = past.records.groupBy("directory", "file").agg(
        F.sum("size").alias("bytes"), F.coalesce(F.max(is_copy), F.lit(False)).alias("is_copy")
    )
    for row in seen.collect():
        files = found[row.directory]
        files.sizes[row.file] = row.bytes
        if row.is_copy:
            files.compacted.add(row.file)
    for directory, files in found.items():
        if Path(directory).is_dir():  # else it is another machine's, and a file without records stays unseen
            files.sizes |= {file_id: path.stat().st_size for file_id, path in data_files(Path(directory)).items()}


def _note_transactions(past: History, found: Mapping[str, Files]) -> None:
    for row in past.unfinished.orderBy("first_position").collect():
        state = "is in doubt" if row.outcome == PREPARED else "is not ended"
        reason = Reason(
            Cause.TRANSACTION.value,
            f"{row.transaction} {state}",
            messages=row.sent + row.acknowledged,
            oldest_time=row.first_time,
            examples=[each.message_id for each in row.first],
        )
        for file_id in row.files:
            found[row.directory].reasons[file_id].append(reason)
    pairs = F.array(
        F.struct(F.col("ended_in").alias("by"), F.col("file").alias("of")),
        F.struct(F.col("prepared_in").alias("by"), F.col("file").alias("of")),
        F.struct(F.col("ended_in").alias("by"), F.col("prepared_in").alias("of")),
    )
    answers = past.operations.where(F.col("transaction").isNotNull()).select("directory", F.inline(pairs)).distinct()
    for row in answers.where("by is not null and of is not null").collect():
        found[row.directory].refer(row.by, [row.of])


def _note_answers(past: History, found: Mapping[str, Files]) -> None:
    voided = past.lives.select("directory", F.explode("voided").alias("pair")).distinct()
    for row in voided.collect():
        found[row.directory].refer(row.pair[0], [row.pair[1]])
    by, of = file_of(F.col("pair")[0]), F.col("pair")[1].cast("int")
    first = F.min_by(F.struct("pos", "message_id"), "pos", EXAMPLES_MAX)
    counted = (
        past.lives.select("directory", "message_id", F.explode("counted").alias("pair"))
        .select("directory", "message_id", by.alias("by"), of.alias("of"), F.col("pair")[0].alias("pos"))
        .groupBy("directory", "by", "of")
        .agg(F.count("*").alias("count"), first.alias("first"))
    )
    for row in counted.collect():
        found[row.directory].counted[row.by, row.of] = (row["count"], [each.message_id for each in row.first])


# ---------------------------------------------------------------- destinations


def _note_destinations(past: History, found: Mapping[str, Files]) -> None:
    """Replay the destinations' own records, of which there are few: what subscriptions hold, and what ends them."""
    pending = {
        (row.directory, row.destination, row.subscription): row.messages
        for row in past.live.select("directory", "destination", F.explode("pending").alias("subscription"))
        .groupBy("directory", "destination", "subscription")
        .agg(F.count("*").alias("messages"))
        .collect()
    }
    for row in past.destination_events.collect():
        files = found[row.directory]
        events = [Event(*event) for event in row.around]
        for life in subscription_lives(events):
            if life.ended is not None:
                files.refer(life.ended >> FILE_SHIFT, life.files)
            else:
                _note_subscription(files, row, life, pending.get((row.directory, row.destination, life.key), 0))
    _note_removed_queues(past, found)


def _note_subscription(files: Files, row: Row, life: SubscriptionLife, pending: int) -> None:
    name = f"{row.destination_type}://{row.destination}"
    reason = Reason(Cause.SUBSCRIPTION.value, f"durable subscription {life.key} to {name}", name, pending)
    for file_id in life.files if pending else {life.location >> FILE_SHIFT}:
        files.reasons[file_id].append(reason)


def _note_removed_queues(past: History, found: Mapping[str, Files]) -> None:
    """Let the removal of a queue answer the remarks that say it is kept while it is empty."""
    is_remark = F.col("remark").startswith(KEPT)
    is_removal = (F.col("record_type") == "remove_destination") & (F.col("destination_type") == "queue")
    said = past.records.where(is_remark | is_removal).select("directory", "position", "remark", "destination")
    kept: defaultdict[str, KeptQueues] = defaultdict(KeptQueues)
    for row in said.orderBy("position").collect():
        file_id = row.position >> FILE_SHIFT
        if row.remark is None:
            found[row.directory].refer(file_id, kept[row.directory].forget(queue(row.destination)))
            continue
        for each in decode_kept(row.remark):
            kept[row.directory].note(each, file_id)


if __name__ == "__main__":
    run(journal_pins)
