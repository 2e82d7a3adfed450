# mypy: disable-error-code="arg-type"
"""Scheduled messages that lie elsewhere than where this broker reads them."""

import logging
from pathlib import Path

import pytest

from pybroker.broker.app import schedulers
from pybroker.broker.app.config import Config, load
from pybroker.broker.app.layout import layout
from pybroker.broker.domain.errors import ConfigError
from pybroker.store.journal.commands import AddScheduledJob, RemoveScheduledJob, encode
from pybroker.store.journal.format import EOF_MARKER, encode_batch, encode_record


def fill(directory: Path, *, jobs: int = 1, done: int = 0) -> Path:
    """Write a scheduler's journal with jobs, of which the first are done."""
    made = [AddScheduledJob("JMS", f"ID:{each}", 0, "", 1000, 0, 0, b"x", 1000) for each in range(jobs)]
    ended = [RemoveScheduledJob("JMS", f"ID:{each}", -1) for each in range(done)]
    directory.mkdir(parents=True)
    records = [encode_record(encode(each)) for each in (*made, *ended)]
    (directory / "db-1.log").write_bytes(encode_batch(records) + EOF_MARKER)
    return directory


def warnings(caplog: pytest.LogCaptureFixture, config: Config) -> list[str]:
    with caplog.at_level(logging.WARNING):
        schedulers.warn(config)
    return caplog.messages


@pytest.mark.parametrize("place", ["localhost/scheduler", "data/localhost/scheduler"])
def test_scheduler_of_a_broker_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture, place: str) -> None:
    elsewhere = fill(tmp_path / place, jobs=3, done=1)
    (line,) = warnings(caplog, Config(store=str(tmp_path)))
    assert line.startswith(f"2 scheduled messages in {elsewhere}: not served")
    assert f'set scheduler_store = "{elsewhere}"' in line


def test_scheduler_beside_a_bare_journal_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    journal = tmp_path / "broker" / "KahaDB"
    journal.mkdir(parents=True)
    (journal / "db-1.log").touch()
    elsewhere = fill(tmp_path / "broker" / "scheduler")
    (line,) = warnings(caplog, Config(store=str(journal)))
    assert f"1 scheduled message in {elsewhere}: not served" in line


def test_own_and_done_jobs_are_not_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill(tmp_path / "scheduler")
    fill(tmp_path / "localhost" / "scheduler", jobs=2, done=2)
    assert warnings(caplog, Config(store=str(tmp_path))) == []


def test_default_directory_is_named_once_another_is_set(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    own, other = fill(tmp_path / "scheduler"), fill(tmp_path / "localhost" / "scheduler")
    (tmp_path / "link").symlink_to(other)
    for chosen in (other, tmp_path / "link"):
        caplog.clear()
        (line,) = warnings(caplog, Config(store=str(tmp_path), scheduler_store=chosen))
        assert line.startswith(f"1 scheduled message in {own}: not served, because this broker's are in {chosen}")


def test_scheduler_that_is_off_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill(tmp_path / "scheduler")
    (line,) = warnings(caplog, Config(store=str(tmp_path), scheduler=False))
    assert line.endswith("the scheduler is off; set scheduler = true, on all members")


def test_damaged_scheduler_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = tmp_path / "localhost" / "scheduler"
    directory.mkdir(parents=True)
    (directory / "db-1.log").write_bytes(encode_batch([encode_record(b"\x63\x00")]) + EOF_MARKER)
    (line,) = warnings(caplog, Config(store=str(tmp_path)))
    assert line.startswith(f"{directory} may hold scheduled messages that this broker does not serve: ")


def test_scheduler_store_is_where_jobs_are(tmp_path: Path) -> None:
    assert layout(str(tmp_path)).scheduler == tmp_path / "scheduler"
    assert layout(str(tmp_path), tmp_path / "x").scheduler == tmp_path / "x"


def test_scheduler_store_needs_a_directory_store(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="scheduler_store goes with a store in a directory"):
        load(None, {"store": "memory:", "scheduler_store": str(tmp_path)})
