"""The data source `kahadb` as a stream: every record once, whatever becomes of the stream and of the data files."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pybroker.store.journal.commands import Trace, encode
from pybroker.store.journal.format import EOF_MARKER, encode_batch, encode_record
from tests.unit.columns.agreement import write_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def batch(*texts: str) -> bytes:
    return encode_batch([encode_record(encode(Trace(text))) for text in texts])


def follow(spark: "SparkSession", folder: Path, **options: Any) -> None:
    """Read what there is by now, from the checkpoint on, and put it with what was read before."""
    rows = spark.readStream.format("kahadb").schema("file int, trace string").options(**options).load(str(folder / "j"))
    query = (
        rows.writeStream.format("parquet")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(100)


def traces(spark: "SparkSession", folder: Path) -> Counter[str]:
    return Counter(row.trace for row in spark.read.parquet(str(folder / "rows")).collect())


def test_every_record_is_read_once_whatever_happens_to_the_files(spark: "SparkSession", tmp_path: Path) -> None:
    """One story, as every start of a query costs seconds."""
    journal = tmp_path / "j"
    journal.mkdir()
    first, second = journal / "db-1.log", journal / "db-2.log"
    written = [batch(f"a{number}", f"b{number}") for number in range(20)]
    first.write_bytes(b"".join(written[:10]) + EOF_MARKER)
    expected = Counter(f"{letter}{number}" for number in range(10) for letter in "ab")

    follow(spark, tmp_path, maxBytesPerTrigger=5 * len(written[0]))
    assert traces(spark, tmp_path) == expected
    batches = len(list((tmp_path / "checkpoint" / "commits").glob("[0-9]*")))
    assert batches == 2, "micro-batches are bounded"

    # The file grows, another one begins, and its last batch is not whole yet.
    first.write_bytes(b"".join(written[:12]) + EOF_MARKER)
    second.write_bytes(b"".join(written[12:15]) + written[15][:-7])
    follow(spark, tmp_path)
    expected += Counter(f"{letter}{number}" for number in range(10, 15) for letter in "ab")
    assert traces(spark, tmp_path) == expected

    # The first file, read by now, is collected; the batch becomes whole.
    first.unlink()
    second.write_bytes(b"".join(written[12:18]) + EOF_MARKER)
    follow(spark, tmp_path)
    expected += Counter(f"{letter}{number}" for number in range(15, 18) for letter in "ab")
    assert traces(spark, tmp_path) == expected

    # A data file comes and goes while no stream reads.
    write_file(journal, [[encode(Trace("late"))]], 4)
    with pytest.raises(Exception, match=r"db-3\.log: collected before all of it was read"):
        follow(spark, tmp_path)
    follow(spark, tmp_path, failOnDataLoss=False)
    assert traces(spark, tmp_path) == expected + Counter(["late"])
