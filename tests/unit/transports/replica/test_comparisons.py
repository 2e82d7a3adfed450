"""Comparisons of a live follower's store with the master's: damage is found and repaired, and changes are none."""

import asyncio
import os
import random
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from pybroker.broker.domain.replica.frames import PIECE_BYTES
from pybroker.broker.domain.replica.operations import Journal
from pybroker.broker.domain.replica.reports import ComparisonResult, FileDifference
from pybroker.broker.domain.replica.store_ports import FileChange
from pybroker.store.journal.format import BATCH_HEADER_BYTES, RECORD_HEADER_BYTES, data_file_name, encode_record
from pybroker.store.replica.catch_up import MasterFiles, OpenedDataFile
from pybroker.store.replica.receiver import ReplicaReceiver
from pybroker.transports.replica import comparison
from pybroker.transports.replica.follower import ReplicaFollower
from pybroker.transports.replica.server import StreamPolicy
from pybroker.transports.replica.session import FollowerSession
from tests.replicas import MasterNode, TakenFrames, assert_equal_stores, closed, follower, journals, logical

POLICY = StreamPolicy(timeout=6.0)
"""Pings, and so the questions of followers, come more than twice a second; a busy machine may be silent for 4 s."""

FLIPS, ROUNDS = 100, 10


class ComparedPair:
    """A master with some data files, and a follower that has them."""

    def __init__(self, tmp_path: Path, policy: StreamPolicy = POLICY) -> None:
        self.roots = tmp_path / "a", tmp_path / "b"
        self.master = MasterNode(self.roots[0], policy)
        self.events = TakenFrames()
        self.copy: ReplicaFollower

    async def start(self, files: int = 6) -> None:
        await self.master.start()
        self.copy = follower(self.roots[1], self.master.port, events=self.events, timeout=60.0)
        self.copy.start()
        writer = self.master.journals
        for _ in range(files):
            self.first = writer.begin(Journal.MESSAGES)
            for number in range(20):
                writer.write(Journal.MESSAGES, b"m%d" % number * 50, os.urandom(3000))
        writer.begin(Journal.SCHEDULER)
        writer.write(Journal.SCHEDULER, b"job")
        await self.master.events.until_confirmed(writer.sequence)

    async def result(self) -> ComparisonResult:
        return await asyncio.to_thread(self.events.results.get, True, 30)

    async def verify(self) -> ComparisonResult:
        self.copy.verify()
        return await self.result()

    async def close(self) -> None:
        await closed(self.copy)
        await self.master.close()


def flip(root: Path, journal: Journal, file_id: int, offset: int) -> None:
    """Change a byte of a data file."""
    path = journals(root)[journal] / data_file_name(file_id)
    with path.open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ 0xFF]))


def run(tmp_path: Path, part: Callable[[ComparedPair], Awaitable[None]], policy: StreamPolicy = POLICY) -> None:
    async def main() -> None:
        pair = ComparedPair(tmp_path, policy)
        await pair.start()
        try:
            await part(pair)
        finally:
            await pair.close()

    asyncio.run(main())


@pytest.fixture(autouse=True)
def second_look_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "AGAIN_SECONDS", 0.01)


def test_equal_stores(tmp_path: Path) -> None:
    async def part(pair: ComparedPair) -> None:
        result = await pair.verify()
        contents = logical(pair.roots[0])
        assert result == ComparisonResult(7, sum(map(len, contents.values())), [])
        assert ("verified", "s-b", "b", result) in pair.master.events.log
        assert pair.copy.progress.compare_left == -1

    run(tmp_path, part)


def test_a_hundred_changed_bytes_are_found_and_repaired(tmp_path: Path) -> None:
    async def part(pair: ComparedPair) -> None:
        chance = random.Random(17)
        contents = {key: value for key, value in logical(pair.roots[1]).items() if key[1] < pair.first}
        del contents[Journal.SCHEDULER, 1]  # the file that is being written
        places = [(key, offset) for key, content in contents.items() for offset in range(len(content))]
        flips = chance.sample(places, FLIPS)
        for round_ in range(ROUNDS):
            damaged = flips[round_::ROUNDS]
            for (journal, file_id), offset in damaged:
                flip(pair.roots[1], journal, file_id, offset)
            found = [each[:2] for each in (await pair.verify()).differences]
            assert found == sorted({key for key, _ in damaged})
            pair.copy.repair(found)
            assert (await pair.result()).is_equal
        assert_equal_stores(*pair.roots)

    run(tmp_path, part)


