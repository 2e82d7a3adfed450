"""The Spark session that a job runs in: one that is soon there, where there is little to read."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, cast

from pyspark.sql import SparkSession

from pybroker.spark_jobs.java import prepare
from pybroker.store.columns.files import journal_of

LOCAL_MEMORY: Final = "2g"
"""Java's memory in a local session, unless Spark's settings override it."""
SMALL_BYTES: Final = 128 * 1024 * 1024
"""Journals up to here take less time to read than Spark takes to compile what reads them."""

_QUICK: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}
"""Settings for small journals: interpreted plans, Java's first compiler only, one partition."""


def session(name: str, source: object = None) -> SparkSession:
    """Return the session: of `spark-submit` if it started us, else a local one on all cores.

    Args:
        name: of the application.
        source: what it is for; directories with little in them get a session that is soon there.
    """
    builder = SparkSession.builder.appName(f"pybroker {name}")
    if "SPARK_ENV_LOADED" not in os.environ:
        prepare()
        builder = (
            builder.master("local[*]")
            .config("spark.driver.memory", LOCAL_MEMORY)
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.sql.shuffle.partitions", str(2 * (os.cpu_count() or 1)))
        )
        if is_small(source):
            for key, value in _QUICK.items():
                builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def is_small(source: object) -> bool:
    """Return True for directories whose data files are small in all."""
    one = isinstance(source, str) or not isinstance(source, Sequence)
    listed: list[object] = [source] if one else list(cast("Sequence[object]", source))
    paths = [Path(each) for each in listed if isinstance(each, str | Path)]
    size = sum(file.stat().st_size for path in paths for file in journal_of(path).glob("*.log"))
    return 0 < size <= SMALL_BYTES
