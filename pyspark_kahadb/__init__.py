"""The name under which Spark finds this source by itself: `spark.read.format("kahadb")`.

Spark looks for packages whose name begins with `pyspark_` and takes their `DefaultSource`; so where this package is
installed, on the driver and on the executors, there is nothing to register.
"""

import os
import sys
from typing import Final

from pyspark.sql import SparkSession

from pybroker.spark_jobs.source import KahaDBSource, PushdownSource

PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
"""Without it Spark refuses a source that can take filters over, so by itself this one does not say that it can."""

DefaultSource = KahaDBSource

__all__ = ["DefaultSource", "register"]


def register(spark: SparkSession) -> None:
    """Make a session hand its filters over to the source: on data file, record type and destination.

    Also for where Spark does not find the package by itself: after `--py-files`, and where a local session was started
    by an environment's own interpreter, while Spark's workers would run the first `python3` on the PATH. Unless
    `PYSPARK_PYTHON` says otherwise, a local session's workers run this interpreter from here on.
    """
    context = spark.sparkContext
    if "PYSPARK_PYTHON" not in os.environ and (context.master or "").startswith("local"):
        context.pythonExec = sys.executable
    spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(PushdownSource)
