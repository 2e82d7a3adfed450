"""An etcd of one's own for a while: one node, with its data in a directory, on two free ports of this machine."""

import contextlib
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

ADVICE = "this needs an etcd: sudo apt-get install etcd-server (Debian, Ubuntu)"
PATIENCE_SECONDS = 20.0


@contextlib.contextmanager
def private_etcd(directory: Path, port: int, peer_port: int) -> Iterator[None]:
    """Run a node, which serves clients on the first port of the loopback."""
    program = shutil.which("etcd")
    if program is None:
        raise SystemExit(ADVICE)
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    command = [program, "--data-dir", str(directory), "--listen-client-urls", client, "--advertise-client-urls", client]
    command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
    command += ["--initial-cluster", f"default={peer}"]
    node = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_healthy(client):
            if node.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"etcd did not start: run it by hand with {' '.join(command)}")
            time.sleep(0.05)
        yield
    finally:
        node.kill()
        node.wait()


def is_healthy(address: str) -> bool:
    """Return True if the node has elected itself, and answers."""
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=1) as answer:
            return bool(json.load(answer)["health"] == "true")
    except OSError:
        return False
