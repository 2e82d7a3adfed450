"""A connection whose input waits for slices: order, content, pauses and ends, over a transport of the test."""

import asyncio
import random
from collections.abc import Iterator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.transports.admission import AdmissionLimits
from pybroker.transports.connection import SocketConnection
from pybroker.transports.server import Server
from pybroker.transports.turn import Turn
from tests.compiled import interpreted


class Clock:
    """Seconds of work done."""

    def __init__(self) -> None:
        self.now = 10.0

    def __call__(self) -> float:
        return self.now


class Transport:
    """A transport in the hands of the test."""

    def __init__(self) -> None:
        self.is_reading = True
        self.is_aborted = False
        self.written = bytearray()

    def set_write_buffer_limits(self, high: int) -> None:
        assert high == 0

    def is_closing(self) -> bool:
        return self.is_aborted

    def pause_reading(self) -> None:
        assert self.is_reading, "paused twice"
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def write(self, data: bytes) -> None:
        self.written += data

    def write_eof(self) -> None:
        """Nothing: the test sees the state."""

    def abort(self) -> None:
        self.is_aborted = True


class Session:
    """A session whose frames are bytes, each of which takes its time."""

    def __init__(self, world: "World", link: Any) -> None:
        self.world = world
        self.link = link
        self.received = bytearray()
        self._left = b""
        self.is_closed = False
        self.is_lost = False
        self.is_held = False

    def hold(self) -> None:
        self.is_held = True

    def release(self) -> None:
        self.is_held = False

    def receive(self, chunk: bytes) -> bool:
        assert not self._left, "a chunk before the frames of the last one"
        self._left = chunk
        return self.proceed()

    def proceed(self) -> bool:
        assert not self.is_lost
        while self._left and not self.is_closed and not self.is_held:
            frame, self._left = self._left[:1], self._left[1:]
            self.received += frame
            self.world.clock.now += self.world.frame_seconds
            if frame == b"X":
                self.is_closed = True
                self.link.close()
            elif frame == b"E":
                raise ValueError("a bug")
            elif frame == b"P":
                self.link.pause_reading()
            elif frame == b"H":
                self.link.hold_input()
            if self._left and self.link.is_slice_over():
                return not self.is_closed
        return False

    def written(self) -> None: ...

    def handed_over(self) -> None: ...

    def pause_writing(self) -> None: ...

    def on_timer(self) -> None: ...

    def lost(self) -> None:
        assert not self.is_lost, "lost twice"
        self.is_lost = True


