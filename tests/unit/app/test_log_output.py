"""A log that nobody reads stops nothing, and says what it left out once it is read again."""

import logging
import os
import sys
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from pybroker.broker.app import log_output, logs
from pybroker.broker.app.log_output import WAITING_BYTES_MAX, LogOutput


class Pipe(NamedTuple):
    """A pipe whose writer would wait for its reader once it is full."""

    reader: int
    writer: int

    def read(self) -> bytes:
        """Return what is in the pipe."""
        os.set_blocking(self.reader, False)
        found = b""
        try:
            while chunk := os.read(self.reader, 1 << 16):
                found += chunk
        except BlockingIOError:
            pass
        return found


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe(*os.pipe())
    yield made
    for descriptor in made:
        os.close(descriptor)


def test_lines_that_nobody_reads_wait_and_come_in_their_order(pipe: Pipe) -> None:
    output = LogOutput(pipe.writer)
    lines = [b"%05d %s\n" % (number, b"x" * 90) for number in range(2_000)]
    for line in lines:
        output.write(line)
    assert output.is_behind
    found = b""
    while output.is_behind:
        found += pipe.read()
        output.flush()
    assert found + pipe.read() == b"".join(lines)
    assert not output.left_out


def test_a_line_longer_than_the_pipe_is_written_as_it_is_read(pipe: Pipe) -> None:
    output = LogOutput(pipe.writer)
    line = os.urandom(300_000)
    output.write(line)
    found = pipe.read()
    while output.is_behind:
        output.flush()
        found += pipe.read()
    assert found == line


def test_lines_beyond_the_limit_are_counted(pipe: Pipe) -> None:
    output = LogOutput(pipe.writer)
    for _ in range(40):
        output.write(b"x" * (WAITING_BYTES_MAX // 20))
    assert 15 < output.left_out < 25


def test_the_end_waits_for_the_reader_but_not_for_long(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_output, "END_SECONDS", 0.02)
    output = LogOutput(pipe.writer)
    output.write(b"x" * 200_000)
    output.close()
    assert output.is_behind
    assert set(pipe.read()) == {ord("x")}


def test_without_a_reader_nothing_waits() -> None:
    reader, writer = os.pipe()
    output = LogOutput(writer)
    output.write(b"x" * 200_000)
    os.close(reader)
    output.write(b"y")
    assert (output.is_behind, output.left_out) == (False, 2)
    os.close(writer)


def test_lines_for_which_a_disk_has_no_space_are_counted() -> None:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    output = LogOutput(descriptor)
    for _ in range(3):
        output.write(b"x\n")
    assert (output.is_behind, output.left_out) == (False, 3)
    os.close(descriptor)


def test_the_log_says_how_many_lines_it_left_out(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    with open(pipe.writer, "w", encoding="utf-8", closefd=False) as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        logs.configure("info")
        try:
            for number in range(3_000):
                logging.getLogger("pybroker.store.x").info("line %d %s", number, "x" * 900)
            text = b""
            for _ in range(100):
                text += pipe.read()
                logs.report()
        finally:
            root.handlers[:] = before[0]
            root.setLevel(before[1])
    lines = text.decode().splitlines()
    [told] = [line for line in lines if "left out here, as the log could not be written: " in line]
    assert lines[-1] == told
    count = int(told.rpartition(": ")[2].removesuffix(" lines").replace(",", ""))
    assert count + len(lines) - 1 == 3_000
    assert "line 0 " in lines[0]
