# mypy: disable-error-code="arg-type"
"""Limits of a stream's reading, and lost data; without a Spark session."""

import os
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.domain.errors import ConfigError
from pybroker.store.journal.commands import RewrittenDataFile, Trace, encode
from pybroker.store.journal.format import EOF_MARKER, data_file_name, encode_batch, encode_record
from tests.unit.columns.agreement import write_file

pytest.importorskip("pyspark", reason="Spark is not installed; pip install 'pybroker[spark]'")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

from pybroker.spark_jobs.options import parse
from pybroker.spark_jobs.source import KahaDBSource
from pybroker.spark_jobs.stream import QUIET_SECONDS, DataLoss, JournalStreamReader


def reader(folder: Path, **options: Any) -> JournalStreamReader:
    given = {"path": str(folder), "columns": "file,trace,_corrupt_record"} | {k: str(v) for k, v in options.items()}
    return JournalStreamReader(parse(given), KahaDBSource(given).schema())


def steps(stream: JournalStreamReader, start: Any, limit: int | None = None) -> tuple[list[list[str]], Any]:
    """Read until nothing is left; return the traces of each micro-batch, and the last offset."""
    found: list[list[str]] = []
    while True:
        end = stream.latestOffset(start, ReadAllAvailable() if limit is None else ReadMaxBytes(limit))
        if end == start:
            return found, end
        rows = [
            row for part in stream.partitions(start, end) for batch in stream.read(part) for row in batch.to_pylist()
        ]
        found.append([row["trace"] or row["_corrupt_record"] for row in rows])
        start = end


def batch(*traces: str) -> bytes:
    return encode_batch([encode_record(encode(Trace(trace))) for trace in traces])


def grow(folder: Path, file_id: int, *batches: bytes, marker: bytes = EOF_MARKER) -> None:
    path = folder / data_file_name(file_id)
    before = path.read_bytes().removesuffix(EOF_MARKER) if path.exists() else b""
    path.write_bytes(before + b"".join(batches) + marker)


def test_micro_batches_are_bounded_and_none_is_empty(tmp_path: Path) -> None:
    grow(tmp_path, 1, *(batch(str(number)) for number in range(5)))
    grow(tmp_path, 2, batch("5"), batch("6"))
    stream = reader(tmp_path)
    found, _ = steps(stream, stream.initialOffset(), limit=2 * len(batch("0")))
    assert found == [["0", "1"], ["2", "3"], ["4", "5"], ["6"]]
    assert [len(each) for each in steps(stream, stream.initialOffset(), limit=1)[0]] == [1] * 7


def test_an_end_that_is_not_whole_waits(tmp_path: Path) -> None:
    stream = reader(tmp_path)
    grow(tmp_path, 1, batch("a"), batch("b")[:-3], marker=b"")
    found, offset = steps(stream, stream.initialOffset())
    assert found == [["a"]]
    grow(tmp_path, 1, batch("b")[-3:], batch("c"))
    assert steps(stream, offset)[0] == [["b", "c"]]


def test_a_file_below_a_compacted_one_goes_on(tmp_path: Path) -> None:
    """An ActiveMQ copies acknowledgements into a file of the highest number, and goes on writing below it."""
    grow(tmp_path, 1, batch("a"))
    write_file(tmp_path, [[encode(RewrittenDataFile(1)), encode(Trace("copied"))]], 2)
    stream = reader(tmp_path)
    _, offset = steps(stream, stream.initialOffset())
    grow(tmp_path, 1, batch("b"))
    assert steps(stream, offset)[0] == [["b"]]


def test_damage_is_stepped_over_once_no_one_writes(tmp_path: Path) -> None:
    damaged = bytearray(batch("lost"))
    damaged[-1] ^= 1
    grow(tmp_path, 1, batch("a"), bytes(damaged), batch("b"))
    stream = reader(tmp_path)
    found, offset = steps(stream, stream.initialOffset())
    assert found == [["a"]]
    path = tmp_path / "db-1.log"
    os.utime(path, (0, path.stat().st_mtime - QUIET_SECONDS - 1))
    rest = ["a batch's checksum does not fit its bytes", "b"]
    assert steps(stream, offset)[0] == [rest]
    grow(tmp_path, 1)
    grow(tmp_path, 2, batch("c"))
    assert steps(stream, offset)[0] == [[*rest, "c"]]


