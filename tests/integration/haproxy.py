"""HAProxy as Debian has it, in front of what a test serves."""

import contextlib
import shutil
import socket
import subprocess
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
            _await_port(port)
        yield
    finally:
        proxy.terminate()
        proxy.wait(SECONDS)


def _await_port(port: int) -> None:
    for _ in range(10_000):
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), SECONDS):
            return
    raise AssertionError(f"nothing listens on port {port}")
