"""The Python and SQL of the pages about Spark, each block by itself, in a directory that has a store as `data`."""

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.journal_generator import generate
from tests.pages import Block, blocks
from tests.spark.conftest import QUICK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BLOCKS = [
    each
    for page in ("docs/spark.md", "docs/spark-setup.md", "docs/spark-jobs.md")
    for each in blocks(page)
    if each.language in ("python", "sql") and "import analyze\n" not in each.text
]
REMOTE = "s3a://archive/broker-a/kahadb"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("reader")
    generate(place / "data" / "kahadb", 20_000, seed=1)
    return place


@pytest.mark.parametrize("shown", BLOCKS, ids=lambda each: f"{each.page}: {BLOCKS.index(each)}")
def test_each_block_runs_by_itself(
    spark: "SparkSession", directory: Path, shown: Block, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql import SparkSession

    monkeypatch.chdir(directory)
    monkeypatch.setattr(sys, "argv", ["program.py"])
    session = spark.newSession()  # what a block registers or sets ends with it
    if shown.page == "docs/spark-jobs.md":
        for name, value in QUICK.items():
            session.conf.set(name, value)
    monkeypatch.setattr(SparkSession, "_instantiatedSession", session)
    variables = dict(os.environ)
    text = re.sub(r"""(["'])(data|journal-\w+)(?=\1|/)""", rf"\1{directory}/\2", shown.text)
    try:
        if shown.language == "sql":
            create, query = text.split(";\n")
            session.sql(create)
            assert session.sql(query).count() > 0
            return
        names: dict[str, object] = {}
        exec(compile(text.replace(REMOTE, f"{directory}/data/kahadb"), shown.page, "exec"), names)
        if (stream := names.get("query")) is not None:
            stream.processAllAvailable()  # type: ignore[attr-defined]
            stream.stop()  # type: ignore[attr-defined]
            assert list((directory / "journal-copy").glob("*.parquet"))
    finally:
        os.environ.clear()
        os.environ.update(variables)
