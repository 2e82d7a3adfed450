"""A log file that is renamed, removed or truncated by others loses no line."""

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from pybroker.broker.app import logs
from pybroker.broker.app.log_file import LogFile
from pybroker.broker.domain.errors import ConfigError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "log").mkdir()
    return tmp_path / "log" / "pybroker.log"


@pytest.fixture
def log(path: Path) -> Iterator[LogFile]:
    made = LogFile(path)
    yield made
    made.close()


def test_line_after_a_rename_is_in_a_new_file(path: Path, log: LogFile) -> None:
    log.write(b"one\n")
    path.rename(path.with_suffix(".log.1"))
    log.write(b"two\n")
    log.write(b"three\n")
    assert path.with_suffix(".log.1").read_bytes() == b"one\n"
    assert path.read_bytes() == b"two\nthree\n"


def test_file_that_another_made_in_its_place_is_used(path: Path, log: LogFile) -> None:
    path.rename(path.with_suffix(".log.1"))
    path.write_bytes(b"")
    path.chmod(0o600)
    log.write(b"two\n")
    assert path.read_bytes() == b"two\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_line_after_a_removal_is_in_a_new_file(path: Path, log: LogFile) -> None:
    path.unlink()
    log.write(b"two\n")
    assert path.read_bytes() == b"two\n"
    assert stat.S_IMODE(path.stat().st_mode) & 0o137 == 0, "others may not read it"


def test_line_after_a_truncation_is_the_first(path: Path, log: LogFile) -> None:
    log.write(b"one\n")
    os.truncate(path, 0)
    log.write(b"two\n")
    assert path.read_bytes() == b"two\n", "without a gap of NULs"


def test_lines_of_a_former_run_stay(path: Path) -> None:
    path.write_bytes(b"former\n")
    log = LogFile(path)
    log.write(b"one\n")
    log.close()
    assert path.read_bytes() == b"former\none\n"


def test_file_without_a_directory_is_refused(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"pybroker\.log cannot be opened: No such file or directory"):
        LogFile(path.parent / "absent" / "pybroker.log")


def test_pipe_without_a_reader_is_refused_at_once(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(ConfigError, match="cannot be opened: No such device or address"):
        LogFile(path)


def test_file_that_cannot_be_opened_again_is_one_line(path: Path) -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    logs.configure("info", file=path)
    handler = root.handlers[0]
    try:
        path.parent.rename(path.parent.with_name("moved"))
        for number in range(4):
            logging.getLogger("pybroker.store.x").info("line %d", number)
        former = path.parent.with_name("moved") / path.name
        lines = former.read_text().splitlines()
        [warning] = [line for line in lines if "cannot be opened again" in line]
        assert warning.endswith(f"{path} cannot be opened again, and lines go on to the renamed file: "
                                "No such file or directory")  # fmt: skip
        assert len(lines) == 5
        path.parent.mkdir()
        logging.getLogger("pybroker.store.x").info("line 4")
        assert path.read_text().endswith("line 4\n")
        assert former.read_text().splitlines() == lines
    finally:
        root.handlers[:] = before[0]
        root.setLevel(before[1])
        handler.close()
        logs._handlers.clear()


def test_reason_of_the_end_is_in_the_file(path: Path) -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    logs.configure("error", file=path)
    handler = root.handlers[0]
    try:
        logs.record_end("the disk is gone")
        assert path.read_text().endswith(" CRITICAL logs: the disk is gone\n")
    finally:
        root.handlers[:] = before[0]
        root.setLevel(before[1])
        handler.close()
        logs._handlers.clear()