class World:
    """A server without sockets."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.clock = Clock()
        self.frame_seconds = 0.0006
        self.server = Server(limits=AdmissionLimits.of(10), turn=Turn(loop, self.clock))
        self.faults: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: self.faults.append(context))

    def connect(self) -> tuple[SocketConnection, Transport, Session]:
        sessions: list[Session] = []

        def make(link: Any) -> Any:
            sessions.append(Session(self, link))
            return sessions[-1]

        connection, transport = SocketConnection(self.server, "peer", make, b""), Transport()
        connection.connection_made(cast("asyncio.BaseTransport", transport))
        return connection, transport, sessions[0]

    def turn(self, count: int = 1) -> None:
        for _ in range(count):
            self.loop.run_until_complete(asyncio.sleep(0))


@pytest.fixture
def world() -> Iterator[World]:
    loop = asyncio.new_event_loop()

    async def make() -> World:
        return World(loop)

    yield loop.run_until_complete(make())
    loop.close()


def connect(world: World) -> tuple[SocketConnection, Transport, Session]:
    async def main() -> tuple[SocketConnection, Transport, Session]:
        return world.connect()

    return world.loop.run_until_complete(main())


def test_long_chunk_waits_for_slices_and_is_not_read_on(world: World) -> None:
    connection, transport, session = connect(world)
    connection.data_received(b"0123456789")
    assert bytes(session.received) == b"01"
    assert not transport.is_reading
    assert connection.reading_since is None
    assert connection.is_input_waiting
    world.turn(3)
    assert bytes(session.received) == b"0123456789"
    assert transport.is_reading
    assert connection.reading_since is not None
    assert not connection.is_input_waiting


def test_short_chunk_is_processed_at_once(world: World) -> None:
    connection, transport, session = connect(world)
    connection.data_received(b"01")
    assert bytes(session.received) == b"01"
    assert transport.is_reading


def test_chunk_that_comes_while_input_waits_follows_it(world: World) -> None:
    connection, _, session = connect(world)
    connection.data_received(b"0123456789")
    connection.data_received(b"abc")
    connection.data_received(b"def")
    world.turn(5)
    assert bytes(session.received) == b"0123456789abcdef"


def test_other_connection_is_served_between_the_slices(world: World) -> None:
    heavy, _, heavy_session = connect(world)
    light, _, light_session = connect(world)
    heavy.data_received(b"h" * 1000)
    world.turn()
    before = len(heavy_session.received)
    light.data_received(b"l")
    assert bytes(light_session.received) == b"l"
    assert len(heavy_session.received) == before < 50


def test_end_of_the_connection_comes_after_its_input(world: World) -> None:
    connection, _, session = connect(world)
    connection.data_received(b"0123456789")
    connection.connection_lost(None)
    assert not session.is_lost
    assert connection in world.server.connections, "it counts until its input is processed"
    world.turn(5)
    assert bytes(session.received) == b"0123456789"
    assert session.is_lost
    assert connection.gone.done()
    assert connection not in world.server.connections


def test_abort_drops_the_input(world: World) -> None:
    connection, transport, session = connect(world)
    connection.data_received(b"0123456789")
    before = bytes(session.received)
    connection.abort()
    assert transport.is_aborted
    connection.connection_lost(None)
    world.turn(3)
    assert bytes(session.received) == before
    assert session.is_lost


def test_abort_after_the_end_drops_the_input_and_ends(world: World) -> None:
    connection, _, session = connect(world)
    connection.data_received(b"0123456789")
    before = bytes(session.received)
    connection.connection_lost(None)
    connection.abort()
    world.turn(3)
    assert bytes(session.received) == before
    assert session.is_lost
    assert connection.gone.done()


def test_close_within_waiting_input_drops_the_rest(world: World) -> None:
    connection, transport, session = connect(world)
    connection.data_received(b"01234567X9")
    world.turn(4)
    assert bytes(session.received) == b"01234567X"
    assert session.is_lost
    assert transport.is_reading, "a connection that lingers is read to the end"


def test_server_that_stops_drops_what_waits(world: World) -> None:
    connection, _, session = connect(world)
    gone, _, gone_session = connect(world)
    for each in (connection, gone):
        each.data_received(b"0123456789")
    gone.connection_lost(None)
    before = bytes(session.received), bytes(gone_session.received)
    world.server.hold()
    world.turn(3)
    assert (bytes(session.received), bytes(gone_session.received)) == before
    assert gone_session.is_lost
    assert not session.is_lost


@pytest.mark.parametrize("comes", ["before", "after"])
def test_peer_that_ends_after_the_server_stops_is_lost(world: World, comes: str) -> None:
    """Otherwise the stop waits for this connection until its limit."""
    connection, _, session = connect(world)
    if comes == "before":
        connection.data_received(b"0123456789")
        world.server.hold()
    else:
        world.server.hold()
        connection.data_received(b"0123456789")
    connection.connection_lost(None)
    world.turn(3)
    assert session.is_lost
    assert connection.gone.done()


def test_pause_by_the_core_keeps_input_waiting(world: World) -> None:
    connection, transport, session = connect(world)
    connection.data_received(b"012345P789abcdefgh")
    world.turn(5)
    assert b"h" not in session.received
    received = bytes(session.received)
    world.turn(5)
    assert bytes(session.received) == received, "it waits until it is read again"
    connection.resume_reading()
    assert not transport.is_reading, "not before the input that waits is processed"
    world.turn(5)
    assert bytes(session.received) == b"012345P789abcdefgh"
    assert transport.is_reading


def test_held_input_waits_whole_until_it_is_released(world: World) -> None:
    connection, transport, session = connect(world)
    connection.data_received(b"0H23")
    connection.data_received(b"45")  # what a transport had read already
    world.turn(5)
    assert bytes(session.received) == b"0H"
    assert not transport.is_reading
    connection.release_input()
    world.turn(5)
    assert bytes(session.received) == b"0H2345"
    assert transport.is_reading


def test_input_held_by_the_last_frame_of_a_chunk_waits(world: World) -> None:
    connection, transport, session = connect(world)
    world.frame_seconds = 0.0
    connection.data_received(b"0H")
    connection.data_received(b"12")
    world.turn(5)
    assert bytes(session.received) == b"0H"
    connection.release_input()
    world.turn(5)
    assert bytes(session.received) == b"0H12"
    assert transport.is_reading


def test_input_held_within_a_slice_of_the_queue_waits(world: World) -> None:
    connection, transport, session = connect(world)
    connection.data_received(b"012345H789")
    world.turn(6)
    assert bytes(session.received) == b"012345H"
    connection.release_input()
    world.turn(5)
    assert bytes(session.received) == b"012345H789"
    assert transport.is_reading


def test_held_peer_that_ends_is_lost_after_its_input(world: World) -> None:
    connection, _, session = connect(world)
    connection.data_received(b"0H23")
    connection.connection_lost(None)
    world.turn(5)
    assert bytes(session.received) == b"0H"
    assert not session.is_lost, "the work of its command is not done"
    connection.release_input()
    world.turn(5)
    assert bytes(session.received) == b"0H23"
    assert session.is_lost


def test_held_connection_that_is_aborted_is_lost_at_once(world: World) -> None:
    connection, _, session = connect(world)
    connection.data_received(b"0H23")
    connection.abort()
    connection.connection_lost(None)
    world.turn(3)
    assert session.is_lost
    connection.release_input()
    world.turn(3)
    assert bytes(session.received) == b"0H"
    assert not world.faults


def test_peer_that_ends_while_it_is_paused_has_its_input_processed(world: World) -> None:
    connection, _, session = connect(world)
    connection.data_received(b"012345P789abcdefgh")
    world.turn(5)
    connection.connection_lost(None)
    world.turn(5)
    assert bytes(session.received) == b"012345P789abcdefgh"
    assert session.is_lost


def test_input_that_waits_for_a_thread_takes_no_time_after_the_end(world: World, monkeypatch: Any) -> None:
    connection, _, session = connect(world)
    calls: list[bool] = []
    proceed = session.proceed

    def wait() -> bool:
        calls.append(True)
        return True

    monkeypatch.setattr(session, "proceed", wait)
    connection.data_received(b"0123")
    connection.pause_reading()  # the thread's pause
    connection.pause_reading()  # the core's, which does not end
    connection.connection_lost(None)
    world.turn(10)
    assert len(calls) < 4
    assert not session.is_lost
    monkeypatch.setattr(session, "proceed", proceed)
    connection.resume_reading()  # the thread has ended
    world.turn(5)
    assert bytes(session.received) == b"0123"
    assert session.is_lost
    assert connection.gone.done()


def test_error_in_waiting_input_is_reported_and_ends_this_connection_alone(world: World) -> None:
    connection, transport, session = connect(world)
    other, _, other_session = connect(world)
    connection.data_received(b"01234567E9")
    other.data_received(b"0123456789")
    world.turn(6)
    assert transport.is_aborted
    assert [str(each["exception"]) for each in world.faults] == ["a bug"]
    assert bytes(session.received) == b"01234567E"
    assert bytes(other_session.received) == b"0123456789"


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("chunk"), st.integers(0, 3), st.integers(1, 400)),
        st.tuples(st.sampled_from(["turn", "pause", "resume", "lost"]), st.integers(0, 3), st.just(0)),
    ),
    max_size=60,
)


@interpreted
@given(actions=ACTIONS, frame_seconds=st.sampled_from([0.0, 0.0001, 0.0006, 0.002]), seed=st.integers(0, 99))
def test_order_and_content_are_kept_whatever_happens(
    actions: list[tuple[str, int, int]], frame_seconds: float, seed: int
) -> None:
    loop = asyncio.new_event_loop()
    dice = random.Random(seed)

    async def main() -> None:
        world = World(loop)
        world.frame_seconds = frame_seconds
        peers = [world.connect() for _ in range(4)]
        sent = [bytearray() for _ in peers]
        holds = [0] * len(peers)
        lost = [False] * len(peers)
        for what, number, size in actions:
            connection, transport, _ = peers[number]
            match what:
                case "chunk" if transport.is_reading and not lost[number]:
                    chunk = bytes(dice.choices(b"abcdefgh", k=size))
                    sent[number] += chunk
                    connection.data_received(chunk)
                case "turn":
                    await asyncio.sleep(0)
                case "pause" if not lost[number]:
                    holds[number] += 1
                    connection.pause_reading()
                case "resume" if holds[number]:
                    holds[number] -= 1
                    connection.resume_reading()
                case "lost" if not lost[number]:
                    lost[number] = True
                    connection.connection_lost(None)
            for (_, _, session), whole in zip(peers, sent, strict=True):
                assert whole.startswith(session.received)
        for (connection, _, _), count in zip(peers, holds, strict=True):
            for _ in range(count):
                connection.resume_reading()
        for _ in range(2000):
            await asyncio.sleep(0)
            if not len(world.server.turn.input):
                break
        await asyncio.sleep(0)
        for (connection, transport, session), whole, is_gone in zip(peers, sent, lost, strict=True):
            assert session.received == whole
            assert session.is_lost is is_gone
            assert transport.is_reading or is_gone
            assert not connection.is_input_waiting or is_gone
        assert world.faults == []

    loop.run_until_complete(main())
    loop.close()
