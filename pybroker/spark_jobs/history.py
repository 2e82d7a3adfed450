"""A journal's history in Spark: which records take effect and when, and the lifetime of each message.

```text
records --(transactions)--> effects --(by message)--> lifetimes --(not ended)--> live messages
```

*Effects.* A record in a transaction takes effect where its commit lies, or never: rolled back, left open, or prepared
and undecided. Copies that ActiveMQ's ack compaction makes may lie behind their commit; they take effect at once.

*Lifetimes.* Each message is replayed for itself, with the rules of `lifetimes`. Nothing is brought to one machine: a
window per transaction, a group per message, and a table of the destinations' own records, which is small.

All tables carry `directory`, so several brokers' journals can be read at once. Positions order records; times never do.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.storagelevel import StorageLevel

from pybroker.spark_jobs.lifetimes import (
    ACK,
    ADD,
    FILE_SHIFT,
    MET,
    REMOVE,
    SUBSCRIBE,
    UNSUBSCRIBE,
    UPDATE,
    Lifetime,
    RecordEvent,
    replay,
)
from pybroker.spark_jobs.store_names import StoreNames
from pybroker.store.columns.schema import CORRUPT, arrow_schema

RECORD_COLUMNS: Final = (
    "directory",
    "file",
    "offset",
    "position",
    "size",
    "checksum",
    "record_type",
    "time",
    "time_source",
    "transaction",
    "destination_type",
    "destination",
    "message_id",
    "subscription",
    "selector",
    "retroactive",
    "trace",
    "source_file",
    "ack_type",
    "consumer_id",
    "ack_cause",
    CORRUPT,
)
"""The columns a history is made of. No message is decoded for it, only the record around one."""

DESTINATION: Final = ("directory", "destination_type", "destination")
MESSAGE: Final = (*DESTINATION, "message_id")
"""The key of a message: copies of one in several queues have the same id."""

COMMITTED: Final = "committed"
ROLLED_BACK: Final = "rolled back"
PREPARED: Final = "prepared"
OPEN: Final = "open"

_MESSAGE_KINDS: Final = {"add_message": ADD, "update_message": UPDATE, "remove_message": ACK}
_DESTINATION_KINDS: Final = {"subscribe": SUBSCRIBE, "unsubscribe": UNSUBSCRIBE, "remove_destination": REMOVE}
_ENDS: Final = ("commit", "rollback")

_BEYOND: Final = 2**63 - 1
"""A value greater than every position."""

Source = str | Path | Sequence[str | Path] | DataFrame
"""A directory, several, or a table that was read from them (with the columns of the `kahadb` source)."""

Tables = Mapping[str, DataFrame]
"""The result of a job: tables by name."""


def read(spark: SparkSession, source: Source, columns: Sequence[str] = RECORD_COLUMNS) -> DataFrame:
    """Return columns of a journal's records; of a path only these are decoded."""
    if isinstance(source, DataFrame):
        return source.select(*columns)
    paths = [str(source)] if isinstance(source, str | Path) else [str(each) for each in source]
    schema = from_arrow_schema(arrow_schema(tuple(columns)))
    return spark.read.format("kahadb").schema(schema).load(paths if len(paths) > 1 else paths[0])


def file_of(position: str | Column) -> Column:
    """Return the data file's id out of a position."""
    return F.shiftright(position, FILE_SHIFT).cast("int")


def full_name() -> Column:
    """Return a destination as people write it: `queue://orders`."""
    return F.concat_ws("://", "destination_type", "destination")


