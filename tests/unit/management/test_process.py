"""The process of management itself."""

import socket
import subprocess
import sys

import pytest

SECONDS = 30.0


@pytest.mark.parametrize("port", ["--health", "--management"])
def test_it_ends_with_a_node_that_dies_before_its_settings(port: str) -> None:
    """A node that is killed as it starts must not leave its ports taken."""
    own, end = socket.socketpair()
    with own, end, socket.create_server(("127.0.0.1", 0)) as listening:
        options = ["--link", str(end.fileno()), port, str(listening.fileno())]
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "pybroker.management", *options], pass_fds=(end.fileno(), listening.fileno())
        )
        try:
            end.close()
            own.close()
            assert process.wait(SECONDS) == 0
        finally:
            process.kill()
            process.wait()