def test_damage_in_all_finished_files_is_repaired_while_the_stream_goes_on(tmp_path: Path) -> None:
    async def part(pair: ComparedPair) -> None:
        for file_id in range(1, pair.first):
            flip(pair.roots[1], Journal.MESSAGES, file_id, 100 * file_id)
        damaged = (await pair.verify()).differences
        assert [each.file_id for each in damaged] == list(range(1, pair.first))
        pair.copy.repair([each[:2] for each in damaged])
        for number in range(50):
            pair.master.journals.write(Journal.MESSAGES, b"while it is repaired %d" % number)
            await asyncio.sleep(0)
        assert (await pair.result()).is_equal
        await pair.master.events.until_confirmed(pair.master.journals.sequence)
        assert_equal_stores(*pair.roots)
        kept = sorted((pair.roots[1] / "replica" / "discarded").glob("*/kahadb/*"))
        assert [path.name for path in kept] == [data_file_name(number) for number in range(1, pair.first)]

    run(tmp_path, part)


def test_the_file_that_is_being_written_is_repaired_on_another_connection(tmp_path: Path) -> None:
    async def part(pair: ComparedPair) -> None:
        flip(pair.roots[1], Journal.MESSAGES, pair.first, 500)
        (difference,) = (await pair.verify()).differences
        assert difference == FileDifference(Journal.MESSAGES, pair.first, is_masters=False)
        pair.copy.repair([difference[:2]])
        assert (await pair.result()).problem == "the connection to the master has ended"
        await pair.master.events.until(lambda: pair.master.events.joined_count == 2)
        assert (await pair.verify()).is_equal
        assert_equal_stores(*pair.roots)

    run(tmp_path, part)


def test_damage_of_the_master_is_named_and_not_copied(tmp_path: Path) -> None:
    async def part(pair: ComparedPair) -> None:
        before = logical(pair.roots[1])
        flip(pair.roots[0], Journal.MESSAGES, 2, 700)
        (difference,) = (await pair.verify()).differences
        assert difference == FileDifference(Journal.MESSAGES, 2, is_masters=True)
        pair.copy.repair([difference[:2]])
        assert (await pair.result()).differences == [difference]
        assert logical(pair.roots[1]) == before

    run(tmp_path, part)


def test_damaged_last_batch_of_a_masters_file_is_found(tmp_path: Path) -> None:
    """Its contents seem to end before that batch: a walk cannot tell it from a torn write."""

    async def part(pair: ComparedPair) -> None:
        before = logical(pair.roots[1])
        flip(pair.roots[0], Journal.MESSAGES, 2, len(before[Journal.MESSAGES, 2]) - 100)
        (difference,) = (await pair.verify()).differences
        assert difference == FileDifference(Journal.MESSAGES, 2, is_masters=True)
        flip(pair.roots[1], Journal.MESSAGES, 2, 100)
        pair.copy.repair([difference[:2]])
        assert (await pair.result()).differences == [difference]
        flip(pair.roots[1], Journal.MESSAGES, 2, 100)
        assert logical(pair.roots[1]) == before

    run(tmp_path, part)


@pytest.mark.parametrize("place", ["in the middle", "in the last batch"])
def test_damage_of_the_master_is_not_copied_by_a_new_connection(tmp_path: Path, place: str) -> None:
    async def part(pair: ComparedPair) -> None:
        before = logical(pair.roots[1])
        middle, last = 700, len(before[Journal.MESSAGES, 2]) - 100
        flip(pair.roots[0], Journal.MESSAGES, 2, middle if place == "in the middle" else last)
        pair.master.server.hang_up("s-b", 1, "test")
        await pair.master.events.until(lambda: pair.master.events.joined_count == 2)
        pair.master.journals.write(Journal.MESSAGES, b"behind it")
        await pair.master.events.until_confirmed(pair.master.journals.sequence)
        assert logical(pair.roots[1])[Journal.MESSAGES, 2] == before[Journal.MESSAGES, 2]
        (difference,) = (await pair.verify()).differences
        assert difference == FileDifference(Journal.MESSAGES, 2, is_masters=True)

    run(tmp_path, part)


