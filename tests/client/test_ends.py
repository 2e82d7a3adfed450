"""Ends of a connection besides its `close`: the interpreter's exit, a cancelled task, a callback, the collector."""

import asyncio
import contextlib
import gc
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from pybroker.client import ConnectionFailed, Timeout, aio, connect
from pybroker.client.arguments import CLOSE_SECONDS
from pybroker.client.sync import Consumer
from pybroker.testing import Broker
from tests.client.kills import wait_until
from tests.pace import in_time

PATIENCE = 30.0
COUNT = 2000


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A broker of the test's own, to be frozen and restarted."""
    with Broker() as broker:
        yield broker


def run(program: str) -> str:
    """Run a program to its end and return what it has printed."""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, check=True, timeout=PATIENCE, stdout=subprocess.PIPE, text=True).stdout


def count(consumer: Consumer) -> int:
    received = 0
    with contextlib.suppress(Timeout):
        while True:
            consumer.receive(0.5 if received == COUNT else PATIENCE)
            received += 1
    return received


# ---------------------------------------------------------------- the interpreter's exit


def test_sends_without_answer_survive_the_exit(broker: Broker) -> None:
    run(f"""
import pybroker
connection = pybroker.connect({broker.uri!r})
incoming = connection.consumer("queue://OTHER")  # what is unread in a socket turns its end into a reset
for number in range({COUNT}):
    connection.send("queue://EXIT", "x" * 1000, persistent=False)
    connection.send("queue://OTHER", "x" * 1000, persistent=False)
""")
    with connect(broker.uri) as connection, connection.consumer("queue://EXIT") as consumer:
        assert count(consumer) == COUNT


def test_acknowledgements_survive_the_exit(broker: Broker) -> None:
    """All but that of the message which the program may have been working on."""
    with connect(broker.uri) as connection:
        for _ in range(3):
            connection.send("queue://EXIT", "x")
        run(f"""
import pybroker
consumer = pybroker.connect({broker.uri!r}).consumer("queue://EXIT")
for _ in range(3):
    consumer.receive(10)
""")
        with connection.consumer("queue://EXIT") as consumer:
            assert consumer.receive(PATIENCE).redelivered
            with pytest.raises(Timeout):
                consumer.receive(0.5)


def test_the_exit_waits_for_a_silent_broker_only_so_long(broker: Broker) -> None:
    """Two connections to a broker that does not answer cost the exit no more than one."""
    took = run(f"""
import atexit, os, signal, time
atexit.register(lambda: print(time.monotonic() - began))  # runs last
import pybroker
connections = [pybroker.connect({broker.uri!r}) for _ in range(2)]
os.kill({broker.pid}, signal.SIGSTOP)
began = time.monotonic()
""")
    assert float(took) >= CLOSE_SECONDS
    assert in_time(float(took), 2 * CLOSE_SECONDS)


# ---------------------------------------------------------------- cancellation


def test_a_cancelled_close_ends_the_connection(broker: Broker) -> None:
    async def main() -> None:
        connection = aio.connect(f"failover:({broker.uri})")
        await connection.__aenter__()
        await connection.consumer("queue://LEFT")
        broker.freeze()
        closing = asyncio.create_task(connection.close(PATIENCE))
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert connection._running is not None
        ended, _ = await asyncio.wait({connection._running}, timeout=PATIENCE / 6)
        assert ended

    asyncio.run(main())


def test_an_interrupted_receive_leaves_the_message_to_others(broker: Broker) -> None:
    """A consumer without prefetch has a pull at the broker, and must cancel it."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with connect(broker.uri) as connection:
        pulling = connection.consumer("queue://LEFT", prefetch=0)
        before = signal.signal(signal.SIGALRM, interrupt)

        def receive() -> None:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            pulling.receive(PATIENCE)

        try:
            with pytest.raises(KeyboardInterrupt):
                receive()
        finally:
            signal.signal(signal.SIGALRM, before)
        connection.send("queue://LEFT", "x")
        with connection.consumer("queue://LEFT") as other:
            assert other.receive(PATIENCE).body == "x"


# ---------------------------------------------------------------- callbacks


@pytest.mark.parametrize("when", ["on_interrupted", "on_resumed"])
def test_a_callback_that_exits_ends_the_connection(broker: Broker, when: str, caplog: pytest.LogCaptureFixture) -> None:
    def leave(_: object) -> None:
        raise SystemExit(3)

    connection = connect(f"failover:({broker.uri})", **{when: leave})  # type: ignore[arg-type]
    consumer = connection.consumer("queue://CALM")
    broker.restart()
    with pytest.raises(ConnectionFailed, match="SystemExit"):
        consumer.receive(PATIENCE)
    with pytest.raises(ConnectionFailed, match="SystemExit"):
        next(consumer)
    assert "SystemExit(3)" in caplog.text
    connection.close()


# ---------------------------------------------------------------- the collector


def test_a_collected_browser_changes_nothing_under_the_lock(broker: Broker) -> None:
    with connect(broker.uri) as connection:
        for _ in range(2):
            connection.send("queue://SHOWN", "x")
        shown = connection.browse("queue://SHOWN")
        next(shown)
        with connection._wrapped._link as state:
            open_before = len(state._consumers)
            del shown
            gc.collect()
            assert len(state._consumers) == open_before, "a command may be half written"
        wait_until(lambda: not state._consumers, lambda: f"{state._consumers} is left")
