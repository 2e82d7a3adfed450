"""Followers of a master over loopback: joining, catching up, leaving, and what is refused."""

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import uvloop

from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.replica import frames
from pybroker.broker.domain.replica.frames import (
    FROM_MASTER,
    BatchPiece,
    Confirm,
    FrameBody,
    Hello,
    MasterPlan,
    Measured,
    Ping,
    RefusedFrame,
    StreamDecoder,
    StreamFrame,
    encode_frame,
)
from pybroker.broker.domain.replica.manifest import MANIFEST_FILES_MAX, ManifestFile
from pybroker.broker.domain.replica.operations import Journal
from pybroker.broker.domain.replica.seals import CrcSeal
from pybroker.store.journal.reader import data_files
from pybroker.store.replica.manifest_files import ManifestFiles
from pybroker.transports.replica import server
from pybroker.transports.replica.follower import ReplicaFollower
from pybroker.transports.replica.handshake import GREETING_BYTES, MAGIC
from pybroker.transports.replica.server import CLOSE_SECONDS, StreamPolicy
from tests.pace import in_time
from tests.replicas import (
    FOLLOWER,
    MASTER,
    WAIT_SECONDS,
    MasterNode,
    TakenFrames,
    assert_equal_stores,
    closed,
    follower,
    journals,
    trace,
)

M, S = Journal.MESSAGES, Journal.SCHEDULER
Scenario = Callable[[MasterNode], Awaitable[None]]
SECRET = b"a secret of enough bytes"
WRITES_MAX = 2_000
"""Operations during a catch-up, which on a busy machine come faster than the follower copies, without an end."""


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., None]:
    """Run a scenario with a master that has begun its epoch."""

    def run_scenario(scenario: Scenario, policy: StreamPolicy | None = None, secret: bytes = b"") -> None:
        async def main() -> None:
            master = MasterNode(tmp_path / "a", policy, secret=secret)
            await master.start()
            for journal in Journal:
                master.journals.begin(journal)
                master.journals.write(journal, trace("first"))
            try:
                await scenario(master)
            finally:
                await master.close()

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(main())

    return run_scenario


@pytest.fixture
def pinged_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have pings come soon without a short time limit, which a busy machine would exceed."""
    monkeypatch.setattr(server, "PINGS_PER_TIMEOUT", 300)


class RawFollower:
    """A follower that sends what a test wants."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._decoder = StreamDecoder(FROM_MASTER, CrcSeal())
        self._frames: list[StreamFrame] = []

    async def connect(self) -> None:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port)
        self.writer.write(MAGIC + b"\0" + bytes(32))
        await self.reader.readexactly(GREETING_BYTES)

    def send(self, body: FrameBody, sequence: int = 0) -> None:
        self.writer.write(encode_frame(CrcSeal(), StreamFrame(sequence, body)))

    async def receive(self, kind: type[FrameBody]) -> StreamFrame:
        """Return the next frame of a kind."""
        async with asyncio.timeout(30):
            while True:
                while self._frames:
                    frame = self._frames.pop(0)
                    if isinstance(frame.body, kind):
                        return frame
                data = await self.reader.read(1 << 16)
                assert data, f"the connection ended without {kind.__name__}"
                self._frames += self._decoder.receive(data)

    async def refusal(self) -> str:
        """Return the sentence with which the master closes the connection."""
        frame = await self.receive(RefusedFrame)
        assert isinstance(frame.body, RefusedFrame)
        async with asyncio.timeout(30):
            await self.reader.read()
        self.writer.close()
        return frame.body.sentence


def hello(**changes: object) -> Hello:
    return Hello(1, 1, replace(FOLLOWER, **changes), 0, [])  # type: ignore[arg-type]


async def refused(copy: ReplicaFollower, text: str) -> None:
    """Wait until a follower has seen a refusal. It dials anew each time, so there is no event of the first one."""
    async with asyncio.timeout(30):
        while text not in copy.progress.refusal:  # noqa: ASYNC110
            await asyncio.sleep(0)


def fill(master: MasterNode, files: int, batches: int, size: int) -> None:
    """Write some data files."""
    for _ in range(files):
        master.journals.begin(M)
        for number in range(batches):
            master.journals.write(M, trace(f"{number}" + "x" * size))


# ---------------------------------------------------------------- catching up