def test_a_missing_file_is_found_and_sent(tmp_path: Path) -> None:
    async def part(pair: ComparedPair) -> None:
        (journals(pair.roots[1])[Journal.MESSAGES] / data_file_name(3)).unlink()
        (difference,) = (await pair.verify()).differences
        assert difference == FileDifference(Journal.MESSAGES, 3, is_masters=False)
        pair.copy.repair([difference[:2]])
        assert (await pair.result()).is_equal
        assert_equal_stores(*pair.roots)

    run(tmp_path, part)


def test_files_that_are_replaced_and_removed_meanwhile_do_not_differ(tmp_path: Path) -> None:
    """A replacement is on the master's disk before it is sent, as a compaction's is."""

    async def part(pair: ComparedPair) -> None:
        writer = pair.master.journals
        for round_ in range(30):
            pair.copy.verify()
            await asyncio.sleep(0.001 * (round_ % 7))
            if round_ < 20:
                writer.replace(Journal.MESSAGES, 1 + round_ % 4, b"smaller %d" % round_)
            elif round_ < 24:
                writer.remove(Journal.MESSAGES, round_ - 19)
            writer.write(Journal.MESSAGES, b"more")
            assert (await pair.result()).is_equal
        assert_equal_stores(*pair.roots)

    run(tmp_path, part)


def test_repair_interrupted_by_a_compaction_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower gathers one new content of a journal at a time, so the compaction's takes the place of the other."""
    drain, drained = FollowerSession.drain, 0

    async def part(pair: ComparedPair) -> None:
        writer = pair.master.journals
        large = writer.begin(Journal.MESSAGES)
        for _ in range(3):
            writer.write(Journal.MESSAGES, os.urandom(900_000))
        writer.begin(Journal.MESSAGES)
        await pair.master.events.until_confirmed(writer.sequence)
        flip(pair.roots[1], Journal.MESSAGES, large, 100)

        async def drain_and_compact(session: FollowerSession) -> None:
            nonlocal drained
            await drain(session)
            drained += 1
            if drained == 3:
                writer.replace(Journal.MESSAGES, 1, b"smaller")

        monkeypatch.setattr(FollowerSession, "drain", drain_and_compact)
        pair.copy.repair([(Journal.MESSAGES, large)])
        assert (await pair.result()).is_equal
        assert drained > 4
        assert pair.master.events.lost_count == 0
        assert_equal_stores(*pair.roots)

    run(tmp_path, part)


