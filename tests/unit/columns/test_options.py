"""Options of the data source: checked when they are given, with a hint at what was meant."""

import pytest

from pybroker.broker.domain.errors import ConfigError
from pybroker.spark_jobs.options import Options, parse
from pybroker.store.columns.schema import DEFAULT_COLUMNS
from pybroker.store.columns.table import Mode
from pybroker.store.journal.format import Location


def test_a_path_is_enough() -> None:
    assert parse({"path": "/store"}) == Options(directories=("/store",))
    assert Options(directories=()).columns == DEFAULT_COLUMNS


def test_names_come_in_any_case_and_values_as_texts() -> None:
    chosen = parse(
        {
            "paths": '["/one", "file:///two"]',
            "COLUMNS": " file, offset ,file",
            "partitionbytes": "8m",
            "Mode": "failfast",
            "maxBytesPerTrigger": "1g",
            "startingPosition": "7:28",
            "failOnDataLoss": "FALSE",
            "archive": "true",
        },
        pushdown=True,
    )
    assert chosen == Options(
        directories=("/one", "/two"),
        columns=("file", "offset"),
        partition_bytes=8 * 1024 * 1024,
        mode=Mode.FAILFAST,
        max_bytes_per_trigger=1024**3,
        starting_position=Location(7, 28),
        fail_on_data_loss=False,
        archive=True,
        pushdown=True,
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, 'path: no directory is given; write .load("/path/to/data")'),
        ({"path": "s3a://bucket/kahadb"}, "path: .* mount it"),
        ({"path": "/s", "partitionByte": "1"}, "there is no such option; did you mean partitionBytes?"),
        ({"path": "/s", "whatever": "1"}, "there is no such option; there are path, "),
        ({"path": "/s", "columns": "offsetx"}, "there is no column offsetx; did you mean offset?"),
        ({"path": "/s", "columns": ","}, "no column is named"),
        ({"path": "/s", "archive": "yes"}, "archive: 'yes' is neither true nor false"),
        ({"path": "/s", "partitionBytes": "0"}, "'0' is no number of bytes above 0"),
        ({"path": "/s", "partitionBytes": "many"}, "'many' is no number of bytes"),
        ({"path": "/s", "mode": "PERMISIVE"}, "did you mean PERMISSIVE?"),
        ({"path": "/s", "startingPosition": "7"}, "'7' is no position; write earliest, latest"),
    ],
)
def test_what_means_nothing_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("?", r"\?").replace("(", r"\(").replace(")", r"\)")):
        parse(options)