def test_empty_follower_fetches_everything(run: Callable[..., None], tmp_path: Path) -> None:
    async def scenario(master: MasterNode) -> None:
        fill(master, 3, 50, 1000)
        master.journals.write(M, trace("y" * 3_000_000), trace("z"))
        copy = follower(tmp_path / "b", master.port)
        copy.start()
        await master.events.until_confirmed(master.journals.sequence)
        assert copy.progress.is_live
        assert copy.progress.left_bytes == 0
        (seen,) = master.server.progress()
        assert (seen.store, seen.is_live, seen.confirmed) == (FOLLOWER.store, True, master.journals.sequence)
        await closed(copy)
        assert_equal_stores(tmp_path / "a", tmp_path / "b")

    run(scenario)


def test_catch_up_goes_on_while_operations_happen(run: Callable[..., None], tmp_path: Path) -> None:
    """Appends, new files, compactions and removals during each step of the catch-up."""

    async def scenario(master: MasterNode) -> None:
        fill(master, 4, 100, 20_000)
        copy = follower(tmp_path / "b", master.port)
        copy.start()
        number = 0
        while number < WRITES_MAX and not any(each.is_live for each in master.server.progress()):
            await asyncio.sleep(0)
            number += 1
            master.journals.write(M, trace(f"during {number}" + "x" * 2000))
            if number % 20 == 10:
                master.journals.begin(M)
                master.journals.write(M, trace("new file"))
            if number == 30:
                master.journals.replace(M, 3, trace("compacted"))
            if number == 35:
                master.journals.remove(M, 2)
        await master.events.until_confirmed(master.journals.sequence)
        assert number > 35, "something happened meanwhile"
        await closed(copy)
        assert_equal_stores(tmp_path / "a", tmp_path / "b")

    run(scenario)


