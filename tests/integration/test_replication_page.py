"""The page about replication: its commands start a cluster, a kill is survived, and its settings are accepted."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trustme

from pybroker.client.sync import connect
from tests.etcd_cluster import EtcdCluster, etcd_cluster  # noqa: F401
from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.replicated import ReplicatedCluster
from tests.integration.test_pages import PATIENCE_SECONDS, environment, running, shape, status, wait_status
from tests.pages import block

pytestmark = [pytest.mark.component("etcd"), pytest.mark.timeout(180)]

PAGE = "docs/replication.md"
PORTS = ("2379", "61613", "61616", "61620", "61623", "61626", "61630")


@pytest.fixture
def ports() -> dict[str, str]:
    """The ports of the page, and the test's own."""
    return {port: str(free_port()) for port in PORTS}


def with_own(ports: dict[str, str], part: str) -> str:
    """Return commands of the page, with the test's own ports."""
    return re.sub("|".join(PORTS), lambda match: ports[match[0]], block(PAGE, "sh", part))


def variables(ports: dict[str, str]) -> dict[str, str]:
    """Return the settings that move the etcd and the first member, which the page leaves at their default ports."""
    client, peer = f"http://127.0.0.1:{ports['2379']}", f"http://127.0.0.1:{free_port()}"
    return {
        "ETCD_LISTEN_CLIENT_URLS": client,
        "ETCD_ADVERTISE_CLIENT_URLS": client,
        "ETCD_LISTEN_PEER_URLS": peer,
        "ETCD_INITIAL_ADVERTISE_PEER_URLS": peer,
        "ETCD_INITIAL_CLUSTER": f"default={peer}",
        "PYBROKER_OPENWIRE": ports["61616"],
        "PYBROKER_STOMP": ports["61613"],
        "PYBROKER_REPLICATE_PORT": ports["61620"],
    }


def test_the_pages_commands_start_a_pair_that_survives_a_kill(tmp_path: Path, ports: dict[str, str]) -> None:
    first, second = with_own(ports, "etcd --data-dir"), with_own(ports, "--wait in-sync")
    with running(f"{first}wait", tmp_path, variables(ports)):
        while not (tmp_path / "a").exists():
            time.sleep(0.1)
        wait_status("--store", str(tmp_path / "a"), parts=("master: a", "tcp://"))
        with running(f"{second.rstrip()} > answer; wait", tmp_path, {}):
            survive_a_kill(tmp_path, ports)


def survive_a_kill(directory: Path, ports: dict[str, str]) -> None:
    """Read what the page's last command prints, and kill the master."""
    answer, deadline = directory / "answer", time.monotonic() + PATIENCE_SECONDS
    while not answer.exists() or not answer.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert shape(answer.read_text()) == shape(block(PAGE, "text", "replicated: cluster orders"))
    with connect(f"failover:(tcp://127.0.0.1:{ports['61616']},tcp://127.0.0.1:{ports['61626']})") as connection:
        connection.send("TEA", "kept", timeout=PATIENCE_SECONDS)
        deadline = time.monotonic() + PATIENCE_SECONDS
        expected = [["a", "master", "0"], ["b", "in-sync", "0"]]
        while (shown := [line.split()[:3] for line in running_program(directory)]) != expected:
            assert time.monotonic() < deadline, shown  # b has confirmed the message, and a publishes that later
        members = json.loads(status("--store", str(directory / "a"), "--json").stdout)["members"]
        os.kill(members[0]["pid"], signal.SIGKILL)
        with connection.consumer("TEA") as consumer:
            assert consumer.receive(timeout=PATIENCE_SECONDS).body == "kept"
    wait_status("--store", str(directory / "b"), parts=("master: b", "NO OTHER until this one returns"))


def running_program(directory: Path) -> list[str]:
    """Return the lines that the page's program for scripts prints, in the directory of the stores."""
    command = [sys.executable, "-c", block(PAGE, "python", "status")]
    done = subprocess.run(command, env=environment(), cwd=directory, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()


def test_testing_page_kills_a_replicated_master(etcd_cluster: EtcdCluster, tmp_path: Path) -> None:  # noqa: F811
    text = block("docs/testing.md", "python", "election_store = ")
    text = text.replace("etcd://127.0.0.1:2379/", etcd_cluster.url().rpartition("/")[0] + "/")
    text = re.sub(r"\b616[0-9]{2}\b", lambda match: str(free_port()), text)
    (tmp_path / "test_replicated_orders.py").write_text(text)
    (tmp_path / "orders.py").write_text(block("docs/testing.md", "python", "def place("))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "t")]
    done = subprocess.run(command, env=environment(), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_pages_settings_start_a_member(etcd_cluster: EtcdCluster, tmp_path: Path) -> None:  # noqa: F811
    users, secret, config = tmp_path / "users.toml", tmp_path / "replicate.secret", tmp_path / "pybroker.toml"
    users.write_text("[users]\n")
    secret.touch(0o600)
    secret.write_text("0123456789abcdef" * 4)
    text = block(PAGE, "toml", "replicate_secret_file").replace("/etc/pybroker", str(tmp_path))
    text = text.replace("/var/lib/pybroker", str(tmp_path / "store"))
    config.write_text(re.sub(r"etcd://[^\"]+", etcd_cluster.url(), text))
    extra = ("--config", str(config), "--openwire", str(free_port()), "--replicate-port", str(free_port()))
    member = BrokerProcess(str(tmp_path / "store"), name="a", port=free_port(), extra=extra)
    try:
        member.wait_for("clients are served")
        assert member.terminate() == 0
    finally:
        member.close()


def test_the_pages_certificates_start_members(etcd_cluster: EtcdCluster, tmp_path: Path) -> None:  # noqa: F811
    """A master with certificates, and a standby that names it and nothing else."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "members-ca.pem")
    issued = authority.issue_cert("127.0.0.1", "a.example")
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "member.pem")
    text = block(PAGE, "toml", "replicate_tls_certificate").replace("/etc/pybroker", str(tmp_path))
    config, line = tmp_path / "tls.toml", tmp_path / "line.toml"
    config.write_text(text)
    with ReplicatedCluster(tmp_path, etcd_cluster.url(), "a", "--config", str(config)) as cluster:
        cluster.members["a"].wait_for("(TLS)")
        address = cluster.address("a")
        line.write_text(text + block(PAGE, "toml", "tcp://").replace("tcp://a.example:61620", address))
        cluster.add("b", "--config", str(line), is_alone=True, has_file=True)
        cluster.wait_in_sync("a", "b")
