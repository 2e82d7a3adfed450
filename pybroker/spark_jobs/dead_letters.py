"""Messages that came to dead letter queues: origin, cause, count, and poison messages.

The cause is what the broker wrote into the message (`dlqDeliveryFailureCause`), or else the consumer's reason when it
rejected it (ActiveMQ records such acknowledgements). Numbers in causes are replaced by `#`, so that equal causes count
as one.

Ordinary redeliveries are not journalled. What is: messages that came to a dead letter queue, again and again
perhaps (`poison`), and new versions of messages from an ActiveMQ with `persistJMSRedelivered` (`redelivered`).
"""

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pybroker.spark_jobs.cli import run
from pybroker.spark_jobs.history import DESTINATION, MESSAGE, History, Source, Tables, full_name, history_of
from pybroker.spark_jobs.letters import DEAD_LETTER_NAMES, dead

_NUMBERS: Final = r"[0-9]+"
_CAUSE_LENGTH: Final = 200


def dead_letters(spark: SparkSession, source: Source | History, *, names: str = DEAD_LETTER_NAMES) -> Tables:
    """Return `causes`, `poison`, `redelivered` and the `messages` themselves.

    Args:
        spark: the session.
        source: a journal.
        names: a regular expression for the names of dead letter queues.
    """
    history = history_of(spark, source)
    messages = _messages(history, names)
    return {
        "causes": _causes(messages),
        "poison": _poison(messages),
        "redelivered": _redelivered(history),
        "messages": messages,
    }


def _messages(history: History, names: str) -> DataFrame:
    return (
        dead(history, names)
        .join(_rejections(history), ["directory", "message_id"], "left")
        .select(
            *MESSAGE,
            F.col("original_destination").alias("came_from"),
            F.coalesce("recorded_cause", "ack_cause", F.lit("not recorded")).alias("cause"),
            F.col("added_time").alias("time"),
            "timestamp",
            "redelivery_counter",
            "message_type",
            "body_size",
            F.col("ended_at").isNull().alias("still_there"),
            "location",
        )
        .orderBy("location")
    )


def _rejections(history: History) -> DataFrame:
    """Return consumers' reasons for rejecting messages, the latest of each."""
    rejected = history.effects.where((F.col("ack_type") == "poison") & F.col("ack_cause").isNotNull())
    return rejected.groupBy("directory", "message_id").agg(F.max_by("ack_cause", "at").alias("ack_cause"))


def _causes(messages: DataFrame) -> DataFrame:
    cause = F.regexp_replace(F.substring("cause", 1, _CAUSE_LENGTH), _NUMBERS, "#")
    return (
        messages.groupBy(*DESTINATION, "came_from", cause.alias("cause"))
        .agg(
            F.count("*").alias("messages"),
            F.count_if("still_there").alias("still_there"),
            F.max("redelivery_counter").alias("most_redeliveries"),
            F.min("time").alias("first_time"),
            F.max("time").alias("last_time"),
            F.max_by("message_id", "location").alias("latest_id"),
        )
        .orderBy(F.desc("messages"), "cause")
    )


def _poison(messages: DataFrame) -> DataFrame:
    """Return messages that died more than once: moved back from a dead letter queue, and found unusable again."""
    return (
        messages.groupBy("directory", "message_id")
        .agg(
            F.count("*").alias("times"),
            F.array_sort(F.collect_set(full_name())).alias("dead_letter_queues"),
            F.first("came_from", ignorenulls=True).alias("came_from"),
            F.max_by("cause", "location").alias("latest_cause"),
            F.max("time").alias("last_time"),
        )
        .where(F.col("times") > 1)
        .orderBy(F.desc("times"))
    )


def _redelivered(history: History) -> DataFrame:
    updates = history.effects.where(F.col("record_type") == "update_message")
    return (
        updates.groupBy(*DESTINATION)
        .agg(F.count_distinct("message_id").alias("messages"), F.count("*").alias("updates"))
        .orderBy(F.desc("updates"))
    )


if __name__ == "__main__":
    run(dead_letters)