class History:
    """The tables that the jobs share, each made at its first use.

    The records are read once and kept (in memory, then on disk), until `close`.
    """

    def __init__(self, spark: SparkSession, source: Source) -> None:
        """Take a journal; nothing is read yet."""
        self.spark = spark
        self.source = source
        self._kept: list[DataFrame] = []
        self._shared: dict[str, DataFrame] = {}

    def close(self) -> None:
        """Release the tables in memory."""
        for each in self._kept:
            each.unpersist()
        self._kept.clear()

    @cached_property
    def records(self) -> DataFrame:
        """The journal's records; `time` is carried on from file to file: null before the first known one only."""
        as_read = self._keep(read(self.spark, self.source))
        return _filled(as_read, self._keep(_carried(as_read)))

    @cached_property
    def operations(self) -> DataFrame:
        """Records about messages, each with its `outcome`, and where it takes effect with `at`, `at_time` and `copied`.

        `prepared_in` and `ended_in` are the files of its transaction's preparation and end.
        """
        return self._keep(_operations(self.records))

    @cached_property
    def effects(self) -> DataFrame:
        """Those operations that take effect."""
        return self.operations.where(F.col("outcome") == COMMITTED)

    @cached_property
    def destination_events(self) -> DataFrame:
        """The records about a destination itself, in `around`: subscriptions made and ended, its removal."""
        return _destination_events(self.records)

    @cached_property
    def lifetimes(self) -> DataFrame:
        """One row per lifetime of a message; a message that is rolled back or has no subscription has none."""
        return self._keep(_lifetimes(self.operations, self.destination_events))

    @cached_property
    def hidden(self) -> DataFrame:
        """Messages that are hidden until a transaction in doubt is decided: it acknowledges them."""
        prepared = (F.col("outcome") == PREPARED) & (F.col("record_type") == "remove_message")
        return self.operations.where(prepared).select(*MESSAGE, "subscription", "transaction").distinct()

    @cached_property
    def live(self) -> DataFrame:
        """Messages that the store holds; `hidden_from` are subscriptions, or an empty text for a queue's consumers."""
        keys = F.collect_set(F.coalesce("subscription", F.lit(""))).alias("hidden_from")
        hidden = self.hidden.groupBy(*MESSAGE).agg(keys)
        empty = F.array().cast("array<string>")
        return (
            self.lifetimes.where(F.col("ended_at").isNull())
            .join(hidden, list(MESSAGE), "left")
            .withColumn("hidden_from", F.coalesce("hidden_from", empty))
        )

    @cached_property
    def unfinished(self) -> DataFrame:
        """Transactions without an outcome: `outcome` is PREPARED (in doubt) or OPEN."""
        undecided = self.operations.where(F.col("outcome").isin(PREPARED, OPEN))
        is_add = F.col("record_type") == "add_message"
        return undecided.groupBy("directory", "transaction", "outcome").agg(
            F.count_if(is_add).alias("sent"),
            F.count_if(~is_add).alias("acknowledged"),
            F.array_sort(F.array_union(F.collect_set("file"), F.collect_set("prepared_in"))).alias("files"),
            F.min("position").alias("first_position"),
            F.min("time").alias("first_time"),
            F.slice(F.array_sort(F.collect_list(F.struct("position", "message_id"))), 1, 3).alias("first"),
        )

    @cached_property
    def subscriptions(self) -> DataFrame:
        """Durable subscriptions that exist, with how much they have `pending` and since when."""
        return _subscriptions(self)

    @cached_property
    def end(self) -> DataFrame:
        """One row, `end_time`: the latest time that the journal knows."""
        return self.records.agg(F.max("time").alias("end_time"))

    @cached_property
    def names(self) -> StoreNames:
        """Display names of the journals and of their destinations."""
        rows = self.records.select("directory").distinct().orderBy("directory").collect()
        return StoreNames(row.directory for row in rows)

    def once(self, name: str, make: Callable[[], DataFrame]) -> DataFrame:
        """Return a table that several jobs share, made at the first call with that name, and kept."""
        if name not in self._shared:
            self._shared[name] = self._keep(make())
        return self._shared[name]

    def _keep(self, table: DataFrame) -> DataFrame:
        kept = table.persist(StorageLevel.MEMORY_AND_DISK)
        self._kept.append(kept)
        return kept


def history_of(spark: SparkSession, source: "Source | History") -> History:
    """Return the history of a source; one that is given already is returned as it is."""
    return source if isinstance(source, History) else History(spark, source)


# ---------------------------------------------------------------- records


def _carried(records: DataFrame) -> DataFrame:
    """Return per data file the latest time in the files before it."""
    files = records.groupBy("directory", "file").agg(F.max("time").alias("latest"))
    before = Window.partitionBy("directory").orderBy("file").rowsBetween(Window.unboundedPreceding, -1)
    return files.select("directory", "file", F.max("latest").over(before).alias("carried"))


def _filled(records: DataFrame, carried: DataFrame) -> DataFrame:
    """Fill times at the beginning of files with those of the files before."""
    is_carried = F.col("time").isNull() & F.col("carried").isNotNull()
    return (
        records.join(F.broadcast(carried), ["directory", "file"], "left")
        .withColumn("time_source", F.when(is_carried, "estimate").otherwise(F.col("time_source")))
        .withColumn("time", F.coalesce("time", "carried"))
        .drop("carried")
    )


# ---------------------------------------------------------------- transactions


