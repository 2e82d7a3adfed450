"""Mutated frames for both ends of the replication stream: random ones, with seals that are right, so that they get far.

As a program, `python -m tests.replica_attacks COUNT [SEED]` sends that many frames, and prints what it measured.
"""

import asyncio
import collections
import contextlib
import logging
import random
import resource
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.replica.frames import (
    FROM_FOLLOWER,
    FROM_MASTER,
    HEADER,
    BatchPiece,
    Confirm,
    FrameBody,
    HandOver,
    Hello,
    Leave,
    MasterPlan,
    Measure,
    Measured,
    Ping,
    RefusedFrame,
    ReplacePiece,
    StreamDecoder,
    StreamFrame,
    StreamLive,
    encode_frame,
)
from pybroker.broker.domain.replica.manifest import MalformedFrame, ManifestFile
from pybroker.broker.domain.replica.operations import BeginFile, CutFile, Journal, RemoveFiles
from pybroker.broker.domain.replica.plan import PlanAction, PlanEntry
from pybroker.broker.domain.replica.ports import RegisterSnapshot
from pybroker.broker.domain.replica.seals import CrcSeal
from pybroker.errors import PybrokerError
from pybroker.store.replica.receiver import ReceiverSettings
from pybroker.transports.replica.handshake import MAGIC
from tests.descriptors import targets
from tests.replicas import FOLLOWER, MASTER, MasterNode, follower, trace

FRAMES_OF_A_CONNECTION = 8
MARK = b"a message that stays in this store"


class FrameAttacker:
    """Makes frames of one side.

    Args:
        seed: of the random numbers.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def number(self, bits: int) -> int:
        """Return a number, often one at a limit."""
        limit = (1 << bits) - 1
        return self.random.choice((0, 1, 2, 3, self.random.randrange(100), self.random.randrange(limit), limit))

    def _text(self) -> str:
        return self.random.choice(("", "a", "s-b", "../../x", "\0", "é" * 100, "x" * 2000))

    def _place(self) -> tuple[Journal, int]:
        return self.random.choice(list(Journal)), self.number(32)

    def _bytes(self) -> bytes:
        return self.random.randbytes(self.random.choice((0, 1, 8, 40, 200)))

    def of_follower(self) -> FrameBody:
        """Return what a follower may send."""
        number = self.number
        match self.random.randrange(6):
            case 0:
                places = sorted({self._place() for _ in range(self.random.randrange(4))})
                files = [ManifestFile(*place, number(32), number(32)) for place in places]
                member = FOLLOWER if self.random.random() < 0.7 else MASTER
                return Hello(number(2), number(2), member, number(60), files)
            case 1:
                return Leave(self._text())
            case 2:
                return RefusedFrame(self._text())
            case 3:
                return Measured([number(32) for _ in range(self.random.randrange(5))])
            case _:
                return Confirm(number(64), number(64), has_promised=True)

    def of_master(self) -> FrameBody:
        """Return what a master may send."""
        number, place = self.number, self._place()
        match self.random.randrange(12):
            case 0:
                places = sorted({self._place() for _ in range(self.random.randrange(4))})
                choice = self.random.choice
                plan = [PlanEntry(*each, choice(list(PlanAction)), number(32), number(32)) for each in places]
                return MasterPlan(1, 1, MASTER, RegisterSnapshot(number(60), b"{}"), plan)
            case 1:
                return StreamLive()
            case 2:
                return BeginFile(*place)
            case 3:
                return CutFile(*place, number(32))
            case 4:
                content = self._bytes()
                return ReplacePiece(*place, number(32), number(32), number(32), content)
            case 5:
                return RemoveFiles(place[0], sorted({number(32) for _ in range(3)}))
            case 6:
                return Ping(number(64), number(64))
            case 7:
                return HandOver(self._text())
            case 8:
                return Measure([(*self._place(), number(32)) for _ in range(self.random.randrange(4))])
            case _:
                is_live = self.random.random() < 0.5
                return BatchPiece(*place, number(32), number(32), self._bytes(), is_live)

    def mutated(self, body: FrameBody) -> bytes:
        """Return a frame, in most cases with something changed, and in most of these with a right checksum."""
        data = bytearray(encode_frame(CrcSeal(), StreamFrame(self.number(64), body)))
        kind = self.random.randrange(8)
        if kind == 0:
            return bytes(data)
        if kind == 1:
            return self.random.randbytes(self.random.randrange(1, 60))
        if kind == 2:
            return bytes(data[: self.random.randrange(len(data))])
        if kind == 3:
            struct.pack_into(">I", data, 0, self.number(32))
            return bytes(data)
        content = data[4:-4]
        for _ in range(self.random.randrange(1, 5)):
            at = self.random.randrange(1 if self.random.random() < 0.8 else 0, len(content))
            content[at] = self.random.choice((0, 1, 255, self.random.randrange(256)))
        if kind == 4:
            content = content[: max(HEADER.size, self.random.randrange(len(content) + 1))]
        elif kind == 5:
            content += self.random.randbytes(self.random.randrange(20))
        seal = CrcSeal().next((bytes(content),)) if kind < 7 else bytes(4)
        return struct.pack(">I", len(content) + 4) + bytes(content) + seal


class _Socket:
    """The options of a connection that there is not."""

    def setsockopt(self, *_: object) -> None:
        """Take an option."""


class HeldTransport(asyncio.Transport):
    """Takes what a master sends, without a connection.

    Attributes:
        sent: all of it.
        is_ended: the master has closed it.
    """

    def __init__(self, link: Any) -> None:
        super().__init__()
        self._link = link
        self.sent = bytearray()
        self.is_ended = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return _Socket() if name == "socket" else ("attacker", 1)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Take limits."""

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return self.is_ended

    def close(self) -> None:
        if not self.is_ended:
            self.is_ended = True
            asyncio.get_running_loop().call_soon(self._link.connection_lost, None)

    abort = close


