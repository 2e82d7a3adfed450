"""A follower of a journal: what it believes, what it waits for, and when it begins again."""

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.domain.destination import topic
from pybroker.broker.domain.errors import JournalCorrupt, StoreUnavailable
from pybroker.broker.domain.openwire.objects import encode_subscription_info
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import LocalTransactionId
from pybroker.store.journal import replay as replaying
from pybroker.store.journal.commands import (
    AddMessage,
    Commit,
    RewrittenDataFile,
    Subscribe,
    Trace,
    decode,
)
from pybroker.store.journal.follower import Follower
from pybroker.store.journal.format import BATCH_HEADER_BYTES, EOF_MARKER, FILE_BYTES_MAX, Location, data_file_name
from pybroker.store.journal.malformed import UnknownCommand
from pybroker.store.journal.reader import CHECKSUM_BYTES, FIRST_WINDOW_BYTES
from tests.unit.store.states import ORDERS, add, append, batch, described, message_id, remove, replayed, write_file

SAMPLES = [
    "01-mixed",
    "02-consumed-gc",
    "03-durable",
    "04-localtx-kill9",
    "05-xa-indoubt-kill9",
    "06-priority",
    "07-large",
    "08-torn-tail",
    "10-corrupt-batch",
    "11-redelivered-updates",
]
STEPS_MAX = 1000


def caught_up(follower: Follower) -> Follower:
    """Let a follower read all there is."""
    for _ in range(STEPS_MAX):
        if follower.advance().is_at_end:
            return follower
    raise AssertionError("the follower never comes to an end")


def assert_agrees(follower: Follower) -> None:
    """Check that a follower that has read everything has the state of a replay."""
    assert described(caught_up(follower).state) == described(replayed(follower.directory)[0])


def waiting(follower: Follower) -> list[str]:
    """Return the ids of the queue's messages."""
    contents = follower.state.destinations.get(ORDERS)
    return [] if contents is None else list(contents.messages)


# ---------------------------------------------------------------- stores of a real ActiveMQ


@pytest.mark.parametrize("name", SAMPLES)
def test_a_captured_store_is_followed_to_what_a_replay_finds(sample: Callable[[str], Any], name: str) -> None:
    directory = sample(name).kahadb
    state, result = replayed(directory)
    follower = Follower(directory)
    found = follower.finish()
    assert described(follower.state) == described(state)
    assert (found.records, found.unfinished, found.closing_traces) == (
        result.records,
        result.unfinished,
        result.closing_traces,
    )
    assert (found.damages, found.torn_tails) == (result.damages, result.torn_tails)
    assert (found.last_file_id, found.end) == (result.last_file_id, result.end)