def test_a_torn_end_of_a_finished_file_is_reported_once(tmp_path: Path) -> None:
    grow(tmp_path, 1, batch("a"), batch("b")[:-3], marker=b"")
    grow(tmp_path, 2, batch("c"))
    stream = reader(tmp_path)
    found, offset = steps(stream, stream.initialOffset())
    assert found == [["a", "the file ends inside a batch", "c"]]
    assert steps(stream, offset)[0] == []


@pytest.mark.parametrize(
    ("gone", "lost"),
    [
        ((1,), None),
        ((1, 2), None),
        ((3,), [3]),
        ((1, 2, 3), [3]),
    ],
)
def test_loss_is_a_file_that_was_not_read_to_its_end(tmp_path: Path, gone: tuple[int, ...], lost: Any) -> None:
    for file_id in (1, 2, 3):
        grow(tmp_path, file_id, batch(str(file_id)))
    stream = reader(tmp_path)
    _, offset = steps(stream, stream.initialOffset())
    grow(tmp_path, 4, batch("4"))
    for file_id in gone:
        (tmp_path / data_file_name(file_id)).unlink()
    if lost is None:
        assert steps(stream, offset)[0] == [["4"]]
        return
    with pytest.raises(DataLoss) as error:
        steps(stream, offset)
    assert error.value.file_ids == lost
    assert steps(reader(tmp_path, failOnDataLoss=False), offset)[0] == [["4"]]


def test_a_file_that_was_behind_or_never_seen_is_a_loss(tmp_path: Path) -> None:
    for file_id in (1, 2, 3):
        grow(tmp_path, file_id, batch(str(file_id)), batch("more"))
    stream = reader(tmp_path)
    offset = stream.latestOffset(stream.initialOffset(), ReadMaxBytes(1))
    (tmp_path / "db-2.log").unlink()
    with pytest.raises(DataLoss, match=r"db-2\.log: collected before"):
        stream.latestOffset(offset, ReadAllAvailable())


def test_a_file_that_goes_between_plan_and_reading_is_a_loss(tmp_path: Path) -> None:
    grow(tmp_path, 1, batch("a"))
    for fails in (True, False):
        grow(tmp_path, 1)
        stream = reader(tmp_path, failOnDataLoss=fails)
        start = stream.initialOffset()
        (partition,) = stream.partitions(start, stream.latestOffset(start, ReadAllAvailable()))
        (tmp_path / "db-1.log").rename(tmp_path / "kept")
        if fails:
            with pytest.raises(DataLoss):
                list(stream.read(partition))
        else:
            (rows,) = stream.read(partition)
            assert "gone" in rows.to_pylist()[0]["_corrupt_record"]
        (tmp_path / "kept").rename(tmp_path / "db-1.log")


def test_a_query_for_what_is_available_now_ends_there(tmp_path: Path) -> None:
    grow(tmp_path, 1, batch("a"), batch("b"))
    stream = reader(tmp_path)
    stream.prepareForTriggerAvailableNow()
    grow(tmp_path, 1, batch("c"))
    grow(tmp_path, 2, batch("d"))
    found, offset = steps(stream, stream.initialOffset(), limit=1)
    assert found == [["a"], ["b"]]
    assert steps(reader(tmp_path), offset)[0] == [["c", "d"]]


def test_stream_begins_at_the_given_offset(tmp_path: Path) -> None:
    grow(tmp_path, 1, batch("a"))
    grow(tmp_path, 2, batch("b"), batch("c"))
    stream = reader(tmp_path, startingPosition="latest")
    latest = stream.initialOffset()
    assert steps(stream, latest)[0] == []
    place = len(batch("b"))
    stream = reader(tmp_path, startingPosition=f"2:{place}")
    assert steps(stream, stream.initialOffset())[0] == [["c"]]
    for wrong in (f"2:{place + 1}", "3:0"):
        with pytest.raises(ConfigError, match="startingPosition"):
            reader(tmp_path, startingPosition=wrong).initialOffset()
    grow(tmp_path, 2, batch("d"))
    assert steps(stream, latest)[0] == [["d"]]