class ErrorCounter(logging.Handler):
    """Counts what is logged as an error of pybroker's own: with a traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(self.format(record))


async def attack_master(root: Path, count: int, seed: int, *, secret: bytes = b"") -> collections.Counter[str]:
    """Send frames to a master, and check that nothing fails there, and that it is as it was.

    With a secret, which the attacker does not know, no byte of the store leaves.
    """
    open_before = _open_files()
    master, found = MasterNode(root, secret=secret), collections.Counter[str]()
    await master.start()
    master.journals.begin(Journal.MESSAGES)
    master.journals.write(Journal.MESSAGES, trace(MARK.decode()))
    attacker = FrameAttacker(seed)
    try:
        while found["frames"] < count:
            await _attack_once(master, attacker, found, secret=secret)
        assert not master.server.progress(), "no connection is left"
    finally:
        await master.close()
    async with asyncio.timeout(30):
        while _open_files() > open_before:  # noqa: ASYNC110 - a thread may be opening one for a connection that ended
            await asyncio.sleep(0)
    return found


def _open_files() -> int:
    """Return how many data files this process has open."""
    return sum(path.endswith(".log") for path in targets())


async def _attack_once(
    master: MasterNode, attacker: FrameAttacker, found: collections.Counter[str], *, secret: bytes
) -> None:
    link = master.server._new_link()
    transport = HeldTransport(link)
    link.connection_made(transport)
    link.data_received(MAGIC + bytes([bool(secret)]) + attacker.random.randbytes(32))
    if secret:
        link.data_received(attacker.random.randbytes(32))
    elif attacker.random.random() < 0.6:
        hello = Hello(1, 1, FOLLOWER, 0, [])
        link.data_received(encode_frame(CrcSeal(), StreamFrame(0, hello)))
        if attacker.random.random() < 0.3:
            async with asyncio.timeout(30):
                while MARK not in transport.sent and not transport.is_ended:  # noqa: ASYNC110
                    await asyncio.sleep(0)
    for _ in range(FRAMES_OF_A_CONNECTION):
        found["frames"] += 1
        link.data_received(attacker.mutated(attacker.of_follower()))
        if attacker.random.random() < 0.1:
            await asyncio.sleep(0)
        if transport.is_ended:
            found["refused"] += 1
            break
    transport.close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    found["with bytes of the store"] += MARK in transport.sent
    if len(master.events.log) > 1000:
        master.events.log.clear()


def attack_follower(root: Path, count: int, seed: int) -> collections.Counter[str]:
    """Send frames to a follower, and check that each is taken or refused, and that only its own directory changes."""
    attacker, found = FrameAttacker(seed), collections.Counter[str]()
    while found["frames"] < count:
        copy = follower(root / "b", 1, settings=ReceiverSettings(discarded_max=0))
        manifest = copy._store.examine()
        copy._reset()
        decoder = StreamDecoder(FROM_MASTER, CrcSeal())
        if attacker.random.random() < 0.8:
            drop = [PlanEntry(each.journal, each.file_id, PlanAction.DROP, 0, 0) for each in manifest]
            begin: list[FrameBody] = [MasterPlan(1, 1, MASTER, RegisterSnapshot(1, b"{}"), drop)]
            if attacker.random.random() < 0.7:
                begin += [BeginFile(Journal.MESSAGES, 1), StreamLive()]
            for body in begin:
                _feed(copy, decoder, encode_frame(CrcSeal(), StreamFrame(0, body)))
        for _ in range(FRAMES_OF_A_CONNECTION):
            found["frames"] += 1
            try:
                _feed(copy, decoder, attacker.mutated(attacker.of_master()))
            except StoreUnavailable as error:
                found[f"store: {str(error)[:60]}"] += 1
                break
            except (MalformedFrame, PybrokerError):
                found["refused"] += 1
                break
        with contextlib.suppress(StoreUnavailable):
            copy._store.close()
    assert sorted(each.name for each in root.iterdir()) == ["b"]
    return found


def _feed(copy: Any, decoder: StreamDecoder, data: bytes) -> None:
    try:
        copy._take(decoder.receive(data))
    except struct.error as error:
        raise AssertionError(f"a frame has failed: {data!r}") from error


def attack_decoders(count: int, seed: int) -> collections.Counter[str]:
    """Decode frames of both sides: each is a value, or malformed."""
    attacker, found = FrameAttacker(seed), collections.Counter[str]()
    sides: list[tuple[Any, Callable[[], FrameBody]]] = [
        (FROM_FOLLOWER, attacker.of_follower),
        (FROM_MASTER, attacker.of_master),
    ]
    for _ in range(count):
        limits, make = sides[attacker.random.randrange(2)]
        found["frames"] += 1
        try:
            found["taken"] += len(StreamDecoder(limits, CrcSeal()).receive(attacker.mutated(make())))
        except MalformedFrame:
            found["refused"] += 1
    return found


def main(count: int, seed: int) -> None:
    """Attack both ends, and print how that went."""
    errors = ErrorCounter()
    logging.getLogger("pybroker").addHandler(errors)
    logging.getLogger("pybroker").setLevel(logging.ERROR)
    socket.setdefaulttimeout(5)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        place = Path(directory)
        parts: list[tuple[str, Callable[[], collections.Counter[str]]]] = [
            ("decoders", lambda: attack_decoders(count * 7 // 10, seed)),
            ("master", lambda: asyncio.run(attack_master(_made(place / "m") / "a", count // 10, seed))),
            (
                "secret",
                lambda: asyncio.run(attack_master(_made(place / "s") / "a", count // 10, seed, secret=b"x" * 20)),
            ),
            ("follower", lambda: attack_follower(_made(place / "f"), count // 10, seed)),
        ]
        for name, attack in parts:
            began = time.monotonic()
            found = attack()
            seconds = time.monotonic() - began
            print(f"{name}: {dict(found)} in {seconds:.0f} s, errors: {len(errors.found)}")
    print(f"memory: {before} KB before, {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss} KB at most")
    for text in errors.found[:5]:
        print(text)


def _made(path: Path) -> Path:
    path.mkdir()
    return path


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