def test_repair_shows_progress_before_the_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One read of the connection brings less than a piece, so that each piece but the last leaves some."""
    apply, seen = ReplicaReceiver.apply, list[int]()

    async def part(pair: ComparedPair) -> None:
        writer = pair.master.journals
        large = writer.begin(Journal.MESSAGES)
        for _ in range(3):
            writer.write(Journal.MESSAGES, os.urandom(900_000))
        writer.begin(Journal.MESSAGES)
        await pair.master.events.until_confirmed(writer.sequence)

        def apply_and_look(receiver: ReplicaReceiver, changes: Sequence[FileChange], *, is_live: bool) -> None:
            seen.append(pair.copy.progress.compare_left)
            apply(receiver, changes, is_live=is_live)

        monkeypatch.setattr(ReplicaReceiver, "apply", apply_and_look)
        pair.copy.repair([(Journal.MESSAGES, large)])
        assert (await pair.result()).is_equal
        assert max(seen) > 1_000_000
        assert pair.copy.progress.compare_left == -1

    run(tmp_path, part)


def test_session_that_ends_leaves_no_file_of_a_repair_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_open, opened, closed_files = threading.Event(), asyncio.Event(), asyncio.Event()
    open_file, close_file = MasterFiles.open, OpenedDataFile.close
    repaired: list[OpenedDataFile | None] = []

    async def part(pair: ComparedPair) -> None:
        loop = asyncio.get_running_loop()

        def open_late(files: MasterFiles, journal: Journal, file_id: int) -> OpenedDataFile | None:
            loop.call_soon_threadsafe(opened.set)
            assert may_open.wait(30)
            repaired.append(open_file(files, journal, file_id))
            return repaired[-1]

        def close(file: OpenedDataFile) -> None:
            close_file(file)
            if file is repaired[0]:
                loop.call_soon_threadsafe(closed_files.set)

        monkeypatch.setattr(MasterFiles, "open", open_late)
        monkeypatch.setattr(OpenedDataFile, "close", close)
        pair.copy.repair([(Journal.MESSAGES, 1)])
        async with asyncio.timeout(30):
            await opened.wait()
            pair.master.server.hang_up("s-b", 1, "test")
            await pair.master.events.until(lambda: pair.master.events.lost_count == 1)
            may_open.set()
            await closed_files.wait()

    run(tmp_path, part)


def test_comparison_longer_than_the_interval_is_not_requested_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_read = threading.Event()
    checksum = MasterFiles.part_checksum

    def checksum_late(files: MasterFiles, journal: Journal, file_id: int, offset: int, length: int) -> int | None:
        assert may_read.wait(30)
        return checksum(files, journal, file_id, offset, length)

    monkeypatch.setattr(MasterFiles, "part_checksum", checksum_late)

    async def part(pair: ComparedPair) -> None:
        pings = 0

        def count(_epoch: int) -> bool:
            nonlocal pings
            pings += 1
            if pings == 10:
                may_read.set()
            return True

        monkeypatch.setattr(pair.events, "promises", count)
        assert (await pair.result()).is_equal
        assert pings >= 10

    run(tmp_path, part, StreamPolicy(timeout=0.5, compare_seconds=0.01))


def test_a_comparison_begins_by_itself(tmp_path: Path) -> None:
    async def part(pair: ComparedPair) -> None:
        for _ in range(2):
            assert (await pair.result()).is_equal

    run(tmp_path, part, StreamPolicy(timeout=2.0, compare_seconds=0.2))


def test_a_second_request_and_an_end_of_the_connection_are_answered(tmp_path: Path) -> None:
    async def part(pair: ComparedPair) -> None:
        assert pair.master.server.compare() == ["s-b"]
        assert pair.master.server.compare() == []
        pair.master.server.hang_up("s-b", 1, "test")
        await pair.master.events.until(lambda: pair.master.events.joined_count == 2)
        await pair.master.events.until_confirmed(pair.master.journals.sequence)
        assert (await pair.verify()).is_equal

    run(tmp_path, part)


def test_status_is_told_to_followers(tmp_path: Path) -> None:
    async def part(pair: ComparedPair) -> None:
        await pair.verify()  # the question came before this one
        report = pair.copy.progress.report
        assert report is not None
        assert report.epoch == 1

    run(tmp_path, part)


def test_record_of_a_copy_is_read_for_the_master(tmp_path: Path) -> None:
    async def part(pair: ComparedPair) -> None:
        writer = pair.master.journals
        file_id, offset = writer.ends[Journal.MESSAGES]
        payloads = b"short", os.urandom(3 * PIECE_BYTES + 17), b"last"
        writer.write(Journal.MESSAGES, *payloads)
        await pair.master.events.until_confirmed(writer.sequence)
        places, at = [], offset + BATCH_HEADER_BYTES
        for payload in payloads:
            places.append(at)
            at += RECORD_HEADER_BYTES + len(payload)
        server = pair.master.server
        asked = (server.record(Journal.MESSAGES, file_id, each) for each in (*places, places[0] + 1))
        assert await asyncio.gather(*asked) == [*map(encode_record, payloads), b""]
        flip(pair.roots[1], Journal.MESSAGES, file_id, places[1] + 100)
        assert await server.record(Journal.MESSAGES, file_id, places[0]) == b"", "the batch is not sound"
        assert await server.record(Journal.MESSAGES, 77, 28) == b""
        assert not pair.events.failures
        question = asyncio.create_task(server.record(Journal.MESSAGES, file_id, places[0]))
        await closed(pair.copy)
        assert await question == b""
        assert await server.record(Journal.MESSAGES, file_id, places[0]) == b""

    run(tmp_path, part)