def test_slow_follower_goes_back_to_the_catch_up(
    run: Callable[..., None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(master: MasterNode) -> None:
        taken, gate = TakenFrames(), threading.Event()
        copy = follower(tmp_path / "b", master.port, events=taken)
        copy.start()
        await master.events.until_confirmed(master.journals.sequence)
        taken.epoch_allowed = lambda _: gate.wait(30)
        master.journals.is_holding = True
        for number in range(300):  # more than the buffers of both ends have
            master.journals.write(M, trace(f"{number}" + "x" * 100_000))
            if number % 50 == 7:
                master.journals.begin(M)
                master.journals.write(M, trace("x"))
        master.journals.remove(M, 1)
        (seen,) = master.server.progress()
        assert not seen.is_live
        assert seen.queued_bytes < 2_000_000 + 200_000
        gate.set()
        master.journals.is_holding = False
        master.journals.release()
        await master.events.until_confirmed(master.journals.sequence)
        assert master.events.lost_count == 0, "on the same connection"
        await closed(copy)
        assert_equal_stores(tmp_path / "a", tmp_path / "b")

    run(scenario, StreamPolicy(queue_bytes_max=2_000_000))
    assert "is too slow" in caplog.text


def test_memory_for_a_slow_follower_is_bounded(run: Callable[..., None], tmp_path: Path) -> None:
    """The journal is the buffer, also where the master's own disk is quick."""

    async def scenario(master: MasterNode) -> None:
        taken, gate = TakenFrames(), threading.Event()
        copy = follower(tmp_path / "b", master.port, events=taken)
        copy.start()
        await master.events.until_confirmed(master.journals.sequence)
        taken.epoch_allowed = lambda _: gate.wait(30)
        most = 0
        for number in range(300):
            master.journals.write(M, trace(f"{number}" + "x" * 100_000))
            for _ in range(3):  # the catch-up's turns
                await asyncio.sleep(0)
            (seen,) = master.server.progress()
            most = max(most, seen.queued_bytes)
        gate.set()
        await master.events.until_confirmed(master.journals.sequence)
        assert master.events.lost_count == 0, "on the same connection"
        assert most < 2 * 2_000_000 + 300_000
        await closed(copy)
        assert_equal_stores(tmp_path / "a", tmp_path / "b")

    run(scenario, StreamPolicy(queue_bytes_max=2_000_000, timeout=30.0))


def test_follower_that_returns_fetches_only_what_it_lacks(run: Callable[..., None], tmp_path: Path) -> None:
    async def scenario(master: MasterNode) -> None:
        fill(master, 2, 20, 1000)
        copy = follower(tmp_path / "b", master.port)
        copy.start()
        await master.events.until_confirmed(master.journals.sequence)
        await closed(copy)
        master.journals.write(M, trace("meanwhile"))
        raw = RawFollower(master.port)
        await raw.connect()
        facts = ManifestFiles(tmp_path / "b", journals(tmp_path / "b")).read(sync=False)
        raw.send(Hello(1, 1, FOLLOWER, 0, [each.entry for each in facts]))
        plan = (await raw.receive(MasterPlan)).body
        assert isinstance(plan, MasterPlan)
        assert [entry.action.name for entry in plan.entries] == ["KEEP", "KEEP", "FETCH", "KEEP"]
        piece = (await raw.receive(BatchPiece)).body
        assert isinstance(piece, BatchPiece)
        assert piece.offset == facts[2].entry.length
        raw.writer.close()
        again = follower(tmp_path / "b", master.port, member=replace(FOLLOWER, run="l-2"))
        again.start()
        await master.events.until_confirmed(master.journals.sequence)
        await closed(again)
        assert_equal_stores(tmp_path / "a", tmp_path / "b")

    run(scenario)


def test_catch_up_waits_for_the_masters_own_sync(run: Callable[..., None], tmp_path: Path) -> None:
    """What was sent and is not in the master's files is not read from there."""

    async def scenario(master: MasterNode) -> None:
        master.journals.is_holding = True
        master.journals.write(M, trace("shipped, not written"))
        copy = follower(tmp_path / "b", master.port)
        copy.start()
        await master.events.until(lambda: master.events.joined_count == 1)
        assert not copy.progress.is_connected
        master.journals.is_holding = False
        master.journals.release()
        await master.events.until_confirmed(master.journals.sequence)
        await closed(copy)
        assert_equal_stores(tmp_path / "a", tmp_path / "b")

    run(scenario)


# ---------------------------------------------------------------- the live stream


def test_operations_reach_a_follower_before_the_master_writes_them(run: Callable[..., None], tmp_path: Path) -> None:
    async def scenario(master: MasterNode) -> None:
        copy = follower(tmp_path / "b", master.port)
        copy.start()
        await master.events.until_confirmed(master.journals.sequence)
        master.journals.is_holding = True
        master.journals.write(M, trace("not here yet"))
        await master.events.until_confirmed(master.journals.sequence)
        assert b"not here yet" not in (tmp_path / "a" / "kahadb" / "db-1.log").read_bytes()
        assert b"not here yet" in (tmp_path / "b" / "kahadb" / "db-1.log").read_bytes()
        master.journals.release()
        await closed(copy)

    run(scenario)


@pytest.mark.usefixtures("pinged_often")
def test_pings_carry_promises_and_what_is_committed(run: Callable[..., None], tmp_path: Path) -> None:
    async def scenario(master: MasterNode) -> None:
        taken = TakenFrames()
        copy = follower(tmp_path / "b", master.port, events=taken)
        copy.start()
        await master.events.until_confirmed(master.journals.sequence)
        master.server.committed(master.journals.sequence)
        await master.events.until(lambda: copy.progress.committed == master.journals.sequence)
        await master.events.until(lambda: master.events.promised_at > 0)
        assert taken.heard_count > 0
        taken.gives_grace = False
        count = len(master.events.log)
        await master.events.until(lambda: len(master.events.log) > count + 3)
        promised_at = master.events.promised_at  # with what was under way
        await master.events.until(lambda: len(master.events.log) > count + 6)
        assert master.events.promised_at == promised_at
        await closed(copy)

    run(scenario, StreamPolicy(timeout=WAIT_SECONDS))


@pytest.mark.usefixtures("pinged_often")
def test_leaving_waits_for_the_master(run: Callable[..., None], tmp_path: Path) -> None:
    async def scenario(master: MasterNode) -> None:
        copy = follower(tmp_path / "b", master.port)
        copy.start()
        await master.events.until_confirmed(master.journals.sequence)
        leaving = asyncio.create_task(asyncio.to_thread(copy.leave, 30.0))
        await master.events.until(lambda: any(entry[0] == "leaving" for entry in master.events.log))
        assert not leaving.done()
        (seen,) = master.server.progress()
        master.server.hang_up(seen.store, seen.connection + 1, "not this one")
        master.server.hang_up(seen.store, seen.connection, "taken out of the set")
        assert await leaving
        await closed(copy)
        assert master.events.lost_count == 1
        assert "taken out" in copy.progress.refusal

    run(scenario, StreamPolicy(timeout=WAIT_SECONDS))


@pytest.mark.usefixtures("pinged_often")
def test_hand_over_reaches_the_follower(run: Callable[..., None], tmp_path: Path) -> None:
    async def scenario(master: MasterNode) -> None:
        taken = TakenFrames()
        copy = follower(tmp_path / "b", master.port, events=taken)
        copy.start()
        await master.events.until_confirmed(master.journals.sequence)
        master.server.hand_over(FOLLOWER.store, "stand now")
        await master.events.until(lambda: taken.handed == ["stand now"])
        await closed(copy)

    run(scenario, StreamPolicy(timeout=WAIT_SECONDS))


def test_follower_takes_nothing_of_a_master_that_the_register_left(run: Callable[..., None], tmp_path: Path) -> None:
    async def scenario(master: MasterNode) -> None:
        taken = TakenFrames()
        copy = follower(tmp_path / "b", master.port, events=taken)
        copy.start()
        await master.events.until_confirmed(master.journals.sequence)
        before = (tmp_path / "b" / "kahadb" / "db-1.log").read_bytes()
        taken.epoch_allowed = lambda _: False
        master.journals.write(M, trace("too late"))
        await refused(copy, "does not name the master")
        await closed(copy)
        assert (tmp_path / "b" / "kahadb" / "db-1.log").read_bytes() == before

    run(scenario)


@pytest.mark.parametrize(("epoch", "cluster", "text"), [(2, "cluster-1", "epoch 1"), (1, "other", "another cluster")])
def test_other_epoch_or_cluster_is_not_followed(
    run: Callable[..., None], tmp_path: Path, epoch: int, cluster: str, text: str
) -> None:
    async def scenario(master: MasterNode) -> None:
        copy = follower(tmp_path / "b", master.port, epoch=epoch, member=replace(FOLLOWER, cluster=cluster))
        copy.start()
        await refused(copy, text)
        await closed(copy)
        assert not data_files(tmp_path / "b" / "kahadb")

    run(scenario)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("first", "text"),
    [
        (hello(cluster="other"), "another cluster"),
        (hello(store=MASTER.store), "has the store id of a"),
        (hello(store=""), "has the store id of a"),
        (hello()._replace(version_min=2, version_max=3), "speaks the versions 2 to 3"),
        (Confirm(0, 0, has_promised=False), "before HELLO"),
        (Measured([1]), None),
    ],
)
def test_wrong_first_frame_is_refused(run: Callable[..., None], first: FrameBody, text: str | None) -> None:
    async def scenario(master: MasterNode) -> None:
        raw = RawFollower(master.port)
        await raw.connect()
        raw.send(first)
        if text is None:
            raw.send(first)
        assert (text or "does not come now") in await raw.refusal()
        assert master.events.log == []

    run(scenario)


def test_second_follower_with_one_store_id_is_refused_by_name(run: Callable[..., None], tmp_path: Path) -> None:
    async def scenario(master: MasterNode) -> None:
        copy = follower(tmp_path / "b", master.port)
        copy.start()
        await master.events.until_confirmed(master.journals.sequence)
        raw = RawFollower(master.port)
        await raw.connect()
        raw.send(hello(run="l-other", name="c"))
        assert await raw.refusal() == "c has the store id of b, which is connected"
        assert master.events.lost_count == 0
        await closed(copy)

    run(scenario)


def test_follower_that_connects_again_is_not_behind_what_was_sent_before(run: Callable[..., None]) -> None:
    """It counted as behind since the oldest operation of the master's term, until its first confirmation."""

    async def scenario(master: MasterNode) -> None:
        fill(master, 1, 1, 10)
        master.server._shipped_at.append((master.journals.sequence, time.monotonic() - 3600))
        raw = RawFollower(master.port)
        await raw.connect()
        raw.send(hello())
        await raw.receive(MasterPlan)
        (found,) = master.server.progress()
        assert found.lag_seconds < 60
        raw.writer.close()

    run(scenario)


def test_second_follower_of_one_name_is_refused(run: Callable[..., None]) -> None:
    """Else `switchover --to b` could mean either, and both would share the metrics of b."""

    async def scenario(master: MasterNode) -> None:
        first, second, third = (RawFollower(master.port) for _ in range(3))
        await first.connect()
        first.send(hello())
        await first.receive(MasterPlan)
        for raw, name, text in (
            (second, "b", "another member that is connected has the name b: give each member of the cluster a `name`"),
            (third, "a", "a is the master's name: give each member"),
        ):
            await raw.connect()
            raw.send(hello(store="s-c", run="l-c", name=name))
            assert text in await raw.refusal()
        assert master.events.lost_count == 0
        first.writer.close()
        await master.events.until(lambda: master.events.lost_count == 1)
        fourth = RawFollower(master.port)  # as with a new disk: the former store of that name is not connected
        await fourth.connect()
        fourth.send(hello(store="s-c", run="l-c"))
        await fourth.receive(MasterPlan)
        fourth.writer.close()

    run(scenario)


def test_new_connection_of_a_run_replaces_its_former_one(run: Callable[..., None]) -> None:
    async def scenario(master: MasterNode) -> None:
        first, second = RawFollower(master.port), RawFollower(master.port)
        for raw in (first, second):
            await raw.connect()
            raw.send(hello())
            await raw.receive(MasterPlan)
        assert "connected again" in await first.refusal()
        assert [entry[:3] for entry in master.events.log if entry[0] != "confirmed"] == [
            ("joined", FOLLOWER.store, 1),
            ("joined", FOLLOWER.store, 2),
            ("lost", FOLLOWER.store, 1),
        ]
        second.writer.close()

    run(scenario)


@pytest.mark.parametrize("confirm", [(1000, 0), (0, 1 << 62)])
def test_confirmation_of_what_was_not_sent_is_refused(run: Callable[..., None], confirm: tuple[int, int]) -> None:
    async def scenario(master: MasterNode) -> None:
        raw = RawFollower(master.port)
        await raw.connect()
        raw.send(hello())
        await raw.receive(MasterPlan)
        sequence, clock = confirm
        raw.send(Confirm(0, clock, has_promised=True), sequence)
        assert "a confirmation of" in await raw.refusal()
        assert not any(entry[0] == "confirmed" for entry in master.events.log)

    run(scenario)


def test_silent_connections_are_closed(run: Callable[..., None]) -> None:
    """One that sends nothing, one that says HELLO too late, and one that answers no ping."""

    async def scenario(master: MasterNode) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", master.port)
        raw, mute = RawFollower(master.port), RawFollower(master.port)
        await raw.connect()
        await mute.connect()
        mute.send(hello())
        await mute.receive(Ping)
        assert "no HELLO came within" in await raw.refusal()
        assert "nothing came for" in await mute.refusal()
        async with asyncio.timeout(30):
            assert await reader.read() == b""
        writer.close()

    run(scenario, StreamPolicy(timeout=0.5, hello_seconds=2.0))


def test_strangers_do_not_keep_followers_out(run: Callable[..., None], tmp_path: Path) -> None:
    """More connections than there may be, none of which says who it is: a new one takes the place of the oldest."""

    async def scenario(master: MasterNode) -> None:
        strangers = [await asyncio.open_connection("127.0.0.1", master.port) for _ in range(3)]
        copy = follower(tmp_path / "b", master.port)
        copy.start()
        await master.events.until_confirmed(master.journals.sequence)
        strangers += [await asyncio.open_connection("127.0.0.1", master.port) for _ in range(5)]
        async with asyncio.timeout(30):
            for reader, _ in strangers[:6]:
                assert await reader.read() == b""
        assert master.events.lost_count == 0, "a follower is not what makes room"
        await closed(copy)
        for _, writer in strangers:
            writer.close()

    run(scenario, StreamPolicy(connections_max=3))


@pytest.mark.parametrize("passes", range(8))
def test_close_while_a_follower_connects(run: Callable[..., None], passes: int) -> None:
    """In whichever pass of the loop the master stops: it does not wait for a connection that has gone."""

    async def scenario(master: MasterNode) -> None:
        with socket.create_connection(("127.0.0.1", master.port)):
            for _ in range(passes):
                await asyncio.sleep(0)
            began = time.monotonic()
            await master.server.close()
            assert in_time(time.monotonic() - began, CLOSE_SECONDS)

    run(scenario)


def test_manifest_of_too_many_files_is_refused(run: Callable[..., None]) -> None:
    async def scenario(master: MasterNode) -> None:
        raw = RawFollower(master.port)
        await raw.connect()
        files = [ManifestFile(M, number + 1, 0, 0) for number in range(MANIFEST_FILES_MAX + 1)]
        raw.send(hello()._replace(manifest=files))
        assert "100001 data files: at most 100000" in await raw.refusal()

    run(scenario)


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">IB", 8 << 20, 1),  # oversized
        struct.pack(">IB", 1 << 31, 11),
        struct.pack(">IB", 100, 6),  # not from a follower
        b"\0" * 20,
        encode_frame(CrcSeal(), StreamFrame(0, hello()))[:-1] + b"\0",
    ],
)
def test_malformed_frames_are_refused(run: Callable[..., None], data: bytes) -> None:
    async def scenario(master: MasterNode) -> None:
        raw = RawFollower(master.port)
        await raw.connect()
        raw.writer.write(data)
        assert "a frame" in await raw.refusal()

    run(scenario)


