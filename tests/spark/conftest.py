"""One small Spark session for all tests here: starting one takes longer than most of what they do with it."""

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.default.parallelism": "2",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
}

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Tests are short: the first compiler tier and one collector thread are there soonest."""

QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""Settings of a session for the jobs: for few rows compiling their queries takes most of the time."""

TIMEOUT_SECONDS = 400
"""Starting Java and Spark takes a few seconds on an idle machine, and minutes on one that is busy with other things."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test here the time that a session may take to start."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """A session with two cores, for all tests; none may stop it or leave a setting changed."""
    require("java")
    sql = pytest.importorskip("pyspark.sql", reason="Spark is not installed; pip install 'pybroker[spark]'")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", f'--driver-java-options "{JAVA_OPTIONS}" pyspark-shell')
    builder = sql.SparkSession.builder.master("local[2]").appName("pybroker tests")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    builder = builder.config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
    with warnings.catch_warnings():
        # The JVM's output is a pipe that pyspark leaves to the garbage collector.
        warnings.filterwarnings("ignore", category=ResourceWarning)
        session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