@pytest.mark.parametrize("name", ["01-mixed", "05-xa-indoubt-kill9", "02-consumed-gc"])
def test_a_store_is_followed_while_it_grows(sample: Callable[[str], Any], tmp_path: Path, name: str) -> None:
    source = sample(name).kahadb
    growing = tmp_path / "growing"
    growing.mkdir()
    follower = Follower(growing)
    for path in sorted(source.glob("db-*.log"), key=lambda each: int(each.stem.removeprefix("db-"))):
        content = path.read_bytes().rstrip(b"\0")
        for end in range(0, len(content), max(1, len(content) // 40)):
            (growing / path.name).write_bytes(content[:end])
            follower.advance(scan=bool(end % 2))
        (growing / path.name).write_bytes(content)
    assert_agrees(follower)
    result = replayed(growing)[1]
    assert follower.finish().unfinished == result.unfinished


# ---------------------------------------------------------------- growth


def test_nothing_there_is_the_end(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    assert follower.advance() == (0, True)
    assert follower.location == Location(0, 0)
    result = follower.finish()
    assert (result.last_file_id, result.end, result.records) == (0, 0, {})


def test_follower_reads_appends_and_rotation_when_preallocated(tmp_path: Path) -> None:
    first = write_file(tmp_path, 1, [batch(add(1))], preallocated=4096)
    follower = caught_up(Follower(tmp_path))
    append(first, batch(add(2), remove(1)))
    assert follower.advance(scan=False).record_count == 2
    write_file(tmp_path, 2, [batch(add(3))], preallocated=4096)
    caught_up(follower)
    assert waiting(follower) == [message_id(2), message_id(3)]
    assert follower.location.file_id == 2
    assert follower.rebuild_count == 0
    assert_agrees(follower)


def test_ids_may_jump(tmp_path: Path) -> None:
    write_file(tmp_path, 3, [batch(add(1))])
    follower = caught_up(Follower(tmp_path))
    write_file(tmp_path, 70, [batch(remove(1), add(2))])
    assert_agrees(follower)
    assert follower.rebuild_count == 0


@pytest.mark.parametrize("checksum", [True, False])
def test_a_batch_that_is_half_there_is_not_believed(tmp_path: Path, checksum: bool) -> None:
    path = write_file(tmp_path, 1, [batch(add(1))], preallocated=4096)
    follower = caught_up(Follower(tmp_path))
    coming = batch(add(2, 300), add(3, 300), checksum=checksum)
    start = path.read_bytes().index(EOF_MARKER)
    with path.open("r+b", buffering=0) as stream:
        for end in range(1, len(coming.rstrip(b"\0"))):  # more would be all of it: the hole is zeros too
            os.pwrite(stream.fileno(), coming[:end], start)
            assert follower.advance() == (0, True)
        os.pwrite(stream.fileno(), coming + EOF_MARKER, start)
    assert follower.advance().record_count == 2
    assert_agrees(follower)
    assert follower.rebuild_count == 0


def test_a_batch_larger_than_a_window_is_read_whole(tmp_path: Path) -> None:
    path = write_file(tmp_path, 1, [batch(add(1))])
    follower = caught_up(Follower(tmp_path))
    append(path, batch(add(2, 5_000_000)) + batch(add(3)))
    assert caught_up(follower).message_count == 3
    assert_agrees(follower)


def test_an_unchecksummed_batch_of_exactly_a_window_is_read(tmp_path: Path) -> None:
    overhead = len(batch(add(1, 16_000), checksum=False)) - 16_000
    exact = batch(add(1, FIRST_WINDOW_BYTES - overhead), checksum=False)
    assert len(exact) == FIRST_WINDOW_BYTES
    write_file(tmp_path, 1, [exact])
    assert caught_up(Follower(tmp_path)).message_count == 1


@pytest.mark.parametrize("checksum", [0, -1], ids=["none", "negative"])
def test_a_batch_without_checksum_counts_only_if_followed(tmp_path: Path, checksum: int) -> None:
    unchecked = bytearray(batch(add(1), checksum=False))
    unchecked[BATCH_HEADER_BYTES - CHECKSUM_BYTES : BATCH_HEADER_BYTES] = checksum.to_bytes(CHECKSUM_BYTES, signed=True)
    path = tmp_path / "db-1.log"
    path.write_bytes(unchecked)
    follower = caught_up(Follower(tmp_path))
    assert follower.message_count == 0
    path.write_bytes(unchecked + EOF_MARKER)
    assert caught_up(follower).message_count == 1
    assert_agrees(follower)


def test_a_torn_tail_is_left_to_the_promotion(tmp_path: Path) -> None:
    write_file(tmp_path, 1, [batch(add(1)), batch(add(2))[:-3]])
    follower = caught_up(Follower(tmp_path))
    assert waiting(follower) == [message_id(1)]
    result = follower.finish()
    assert [each.file_id for each in result.torn_tails] == [1]
    assert (result.torn_tails, result.end) == (replayed(tmp_path)[1].torn_tails, replayed(tmp_path)[1].end)


def test_records_behind_damage_are_found_by_the_promotion(tmp_path: Path) -> None:
    damaged = bytearray(batch(add(2)))
    damaged[40] ^= 0xFF
    write_file(tmp_path, 1, [batch(add(1)), bytes(damaged), batch(add(3))])
    follower = caught_up(Follower(tmp_path))
    assert waiting(follower) == [message_id(1)]
    result = follower.finish()
    assert waiting(follower) == [message_id(1), message_id(3)]
    assert result.damages == replayed(tmp_path)[1].damages


def test_an_empty_newest_file_belongs_to_the_journal(tmp_path: Path) -> None:
    write_file(tmp_path, 1, [batch(add(1))])
    write_file(tmp_path, 2, [], preallocated=FILE_BYTES_MAX // 1024)
    result = Follower(tmp_path).finish()
    assert (result.last_file_id, result.end) == (2, 0)


def test_the_remarks_of_a_clean_stop_are_known(tmp_path: Path) -> None:
    path = write_file(tmp_path, 1, [batch(Trace("one"), add(1))])
    follower = caught_up(Follower(tmp_path))
    append(path, batch(Trace("two")))
    caught_up(follower)
    append(path, batch(Trace("three")))
    assert follower.finish().closing_traces == ["two", "three"]


def test_unfinished_transactions_are_known(tmp_path: Path) -> None:
    transaction, other = LocalTransactionId("ID:c:1", 1), LocalTransactionId("ID:c:1", 2)
    path = write_file(tmp_path, 1, [batch(AddMessage(ORDERS, message_id(1), b"", transaction=transaction))])
    follower = caught_up(Follower(tmp_path))
    append(path, batch(AddMessage(ORDERS, message_id(2), b"", transaction=other), Commit(transaction)))
    assert follower.finish().unfinished == [other]
    assert waiting(follower) == [message_id(1)]


# ---------------------------------------------------------------- what others do to files


def rebuilds(follower: Follower, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Let a follower read all there is; return its reasons for beginning again."""
    with caplog.at_level(logging.INFO):
        assert_agrees(follower)
    found = [each.getMessage() for each in caplog.records if "from its first file" in each.getMessage()]
    assert len(found) == follower.rebuild_count
    return [each.rpartition(": ")[2] for each in found]


@pytest.fixture
def follower(tmp_path: Path) -> Follower:
    """A follower of three files: message 1 is dead, 2 and 3 are alive; the last file is being written."""
    write_file(tmp_path, 1, [batch(add(1))])
    write_file(tmp_path, 2, [batch(add(2)), batch(remove(1))])
    write_file(tmp_path, 3, [batch(add(3))], preallocated=4096)
    return caught_up(Follower(tmp_path))


def test_a_deleted_file_is_forgotten(follower: Follower, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / data_file_name(1)).unlink()
    assert rebuilds(follower, caplog) == []
    assert all(1 not in answered for answered in follower.state.usage.references.values())


def test_a_deleted_file_with_a_live_message_is_not(
    follower: Follower, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / data_file_name(2)).unlink()
    assert rebuilds(follower, caplog) == ["db-2.log is gone although something in it was alive"]


def test_a_deletion_is_judged_by_what_is_read_after_it(
    follower: Follower, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    append(tmp_path / data_file_name(3), batch(remove(2)))
    (tmp_path / data_file_name(1)).unlink()
    (tmp_path / data_file_name(2)).unlink()
    assert rebuilds(follower, caplog) == []
    assert waiting(follower) == [message_id(3)]


def test_a_file_may_be_deleted_before_it_was_read(
    follower: Follower, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_file(tmp_path, 5, [batch(add(5))])  # db-4.log has come and gone
    assert rebuilds(follower, caplog) == []


def test_a_compacted_file_is_believed(follower: Follower, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    append(tmp_path / data_file_name(3), batch(remove(2)))
    caught_up(follower)
    copy = write_file(tmp_path, 20, [batch(remove(1))])
    copy.replace(tmp_path / data_file_name(2))
    assert rebuilds(follower, caplog) == []


@pytest.mark.parametrize(
    "content", [[batch(remove(1))], [batch(add(2))], [], [batch(add(2)), batch(remove(1), remove(3))]]
)
def test_a_file_that_was_changed_otherwise_is_not(
    follower: Follower, tmp_path: Path, caplog: pytest.LogCaptureFixture, content: list[bytes]
) -> None:
    write_file(tmp_path, 20, content).replace(tmp_path / data_file_name(2))
    assert rebuilds(follower, caplog) == ["db-2.log was changed"]


def test_a_file_that_was_only_touched_is_believed(
    follower: Follower, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.utime(tmp_path / data_file_name(2))
    shutil.copy(tmp_path / data_file_name(1), tmp_path / "copy")
    (tmp_path / "copy").replace(tmp_path / data_file_name(1))
    assert rebuilds(follower, caplog) == []


def test_a_seal_at_or_behind_what_was_read_is_believed(
    follower: Follower, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_file(tmp_path, 20, [batch(add(3)), batch(add(4))]).replace(tmp_path / data_file_name(3))
    write_file(tmp_path, 4, [batch(add(5))])
    assert rebuilds(follower, caplog) == []
    assert waiting(follower) == [message_id(number) for number in (2, 3, 4, 5)]


def test_what_a_stale_master_wrote_behind_the_seal_is_given_up(
    follower: Follower, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    append(tmp_path / data_file_name(3), batch(add(4)))
    caught_up(follower)
    write_file(tmp_path, 20, [batch(add(3))]).replace(tmp_path / data_file_name(3))
    write_file(tmp_path, 4, [batch(add(5))])
    assert rebuilds(follower, caplog) == ["db-3.log was replaced by a file that does not hold what was read"]
    assert waiting(follower) == [message_id(number) for number in (2, 3, 5)]


def test_an_older_file_that_appears_is_read(
    follower: Follower, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / data_file_name(1)).unlink()
    caught_up(follower)
    write_file(tmp_path, 1, [batch(add(9))])
    assert rebuilds(follower, caplog) == ["db-1.log has appeared below db-3.log"]


def test_a_subscription_whose_file_is_gone_is_not_believed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    prices = topic("PRICES")
    made = DurableSubscription(client_id="client", name="s", destination=prices, subscribed_destination=prices)
    write_file(tmp_path, 1, [batch(Subscribe(prices, made.key, encode_subscription_info(made)))])
    write_file(tmp_path, 2, [batch(add(1))])
    follower = caught_up(Follower(tmp_path))
    (tmp_path / data_file_name(1)).unlink()
    assert rebuilds(follower, caplog) == ["db-1.log is gone although something in it was alive"]


# ---------------------------------------------------------------- an ActiveMQ's copies of acknowledgements


def test_copied_acknowledgements_make_it_begin_again(
    follower: Follower, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_file(tmp_path, 4, [batch(RewrittenDataFile(2), remove(1))])
    assert rebuilds(follower, caplog) == ["db-4.log repeats acknowledgements out of their order"]


def test_the_file_below_copies_goes_on_growing(follower: Follower, tmp_path: Path) -> None:
    write_file(tmp_path, 4, [batch(RewrittenDataFile(2), remove(1))])
    caught_up(follower)
    append(tmp_path / data_file_name(3), batch(add(6)))
    caught_up(follower)
    write_file(tmp_path, 5, [batch(add(7))])
    assert_agrees(follower)
    assert follower.rebuild_count == 1
    assert waiting(follower) == [message_id(number) for number in (2, 3, 6, 7)]


def test_copies_take_over_when_their_source_is_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_file(tmp_path, 1, [batch(add(1), add(2))])
    write_file(tmp_path, 2, [batch(remove(1))])
    write_file(tmp_path, 3, [batch(add(3))])
    write_file(tmp_path, 4, [batch(RewrittenDataFile(2), remove(1))])
    follower = caught_up(Follower(tmp_path))
    (tmp_path / data_file_name(2)).unlink()
    assert rebuilds(follower, caplog) == ["db-2.log is gone, and a copy of its acknowledgements takes over"]
    assert follower.state.usage.references[4] == {1}


# ---------------------------------------------------------------- errors


def test_follower_changes_no_file(follower: Follower, tmp_path: Path) -> None:
    def seen() -> list[tuple[str, bytes, int]]:
        return [(each.name, each.read_bytes(), each.stat().st_mtime_ns) for each in sorted(tmp_path.iterdir())]

    before = seen()
    caught_up(follower)
    follower.finish()
    assert seen() == before


def test_a_directory_that_is_unreadable_for_a_while_is_harmless(
    follower: Follower, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    away = tmp_path.with_name("away")
    tmp_path.rename(away)
    with pytest.raises(StoreUnavailable):
        follower.advance()
    away.rename(tmp_path)
    assert rebuilds(follower, caplog) == []


def test_an_unknown_command_is_reported_and_ends_the_reading(
    follower: Follower, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = batch(add(4), Trace("strange"))

    def strange(payload: bytes) -> Any:
        command = decode(payload)
        if command == Trace("strange"):
            raise UnknownCommand("unknown command type 77")
        return command

    append(tmp_path / data_file_name(3), unknown)
    with monkeypatch.context() as patched:
        patched.setattr(replaying, "decode", strange)
        with pytest.raises(JournalCorrupt, match="a newer version"):
            follower.advance()
    assert_agrees(follower)
    assert follower.rebuild_count == 1