def test_other_protocol_and_wrong_secret_learn_nothing(run: Callable[..., None], tmp_path: Path) -> None:
    async def scenario(master: MasterNode) -> None:
        for data in (b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n" * 2, MAGIC + b"\0" + bytes(32)):
            reader, writer = await asyncio.open_connection("127.0.0.1", master.port)
            writer.write(data)
            assert await reader.read() == b""
            writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", master.port)
        writer.write(MAGIC + b"\1" + bytes(32))
        await reader.readexactly(GREETING_BYTES)
        writer.write(bytes(32))
        assert await reader.read() == b""
        writer.close()
        copies = [
            follower(tmp_path / "b", master.port, secret=b"another secret of enough"),
            follower(tmp_path / "c", master.port),
        ]
        for copy in copies:
            copy.start()
            await refused(copy, "secret")
        await closed(*copies)
        assert master.events.log == []

    run(scenario, secret=SECRET)


def test_secret_protects_the_stream(run: Callable[..., None], tmp_path: Path) -> None:
    async def scenario(master: MasterNode) -> None:
        copy = follower(tmp_path / "b", master.port, secret=SECRET)
        copy.start()
        await master.events.until(lambda: master.events.joined_count == 1)
        fill(master, 2, 20, 1000)
        await master.events.until_confirmed(master.journals.sequence)
        await closed(copy)
        assert_equal_stores(tmp_path / "a", tmp_path / "b")

    run(scenario, secret=SECRET)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.org"])
def test_only_loopback_is_open_without_a_secret(tmp_path: Path, host: str) -> None:
    async def main() -> None:
        master = MasterNode(tmp_path / "a")
        with pytest.raises(ConfigError, match="replicate_secret_file"):
            await master.server.listen(host, 0)
        await master.close()
        master = MasterNode(tmp_path / "b", secret=SECRET)
        if host == "0.0.0.0":
            assert await master.server.listen(host, 0)
        await master.close()

    asyncio.run(main())


# ---------------------------------------------------------------- members of two versions


async def planned_version(master: MasterNode, offer: Hello) -> int:
    """Return the version of the protocol that a master chooses for a follower."""
    raw = RawFollower(master.port)
    await raw.connect()
    raw.send(offer)
    plan = (await raw.receive(MasterPlan)).body
    raw.writer.close()
    assert isinstance(plan, MasterPlan)
    return plan.version


def test_newer_follower_is_spoken_to_in_the_masters_version(run: Callable[..., None]) -> None:
    """Followers are upgraded first."""

    async def scenario(master: MasterNode) -> None:
        assert await planned_version(master, hello()._replace(version_min=1, version_max=2)) == 1

    run(scenario)


def test_newer_master_speaks_the_version_of_the_last_follower(
    run: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the switchover the former master is the last one of the older version."""
    monkeypatch.setattr(frames, "PROTOCOL_VERSION", 2)

    async def scenario(master: MasterNode) -> None:
        copy = follower(tmp_path / "b", master.port)  # which knows version 1 alone
        copy.start()
        await master.events.until_confirmed(master.journals.sequence)
        await closed(copy)
        assert await planned_version(master, hello()._replace(version_max=9)) == 2
        monkeypatch.setattr(frames, "PROTOCOL_VERSION_MIN", 2)
        raw = RawFollower(master.port)
        await raw.connect()
        raw.send(hello())
        assert "speaks the versions 1 to 1 of the protocol" in await raw.refusal()

    run(scenario)


def test_port_that_is_taken_is_named_with_its_setting(tmp_path: Path) -> None:
    asyncio.run(_listen_twice(tmp_path))


async def _listen_twice(root: Path) -> None:
    node, other = MasterNode(root / "a"), MasterNode(root / "b")
    await node.start()
    with pytest.raises(ConfigError, match=rf"replicate_port: .* port {node.port}: Address already in use; stop"):
        await other.server.listen("127.0.0.1", node.port)
    await other.close()
    await node.close()