def _operations(records: DataFrame) -> DataFrame:
    kinds = [*_MESSAGE_KINDS, *_ENDS, "prepare"]
    compacted = (
        records.where(F.col("record_type") == "rewritten_data_file")
        .select("directory", "file", F.lit(True).alias("in_copy"))
        .distinct()
    )
    has_id = F.col("message_id").isNotNull() | ~F.col("record_type").isin(*_MESSAGE_KINDS)
    narrow = records.where(F.col("record_type").isin(kinds) & has_id)  # a record without its id is damaged
    alone = (
        narrow.where(F.col("transaction").isNull())
        .withColumn("outcome", F.lit(COMMITTED))
        .withColumn("at", F.col("position"))
        .withColumn("at_time", F.col("time"))
        .withColumn("copied", F.lit(False))
        .withColumn("prepared_in", F.lit(None).cast("int"))
        .withColumn("ended_in", F.lit(None).cast("int"))
    )
    grouped = (
        narrow.where(F.col("transaction").isNotNull())
        .join(F.broadcast(compacted), ["directory", "file"], "left")
        .withColumn("in_copy", F.coalesce("in_copy", F.lit(False)))
    )
    return alone.unionByName(_decided(grouped))


def _decided(grouped: DataFrame) -> DataFrame:
    """Give every operation in a transaction its outcome: the next one behind it, as ids may be used again."""
    order = Window.partitionBy("directory", "transaction").orderBy("position")
    behind, before = order.rowsBetween(1, Window.unboundedFollowing), order.rowsBetween(Window.unboundedPreceding, -1)
    kind = F.col("record_type")
    end = F.when(kind.isin(*_ENDS), F.struct("record_type", "position", "time", "in_copy"))
    prepare = F.when((kind == "prepare") & F.col("transaction").startswith("XID:"), F.col("position"))
    decided = (
        grouped.withColumn("end", F.first(end, ignorenulls=True).over(behind))
        .withColumn("prepared", F.first(prepare, ignorenulls=True).over(behind))
        .withColumn("was_committed", F.max(kind == "commit").over(before))
        .where(kind.isin(*_MESSAGE_KINDS))
    )
    is_late = F.col("in_copy") & F.coalesce("was_committed", F.lit(False)) & (kind == "remove_message")
    ended = F.col("end.record_type")
    is_prepared = F.col("prepared") < F.coalesce("end.position", F.lit(_BEYOND))
    outcome = (
        F.when(is_late | (ended == "commit"), COMMITTED)
        .when(ended == "rollback", ROLLED_BACK)
        .when(is_prepared, PREPARED)
        .otherwise(OPEN)
    )
    takes_effect = F.col("outcome") == COMMITTED
    return (
        decided.withColumn("outcome", outcome)
        .withColumn("at", F.when(is_late, F.col("position")).when(takes_effect, F.col("end.position")))
        .withColumn("at_time", F.when(is_late, F.col("time")).when(takes_effect, F.col("end.time")))
        .withColumn("copied", ~is_late & takes_effect & F.coalesce("end.in_copy", F.lit(False)))
        .withColumn("prepared_in", F.when(~is_late & is_prepared, file_of("prepared")))
        .withColumn("ended_in", F.when(~is_late, file_of("end.position")))
        .drop("end", "prepared", "was_committed", "in_copy")
    )


# ---------------------------------------------------------------- subscriptions


def _subscriptions(history: History) -> DataFrame:
    latest = Window.partitionBy(*DESTINATION, "subscription").orderBy(F.desc("position"))
    is_removal = F.col("record_type") == "remove_destination"
    own = history.records.where(F.col("record_type").isin(*_DESTINATION_KINDS))
    removed = own.where(is_removal).groupBy(*DESTINATION).agg(F.max("position").alias("removed"))
    existing = (
        own.where(~is_removal)
        .withColumn("rank", F.row_number().over(latest))
        .where((F.col("rank") == 1) & (F.col("record_type") == "subscribe"))
        .join(F.broadcast(removed), list(DESTINATION), "left")
        .where(F.col("position") > F.coalesce("removed", F.lit(-1)))
        .select(*DESTINATION, "subscription", "selector", F.col("time").alias("subscribed_time"))
    )
    pending = (
        history.live.select(
            *DESTINATION, F.explode("pending").alias("subscription"), "hidden_from", "size", "added_time"
        )
        .groupBy(*DESTINATION, "subscription")
        .agg(
            F.count_if(~F.array_contains("hidden_from", F.col("subscription"))).alias("pending"),
            F.count_if(F.array_contains("hidden_from", F.col("subscription"))).alias("hidden"),
            F.sum("size").alias("bytes"),
            F.min("added_time").alias("oldest_time"),
        )
    )
    keys = [*DESTINATION, "subscription"]
    return existing.join(pending, keys, "left").na.fill(0, ["pending", "hidden", "bytes"]).orderBy(F.desc("pending"))


