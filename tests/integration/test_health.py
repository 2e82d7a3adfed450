"""The health checks of real brokers: of a pair whose master is killed, stopped, or hangs; and their process."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.descriptors import targets
from tests.integration.cluster import BrokerProcess, Pair, free_port
from tests.integration.stomp_client import StompClient

SECONDS = 30.0
ROOT = Path(__file__).parents[2]

Start = Callable[..., BrokerProcess]
Connect = Callable[..., StompClient]


def health_port(broker: BrokerProcess) -> int:
    return int(broker.wait_for(r"health checks at http://127.0.0.1:(\d+)")[1])


def get(port: int, path: str) -> tuple[int, str]:
    """Return status and text of a check; 0 if none answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=SECONDS) as answer:
            return answer.status, answer.read().decode().strip()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode().strip()
    except OSError:
        return 0, ""


def is_healthy(port: int) -> bool:
    """Run the check of docker-compose.yml, with another port and this Python."""
    service = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["a"]
    kind, python, *arguments = service["healthcheck"]["test"]
    assert (kind, python) == ("CMD", "python")
    assert "127.0.0.1:8162/" in arguments[-1]
    command = [sys.executable, *arguments[:-1], arguments[-1].replace(":8162/", f":{port}/")]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def wait_for(port: int, path: str, *expected: tuple[int, str]) -> None:
    deadline = time.monotonic() + SECONDS
    while (found := get(port, path)) not in expected:
        assert time.monotonic() < deadline, found


def wait_for_end(process: int) -> None:
    deadline = time.monotonic() + SECONDS
    while Path(f"/proc/{process}").exists():
        assert time.monotonic() < deadline, "the process has outlived its node"


def process_of(broker: BrokerProcess) -> int:
    """Return the process id of a broker's management process."""
    children = Path(f"/proc/{broker.process.pid}/task").glob("*/children")
    found = [int(each) for file in children for each in file.read_text().split()]
    managing = [each for each in found if b"pybroker.management" in Path(f"/proc/{each}/cmdline").read_bytes()]
    assert len(managing) == 1, found
    return managing[0]


def test_a_pair_through_a_failover_and_a_stop(tmp_path: Path) -> None:
    with Pair(tmp_path / "store", "--health", "0") as pair:
        master, standby = pair.wait_for_master(), pair.wait_for_standby()
        first, second = health_port(master), health_port(standby)
        wait_for(first, "/master", (200, "master"))
        wait_for(second, "/standby", (200, "standby"))
        assert get(second, "/master") == (503, "standby")
        assert get(first, "/standby") == (503, "master")
        assert get(first, "/ready") == (200, "master")
        assert get(second, "/ready") == (200, "standby")
        left = process_of(master)
        master.kill()
        wait_for(second, "/master", (200, "master"))
        wait_for(first, "/live", (0, ""))
        wait_for_end(left)
        assert standby.terminate() == 0
        wait_for(second, "/live", (0, ""))


def test_a_standby_that_could_not_serve_is_degraded(tmp_path: Path, start: Start) -> None:
    store, port = tmp_path / "store", free_port()
    start(store=store).wait_for("listening on")
    with_port = start(store="memory:", port=port)
    with_port.wait_for("listening on")
    standby = start("--health", "0", store=store, name="b", port=port)
    wait_for(
        health_port(standby),
        "/ready",
        (503, f"degraded: stomp: cannot use 127.0.0.1 port {port}: Address already in use; stop what uses it (see "
         "`ss -ltnp`), or choose another port, or 0 for any free one"),
    )  # fmt: skip
    assert get(health_port(standby), "/live")[0] == 200
    assert not is_healthy(health_port(standby))


def test_a_management_process_that_ends_is_started_again(start: Start) -> None:
    broker = start("--health", "0", store="memory:")
    broker.wait_for("listening on")
    port = health_port(broker)
    wait_for(port, "/master", (200, "master"))
    os.kill(process_of(broker), signal.SIGKILL)
    broker.wait_for(r"management process has ended \(exit code -9\): it is started again in 0 s")
    assert get(port, "/master") == (200, "master")  # the port stays, and the check waits until it is answered


def test_it_holds_no_descriptor_of_the_node(start: Start) -> None:
    broker = start("--health", "0")
    broker.wait_for("listening on")
    wait_for(health_port(broker), "/master", (200, "master"))
    assert [each for each in targets(process_of(broker)) if each.startswith("/") and each != "/dev/null"] == []
    environment = Path(f"/proc/{process_of(broker)}/environ").read_bytes().split(b"\0")
    assert not [each for each in environment if each.startswith(b"PYBROKER_")]


def test_a_port_that_is_taken_is_found_at_the_start(start: Start) -> None:
    taken = start(store="memory:", port=(port := free_port()))
    taken.wait_for("listening on")
    refused = start("--health", str(port), store="memory:", name="b")
    refused.wait_for(re.escape(f"health: cannot use 127.0.0.1 port {port}: Address already in use"))
    assert refused.join() == 2


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_node_that_stops_is_not_ready(start: Start, connect: Connect, loop: str) -> None:
    broker = start("--health", "0", "--event-loop", loop, "--stop-timeout", "20s", store="memory:")
    broker.wait_for("listening on")
    port = health_port(broker)
    wait_for(port, "/ready", (200, "master"))
    reader, sender = connect(broker.port), connect(broker.port)
    reader.request("SUBSCRIBE", id="1", destination="/queue/Q", ack="auto")
    for _ in range(20):
        sender.request("SEND", bytes(1_000_000), destination="/queue/Q")
    broker.process.send_signal(signal.SIGTERM)  # it waits until the reader has read what is sent to it
    wait_for(port, "/master", (503, "stopping"))
    assert get(port, "/ready") == (503, "stopping")
    assert get(port, "/live") == (200, "stopping")
    reader.close()
    assert broker.join() == 0
    wait_for(port, "/live", (0, ""))


def test_healthcheck_of_docker_compose(start: Start) -> None:
    broker = start("--health", "0", store="memory:")
    broker.wait_for("listening on")
    port = health_port(broker)
    wait_for(port, "/ready", (200, "master"))
    assert is_healthy(port)
    assert broker.terminate() == 0
    wait_for(port, "/live", (0, ""))
    assert not is_healthy(port)
