"""Files are opened without waiting, and only regular ones."""

import os
from pathlib import Path

import pytest

from pybroker import regular


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    return path


def test_regular_file_and_link_to_it_are_read(file: Path) -> None:
    link = file.with_name("link")
    link.symlink_to(file)
    for path in (file, link):
        with open(path, "rb", opener=regular.opener) as stream:
            assert stream.read() == b"content"


def test_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="it is no regular file"):
        regular.descriptor(tmp_path / "pipe")


@pytest.mark.parametrize(("name", "problem"), [("/dev/zero", "it is no regular file"), ("/dev", "Is a directory")])
def test_device_and_directory_are_refused(name: str, problem: str) -> None:
    with pytest.raises(OSError, match=problem):
        regular.descriptor(name)


def test_missing_file_is_reported_as_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        regular.descriptor(tmp_path / "none")


def test_leased_file_is_waited_for(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    really_open = os.open

    def leased(path: str, flags: int) -> int:
        asked.append(flags)
        if flags & os.O_NONBLOCK:
            raise BlockingIOError
        return really_open(path, flags)

    monkeypatch.setattr(os, "open", leased)
    os.close(regular.descriptor(file))
    assert len(asked) == 2