# ---------------------------------------------------------------- messages


def _event(kind: Column, at: str, at_time: str, special: str | Column) -> Column:
    """Build an `RecordEvent`, field by field in its order."""
    return F.struct(
        F.col(at).alias("at"),
        F.col("position").alias("pos"),
        kind.alias("kind"),
        F.col("size").cast("int").alias("size"),
        F.unix_millis(at_time).alias("time"),
        F.col("subscription"),
        (F.col(special) if isinstance(special, str) else special).alias("special"),
    )


def _destination_events(records: DataFrame) -> DataFrame:
    kind = _renamed(_DESTINATION_KINDS)
    event = _event(kind, "position", "time", F.coalesce("retroactive", F.lit(False)))
    return (
        records.where(F.col("record_type").isin(*_DESTINATION_KINDS))
        .groupBy(*DESTINATION)
        .agg(F.array_sort(F.collect_list(event)).alias("around"))
    )


def _renamed(kinds: dict[str, str]) -> Column:
    return F.coalesce(*(F.when(F.col("record_type") == name, kind) for name, kind in kinds.items()))


_LIFETIME = (
    pa.field("added_at", pa.int64()),
    pa.field("added_pos", pa.int64()),
    pa.field("location", pa.int64()),
    pa.field("size", pa.int32()),
    pa.field("added_ms", pa.int64()),
    pa.field("ended_at", pa.int64()),
    pa.field("ended_pos", pa.int64()),
    pa.field("ended_ms", pa.int64()),
    pa.field("ended_by", pa.string()),
    pa.field("pending", pa.list_(pa.string())),
    pa.field("superseded", pa.list_(pa.int32())),
    pa.field("voided", pa.list_(pa.list_(pa.int32()))),
    pa.field("counted", pa.list_(pa.list_(pa.int64()))),
)
_LIFETIMES = pa.schema([*(pa.field(name, pa.string()) for name in MESSAGE), *_LIFETIME])


def _lifetimes(operations: DataFrame, around: DataFrame) -> DataFrame:
    happens = F.col("outcome") == COMMITTED
    effect = F.when(happens, _event(_renamed(_MESSAGE_KINDS), "at", "at_time", "copied"))
    is_met = (F.col("record_type") == "remove_message") & (~happens | (F.col("at") != F.col("position")))
    met = F.when(is_met, _event(F.lit(MET), "position", "time", F.lit(False)))
    own = operations.select(*MESSAGE, F.explode(F.array_compact(F.array(effect, met))).alias("event"))
    messages = own.groupBy(*MESSAGE).agg(F.collect_list("event").alias("own"))
    return (
        messages.join(F.broadcast(around), list(DESTINATION), "left")
        .mapInArrow(_replayed, from_arrow_schema(_LIFETIMES))
        .withColumn("added_time", F.timestamp_millis("added_ms"))
        .withColumn("ended_time", F.timestamp_millis("ended_ms"))
    )


def _replayed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Replay messages; runs in a worker."""
    for batch in batches:
        names = [batch.column(name).to_pylist() for name in MESSAGE]
        own, around = (_events(batch.column(name)) for name in ("own", "around"))
        rows: list[list[Any]] = []
        for key, events, others in zip(zip(*names, strict=True), own, around, strict=True):
            for lifetime in replay(events, others, is_topic=key[1] == "topic"):
                rows.append([*key, *_fields(lifetime)])
        columns = [
            pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), _LIFETIMES, strict=True)
        ]
        yield (
            pa.RecordBatch.from_arrays(columns, schema=_LIFETIMES) if rows else _LIFETIMES.empty_table().to_batches()[0]
        )


def _events(column: Any) -> list[list[RecordEvent]]:
    """Return each message's events; going through flat columns spares a dictionary per event."""
    fields = column.flatten().flatten()
    events = list(map(RecordEvent._make, zip(*(field.to_pylist() for field in fields), strict=True)))
    found: list[list[RecordEvent]] = []
    start = 0
    for length in pc.list_value_length(column).to_pylist():
        end = start + (length or 0)
        found.append(events[start:end])
        start = end
    return found


def _fields(lifetime: Lifetime) -> tuple[Any, ...]:
    return (
        lifetime.added_at,
        lifetime.added_pos,
        lifetime.location,
        lifetime.size,
        lifetime.added_time,
        lifetime.ended_at,
        lifetime.ended_pos,
        lifetime.ended_time,
        lifetime.ended_by,
        sorted(lifetime.pending),
        sorted(lifetime.superseded),
        lifetime.voided,
        lifetime.counted,
    )
