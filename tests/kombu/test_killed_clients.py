"""A client that ends leaves nothing, and one that is killed nothing for ever: the broker removes what is unused."""

import os
import subprocess
import sys
import threading
import time
from textwrap import dedent

from pybroker.client import connect
from pybroker.testing import Broker
from tests.kombu.application import HERE
from tests.kombu.workers import environment

CLIENT = dedent("""
    import ledger

    result = ledger.record.apply_async(("/dev/null", 1))
    print(result.backend.binding.name)
    print(ledger.app.control.mailbox.get_reply_queue().name)
    ledger.app.control.ping(timeout=0.1)
    connection = ledger.app.connection_for_read()
    receiver = ledger.app.events.Receiver(connection)
    print(receiver.queue.name)
    with receiver.consumer_context():
        print("ready", flush=True)
        input()
""")

ENDING_CLIENT = dedent("""
    import ledger
    from celery.exceptions import TimeoutError

    result = ledger.record.apply_async(("/dev/null", 1))
    try:
        result.get(timeout=0.1)
    except TimeoutError:
        print(result.backend.binding.name)
""")

SETTINGS = """
destination_purge_interval = "100ms"
expire_interval = "100ms"

[[policies]]
queue = ">"
inactive_timeout_before_gc = "200ms"
"""


def test_the_queues_of_a_killed_client_are_removed(tmp_path):
    """Those of its results, of the replies to its remote control, and of the events that it watched."""
    (tmp_path / "broker.toml").write_text(SETTINGS)
    with Broker(config=tmp_path / "broker.toml") as broker, connect(broker.uri) as client:
        url = f"activemq+failover:({broker.uri})"
        with subprocess.Popen(
            [sys.executable, "-c", CLIENT],
            cwd=HERE,
            env=environment(url, PYTHONPATH=os.pathsep.join((str(HERE), environment(url)["PYTHONPATH"]))),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            results, replies, events = (process.stdout.readline().strip() for _ in range(3))
            assert process.stdout.readline() == "ready\n"
            with client.consumer(f"queue://{results}", selector="never = 'matches'"):  # keeps it until it was seen
                client.send(f"queue://{results}", "of a task", persistent=False, ttl=1)  # never read
                assert client.destination_exists(f"queue://{results}")
                assert client.destination_exists(f"queue://{events}")
            process.kill()
        wait, deadline = threading.Event(), time.monotonic() + 60
        for name in (results, replies, events):
            while client.destination_exists(f"queue://{name}"):
                assert time.monotonic() < deadline, name
                wait.wait(0.1)
        assert client.destination_exists("queue://celery")  # it has the task


def test_the_queue_of_results_ends_with_a_client_that_closes_nothing():
    with Broker() as broker, connect(broker.uri) as client:
        url = f"activemq+failover:({broker.uri})"
        done = subprocess.run(
            [sys.executable, "-c", ENDING_CLIENT],
            env=environment(url, PYTHONPATH=os.pathsep.join((str(HERE), environment(url)["PYTHONPATH"]))),
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == ""
        assert not client.destination_exists(f"queue://{done.stdout.strip()}")
        assert client.destination_exists("queue://celery")
