"""HAProxy as Debian has it, in front of what a test serves."""

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

SECONDS = 30.0


@contextlib.contextmanager
def haproxy(configuration: Path, fronts: Iterable[int]) -> Iterator[None]:
    """Run it by a configuration file until the end; its ports, `fronts`, can be connected to from the beginning on."""
    program = shutil.which("haproxy")
    assert program is not None
    proxy = subprocess.Popen([program, "-f", str(configuration), "-db"])
    try:
        for port in fronts:
            _await_port(proxy, port)
        yield
    finally:
        proxy.terminate()
        proxy.wait(SECONDS)


def _await_port(proxy: "subprocess.Popen[bytes]", port: int) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), SECONDS):
            return
        assert proxy.poll() is None, f"HAProxy has ended with exit code {proxy.returncode}"
        assert time.monotonic() < deadline, f"nothing listens on port {port}"
