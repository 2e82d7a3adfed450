"""Exports messages of a journal, all ever sent or the live ones, as Parquet or JSON lines.

Transactions are honoured: a message counts from its commit on, and one that was rolled back is not there. Each row has
the columns of the `kahadb` source and, in `message`, the whole message as it was stored, so that `replay` can send
it again with every type it had. `order` and `order_within` give the order in which the store numbered them.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import click
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pybroker.spark_jobs.cli import run
from pybroker.spark_jobs.history import History, Source, Tables, history_of, read
from pybroker.store.columns.schema import CORRUPT

EXPORTED: Final = (
    "directory",
    "position",
    "destination_type",
    "destination",
    "message_id",
    "message_type",
    "producer_id",
    "producer_sequence",
    "original_destination",
    "timestamp",
    "broker_in",
    "expiration",
    "priority",
    "persistent",
    "redelivery_counter",
    "correlation_id",
    "reply_to",
    "jms_type",
    "group_id",
    "group_sequence",
    "user_id",
    "body_size",
    "properties",
    "text",
    "body",
    "message",
    CORRUPT,
)
_MESSAGES: Final = ("add_message", "update_message")


def export(
    spark: SparkSession,
    source: Source | History,
    *,
    destinations: Sequence[str] = (),
    since: datetime | None = None,
    until: datetime | None = None,
    live: bool = False,
) -> Tables:
    """Return `messages`.

    Args:
        spark: the session.
        source: a journal.
        destinations: physical names; all of them by default.
        since: only those that came then or later; those whose time is not known are left out.
        until: only those that came before.
        live: only those that the store still holds.
    """
    history = history_of(spark, source)
    if live:
        chosen = history.live.select(
            "directory", F.col("location").alias("position"), "added_at", "added_pos", "added_time"
        )
    else:
        chosen = history.effects.where(F.col("record_type") == "add_message").select(
            "directory",
            "position",
            F.col("at").alias("added_at"),
            F.col("position").alias("added_pos"),
            F.col("at_time").alias("added_time"),
        )
    if since is not None:
        chosen = chosen.where(F.col("added_time") >= since)
    if until is not None:
        chosen = chosen.where(F.col("added_time") < until)
    messages = read(spark, history.source, (*EXPORTED, "record_type")).where(F.col("record_type").isin(*_MESSAGES))
    if destinations:
        messages = messages.where(F.col("destination").isin(*destinations))
    return {
        "messages": messages.drop("record_type")
        .join(chosen, ["directory", "position"])
        .withColumnsRenamed({"added_at": "order", "added_pos": "order_within", "added_time": "time"})
        .orderBy("directory", "destination_type", "destination", "order", "order_within")
    }


OPTIONS: Final = (
    click.option("--destination", "destinations", multiple=True, help="Physical name; may be given more than once."),
    click.option("--since", type=click.DateTime(), help="Only messages that came then or later."),
    click.option("--until", type=click.DateTime(), help="Only messages that came before."),
    click.option("--live", is_flag=True, help="Only messages that the store still holds."),
)

if __name__ == "__main__":
    run(export, OPTIONS)
