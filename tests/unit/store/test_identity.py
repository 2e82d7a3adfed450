"""The broker's id beside its journal: made once, never lost by a crash, and no reason not to serve."""

import errno
import json
import logging

import pytest

from pybroker.broker.domain.errors import LockNotHeld
from pybroker.broker.domain.identity import BrokerIdentity
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.identity import FILE_NAME, keep_identity
from tests.conformance.conftest import SMALL, JournalLives


def opened(directory, broker_id, name="localhost"):
    """Return a journal's next run, and the id its recovery returns."""
    lives = JournalLives(directory)
    lives.identity = BrokerIdentity(broker_id, name)
    return lives, lives.open().broker_id


def no_fence():
    """Find the lock in our hands."""


@pytest.mark.parametrize("end", ["close", "crash"])
def test_each_life_of_a_journal_has_the_first_ones_id(tmp_path, end):
    for number in range(3):
        lives, broker_id = opened(tmp_path, f"ID:{number}")
        assert broker_id == "ID:0"
        getattr(lives, end)()


def test_a_store_without_an_identity_records_none(tmp_path):
    lives = JournalLives(tmp_path)
    assert lives.open().broker_id == ""
    lives.close()
    assert not (tmp_path / FILE_NAME).exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"broker_id": "ID:0", "broker_n',
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"broker_id": 7, "broker_name": "b"}',
        b'{"broker_id": "", "broker_name": "b"}',
        b'{"broker_id": "ID:\\n0", "broker_name": "b"}',
        json.dumps({"broker_id": "ID:0", "broker_name": "b" * 5000}).encode(),
        b"[" * 4000,
    ],
)
def test_a_file_of_no_use_is_made_again_and_logged(tmp_path, caplog, content):
    path = tmp_path / FILE_NAME
    path.write_bytes(content)
    files = JournalFiles(tmp_path)
    assert keep_identity(files, BrokerIdentity("ID:1", "b"), no_fence) == "ID:1"
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert f"{path} cannot be used and is made again" in caplog.text
    caplog.clear()
    assert keep_identity(files, BrokerIdentity("ID:2", "b"), no_fence) == "ID:1"
    assert not caplog.records


def test_a_file_is_not_replaced_without_the_lock(tmp_path):
    def lost():
        raise LockNotHeld("taken")

    with pytest.raises(LockNotHeld):
        keep_identity(JournalFiles(tmp_path), BrokerIdentity("ID:1", "b"), lost)
    assert list(tmp_path.iterdir()) == []


class Full(JournalFiles):
    """Files on a disk that has space for the journal's own files only."""

    def put(self, path, content, fence=no_fence):
        if path.name == FILE_NAME:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().put(path, content, fence)


def test_a_full_disk_keeps_no_master_from_serving(tmp_path, caplog):
    lives = JournalLives(tmp_path, settings=SMALL, files=Full(tmp_path))
    lives.identity = BrokerIdentity("ID:1", "b")
    assert lives.open().broker_id == "ID:1"
    assert f"{tmp_path / FILE_NAME} cannot be written" in caplog.text
    lives.close()


def test_another_broker_name_is_logged_once_and_keeps_the_id(tmp_path, caplog):
    for number, name in enumerate(("a", "b", "b")):
        lives, broker_id = opened(tmp_path, f"ID:{number}", name)
        assert broker_id == "ID:0"
        lives.close()
    assert caplog.text.count("was called a and is called b now") == 1
    assert json.loads((tmp_path / FILE_NAME).read_bytes()) == {"broker_id": "ID:0", "broker_name": "b"}


def test_a_half_written_file_is_gone_after_the_next_start(tmp_path):
    unfinished = tmp_path / f"{FILE_NAME}.sealed"
    unfinished.write_bytes(b"{")
    lives, broker_id = opened(tmp_path, "ID:1")
    assert broker_id == "ID:1"
    assert not unfinished.exists()
    lives.close()
