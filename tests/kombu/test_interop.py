"""Programs without Kombu: one in Java calls a task of Celery, and one over STOMP reads a task."""

import json
import queue as queues
from pathlib import Path
from typing import Any

import pytest
import stomp

from tests.conftest import Java
from tests.kombu.channels import PATIENCE
from tests.kombu.test_celery import Application

SEND_TASK = Path(__file__).parent / "java" / "SendTask.java"


@pytest.fixture
def application(broker_ports, tmp_path):
    application = Application(f"activemq://127.0.0.1:{broker_ports[1]}/", tmp_path)
    yield application
    application.close()


@pytest.mark.component("activemq")
@pytest.mark.parametrize("form", ["second", "first"])
def test_a_java_program_calls_a_task(application, broker_uri, java: Java, name, form):
    """In both of Celery's formats."""
    queue, arguments = f"{name}.tasks", [str(application.path), 7]
    if form == "second":
        body = json.dumps([arguments, {}, {}])
    else:
        body = json.dumps({"task": "ledger.record", "id": name, "args": arguments, "kwargs": {}})
    with application.worker("one", "--concurrency", "1", "--pool", "solo", "--queues", queue):
        java.run(SEND_TASK, broker_uri, queue, "ledger.record", name, body)
        (run,) = application.wait(1)
        assert run.number == 7
        application.wait_logged("one", f"{name}] succeeded", 1)


def test_a_stomp_program_reads_a_task_as_text(application, broker_ports, name):
    queue, frames = f"{name}.tasks", queues.SimpleQueue[Any]()
    sent = application.record(7, queue=queue)
    connection = stomp.Connection12([("127.0.0.1", broker_ports[2])])
    listener = stomp.ConnectionListener()
    listener.on_message = frames.put
    connection.set_listener("", listener)
    connection.connect(wait=True)
    connection.subscribe(f"/queue/{queue}", "1")
    frame = frames.get(timeout=PATIENCE)
    connection.disconnect()
    assert json.loads(frame.body)[0] == [str(application.path), 7, 0.0]
    assert frame.headers["celery_task"] == "ledger.record"
    assert frame.headers["celery_id"] == sent.id
    assert json.loads(frame.headers["kombu_headers"])["task"] == "ledger.record"
