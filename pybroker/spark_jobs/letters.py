"""Dead letters as copies of messages that lay elsewhere: a report counts each message once, as what became of it.

A broker puts a copy with the same id, which names the original's destination and the cause, into a dead letter queue,
and removes the original. In the journal only the copy distinguishes that removal from a consumer's acknowledgement. So
a message that died and was not kept, because a policy drops it, counts as consumed.

Source: ActiveMQ 5.17, `RegionBroker.sendToDeadLetterQueue`.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pybroker.spark_jobs.history import MESSAGE, History, full_name, read
from pybroker.spark_jobs.lifetimes import ACKNOWLEDGED

DEAD_LETTER_NAMES: Final = r"(^|\.)DLQ(\.|$)"
"""A regular expression that finds `ActiveMQ.DLQ`, `DLQ.orders`, `orders.DLQ`."""
CAUSE_PROPERTY: Final = "dlqDeliveryFailureCause"
_EXPIRED: Final = "Message Expired"
"""Text in the dead letter cause of an expired message."""
_QUEUES_MAX: Final = 1000
"""Dead letter queues that are looked for by name; a journal with more is read whole."""

DETAILS: Final = (
    "directory",
    "position",
    "record_type",
    "destination",
    "message_type",
    "original_destination",
    "timestamp",
    "redelivery_counter",
    "body_size",
    "properties",
)
"""Columns that are read of the messages in dead letter queues."""

CONSUMED: Final = "consumed"
EXPIRED: Final = "expired"
DEAD_LETTERED: Final = "dead-lettered"


def dead(history: History, names: str = DEAD_LETTER_NAMES) -> DataFrame:
    """Return the lifetimes of messages in dead letter queues, with their `DETAILS`, and the cause in `recorded_cause`.

    Args:
        history: the journal. If it is a table that was read without these columns, nothing is found.
        names: a regular expression for the names of dead letter queues.
    """
    lifetimes = history.lifetimes.where(F.col("destination").rlike(names))
    if isinstance(history.source, DataFrame) and not set(DETAILS) <= set(history.source.columns):
        unknown = (F.lit(None).cast("string").alias(name) for name in (*DETAILS[4:-1], "recorded_cause"))
        return lifetimes.where(F.lit(False)).select("*", *unknown)
    queues = [row.destination for row in lifetimes.select("destination").distinct().limit(_QUEUES_MAX + 1).collect()]
    details = read(history.spark, history.source, DETAILS).where(
        F.col("record_type").isin("add_message", "update_message")
    )
    if len(queues) <= _QUEUES_MAX:
        details = details.where(F.col("destination").isin(queues))
    details = (
        details.withColumnRenamed("position", "location")
        .withColumn("recorded_cause", F.col("properties")[CAUSE_PROPERTY])
        .drop("record_type", "destination", "properties")
    )
    return lifetimes.join(details, ["directory", "location"], "left")


def letters(history: History) -> DataFrame:
    """Return the messages that a broker put into a dead letter queue, by `MESSAGE` and `added_pos`."""
    return history.once("letters", lambda: _letters(history))


def _letters(history: History) -> DataFrame:
    copied = dead(history).where(F.col("original_destination").isNotNull())
    is_expired = F.coalesce(F.col("recorded_cause").contains(_EXPIRED), F.lit(False))
    return copied.select(
        *MESSAGE,
        "added_pos",
        "added_at",
        F.col("original_destination").alias("came_from"),
        is_expired.alias("is_expired"),
    )


def fates(history: History) -> DataFrame:
    """Return the lifetimes of messages with their `fate`, and `is_letter`.

    `fate` is CONSUMED, EXPIRED or DEAD_LETTERED, or another of `Lifetime.ended_by`; null while it lifetimes.
    """
    return history.once("fates", lambda: _fates(history))


def _fates(history: History) -> DataFrame:
    copies = letters(history)
    of_each = copies.groupBy("directory", "message_id", F.col("came_from").alias("full_name")).agg(
        F.collect_list(F.struct("added_at", "is_expired")).alias("copies")
    )
    own = copies.select(*MESSAGE, "added_pos", F.lit(True).alias("is_letter"))
    lifetimes = (
        history.lifetimes.withColumn("full_name", full_name())
        .join(of_each, ["directory", "message_id", "full_name"], "left")
        .join(own, [*MESSAGE, "added_pos"], "left")
        .withColumn("is_letter", F.coalesce("is_letter", F.lit(False)))
    )
    return lifetimes.withColumn("fate", _fate()).drop("copies", "full_name")


def _fate() -> Column:
    """Return a message's end: a copy made while it was stored means that it was dead-lettered."""

    def is_of_this_life(copy: Column) -> Column:
        return copy["added_at"].between(F.col("added_at"), F.col("ended_at"))

    none = F.array().cast("array<struct<added_at:bigint,is_expired:boolean>>")
    own = F.filter(F.coalesce("copies", none), is_of_this_life)
    return (
        F.when(F.col("ended_at").isNull(), F.lit(None).cast("string"))
        .when(F.col("ended_by") != ACKNOWLEDGED, F.col("ended_by"))
        .when(F.size(own) == 0, CONSUMED)
        .when(F.exists(own, lambda copy: copy["is_expired"]), EXPIRED)
        .otherwise(DEAD_LETTERED)
    )
