"""A forked child refuses to use its parent's connection, which continues as if there were no child."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from textwrap import dedent

import pytest

from pybroker.client import ConnectionFailed, InheritedConnection, connect
from pybroker.client.arguments import new_connection_name
from pybroker.testing import Broker

PATIENCE = 30.0

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this kernel has no fork")


@pytest.fixture(scope="module")
def uri() -> Iterator[str]:
    with Broker() as broker:
        yield broker.uri


def in_child(work: Callable[[], object]) -> str:
    """Run a function in a forked child; return what it returned or raised, as text."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(20)  # a deadlock ends the child
        try:
            text = repr(work())
        except BaseException as error:
            text = type(error).__name__
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    return text


def test_each_use_of_an_inherited_connection_is_refused(uri: str) -> None:
    with connect(uri) as connection:
        for number in range(3):
            connection.send("queue://used", str(number))
        consumer = connection.consumer("queue://used", ack="individual")
        message = consumer.receive(PATIENCE)
        producer = connection.producer("queue://used")
        transaction = connection.transaction()
        sending = connection.begin_send("queue://used", "3")
        sending.wait()
        uses: list[Callable[[], object]] = [
            lambda: connection.send("queue://used", "x"),
            lambda: connection.begin_send("queue://used", "x"),
            lambda: connection.send("queue://used", "x", persistent=False),
            lambda: connection.consumer("queue://used"),
            lambda: connection.producer("queue://used"),
            lambda: next(connection.browse("queue://used")),
            lambda: connection.receive_any([consumer], 0),
            lambda: connection.receive_any([]),
            lambda: connection.request("queue://used", "x"),
            connection.transaction,
            connection.temporary_destination,
            lambda: connection.create_destination("queue://x"),
            lambda: connection.delete_destination("queue://x"),
            lambda: connection.destination_exists("queue://x"),
            lambda: connection.unsubscribe("x"),
            lambda: producer.send("x"),
            lambda: consumer.receive(0),
            consumer.receive,
            consumer.finish,
            lambda: consumer.set_prefetch(1),
            consumer.stop,
            consumer.receive_no_wait,
            lambda: consumer.call_when_ready(lambda: None),
            lambda: consumer.reject(message, "x"),
            lambda: connection.call_when_ended(lambda: None),
            lambda: consumer.give_back(message),
            message.ack,
            lambda: transaction.send("queue://used", "x"),
            transaction.commit,
            transaction.rollback,
        ]

        def refused() -> list[int]:
            """Return the uses that are not refused."""
            wrong: list[int] = []
            for index, use in enumerate(uses):
                try:
                    use()
                except InheritedConnection as error:
                    if isinstance(error, ConnectionFailed) and "open another one" in str(error):
                        continue
                wrong.append(index)
            return wrong

        assert in_child(refused) == "[]"
        assert in_child(lambda: (connection.broker, [consumer.close(), producer.close(), connection.close()])) == (
            "(None, [None, None, None])"
        )
        consumer.give_back(message)
        received = [consumer.receive(PATIENCE) for _ in range(4)]
        assert sorted(str(each.body) for each in received) == ["0", "1", "2", "3"]
        for each in received:
            each.ack()


def test_a_child_opens_a_connection_while_threads_use_the_parents(uri: str) -> None:
    """Each fork happens while other threads hold the parent's locks."""
    stop = threading.Event()
    errors: list[BaseException] = []
    lost: list[Exception] = []

    def own() -> str:
        with connect(uri, timeout=15) as mine:
            mine.send("queue://children", str(os.getpid()), timeout=15)
        return "sent"

    with connect(uri, on_interrupted=lost.append) as connection:

        def work() -> None:
            try:
                while not stop.is_set():
                    connection.send("queue://busy", "x", persistent=False)
                    connection.consumer("queue://other").close()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        outcomes = [in_child(own) for _ in range(12)]
        stop.set()
        for thread in threads:
            thread.join()
        assert outcomes == ["'sent'"] * 12
        assert not errors
        assert not lost
        with connection.consumer("queue://children") as consumer:
            assert len({consumer.receive(PATIENCE).body for _ in range(12)}) == 12


PROGRAM = dedent("""
    import gc, os, sys
    import pybroker

    def leave(connection):
        browser = connection.browse("queue://left")
        next(browser)
        child = os.fork()
        if child:
            assert os.waitpid(child, 0)[1] == 0
            return
        del browser
        gc.collect()
        sys.exit()  # leaves the `with` statement, runs atexit, and frees everything

    interrupted = []
    with pybroker.connect(f"failover:({sys.argv[1]})", on_interrupted=interrupted.append) as connection:
        for number in range(3):
            connection.send("queue://left", str(number))
        consumer = connection.consumer("queue://left", ack="individual", prefetch=1)
        message = consumer.receive(timeout=30)
        with connection.transaction() as transaction:
            transaction.send("queue://left", "3")
            leave(connection)
        message.ack()
        for number in range(1, 4):
            message = consumer.receive(timeout=30)
            assert message.body == str(number), message
            message.ack()
        assert not interrupted
    del connection, consumer, message, transaction
    gc.collect()
    print("done")
""")


@pytest.mark.parametrize("scheme", ["tcp", "stomp"])
def test_the_end_of_a_child_does_not_touch_the_parents_connection(scheme: str) -> None:
    with Broker() as broker:
        uri = broker.uri if scheme == "tcp" else broker.stomp_uri
        done = subprocess.run(
            [sys.executable, "-X", "dev", "-W", "error", "-c", PROGRAM, uri],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_a_child_does_not_keep_the_connection_of_a_killed_parent(uri: str) -> None:
    """Otherwise the broker would wait for the end of the inactivity limit."""
    program = dedent("""
        import os, sys
        import pybroker

        connection = pybroker.connect(sys.argv[1])
        consumer = connection.consumer("queue://held", ack="individual")
        consumer.receive(timeout=30)
        if os.fork():
            os.read(0, 1)
        print("ready", flush=True)
        os.read(0, 1)
    """)
    with connect(uri) as connection:
        connection.send("queue://held", "x")
        with subprocess.Popen(
            [sys.executable, "-c", program, uri], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as parent:
            assert parent.stdout is not None
            assert parent.stdout.readline() == b"ready\n"  # by the child
            parent.kill()
            with connection.consumer("queue://held") as consumer:
                assert consumer.receive(20).body == "x"  # the inactivity limit is 30 s


def test_a_child_has_names_of_its_own() -> None:
    def random_part() -> str:
        return new_connection_name().rsplit("-", 3)[2]

    assert in_child(random_part) != repr(random_part())
