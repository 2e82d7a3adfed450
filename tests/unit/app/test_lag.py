"""The distance of a standby from the end of its master's journal."""

from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.app.lag import lag_bytes, lag_seconds, sizes_in
from pybroker.broker.domain.role import Role
from pybroker.store.members import Followed, MemberRecord, PublishedEnd

SIZES = {1: 1_000, 2: 2_000, 3: 3_000, 4: 4_000}


def followed(file_id: int, offset: int, behind_ms: int = 0) -> Followed:
    return Followed(file_id=file_id, offset=offset, at_ms=9_500, messages=0, behind_ms=behind_ms)


@pytest.mark.parametrize(
    ("position", "end", "expected"),
    [
        ((2, 500), (2, 500), 0),
        ((2, 500), (2, 700), 200),
        ((2, 700), (2, 500), 0),  # the end is that of an older entry
        ((3, 0), (2, 500), 0),
        ((1, 400), (2, 300), 600 + 300),
        ((1, 400), (4, 300), 600 + 2_000 + 3_000 + 300),
        ((1, 1_000), (2, 0), 0),
        ((7, 10), (9, 30), 30),  # files that are gone
        ((0, 0), (2, 300), 1_000 + 300),  # nothing read yet
    ],
)
def test_lag_in_bytes_counts_over_files(position: tuple[int, int], end: tuple[int, int], expected: int) -> None:
    found = lag_bytes(followed(*position), PublishedEnd(file_id=end[0], offset=end[1]), lambda each: SIZES.get(each, 0))
    assert found == expected


@pytest.mark.parametrize(
    ("position", "expected"), [(None, None), (followed(1, 1), 0.5), (followed(1, 1, behind_ms=7_000), 7.0)]
)
def test_lag_in_seconds_is_by_the_clock_of_the_standby(position: Followed | None, expected: float | None) -> None:
    times: dict[str, Any] = {"since_ms": 0, "started_ms": 0, "updated_ms": 10_000}
    member = MemberRecord(name="b", role=Role.STANDBY, pid=1, host="h", version="1", followed=position, **times)
    assert lag_seconds(member) == expected


def test_sizes_are_those_of_the_data_files(tmp_path: Path) -> None:
    (tmp_path / "db-3.log").write_bytes(bytes(77))
    assert [sizes_in(tmp_path)(file_id) for file_id in (3, 4)] == [77, 0]
