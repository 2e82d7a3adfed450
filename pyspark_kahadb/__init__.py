"""The name under which Spark finds this source by itself: `spark.read.format("kahadb")`.

Spark looks for packages whose name begins with `pyspark_` and takes their `DefaultSource`; so where this package is
installed, on the driver and on the executors, there is nothing to register.
"""

from typing import Final

from pyspark.sql import SparkSession

from pybroker.spark_jobs.source import KahaDBSource, PushdownSource

PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
"""Without it Spark refuses a source that can take filters over, so by itself this one does not say that it can."""

DefaultSource = KahaDBSource

__all__ = ["DefaultSource", "register"]


def register(spark: SparkSession) -> None:
    """Make a session hand its filters over to the source: on data file, record type and destination.

    Also for where Spark does not find the package by itself, as after `--py-files`.
    """
    spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(PushdownSource)
