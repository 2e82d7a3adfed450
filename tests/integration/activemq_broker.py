# mypy: disable-error-code="union-attr"
"""A stock ActiveMQ in a process of its own, for tests that do the same to it as to pybroker.

It is `tests/java/StockBroker.java`: Debian's 5.17 with KahaDB, an OpenWire and a STOMP connector and the scheduler.
"""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.integration.cluster import free_port

JVM_TUNING = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""The first compiler tier and one collector thread start a short-lived JVM fastest."""


class ActiveMQProcess:
    """One broker on a directory. On a directory that another one holds it waits as the slave."""

    def __init__(
        self,
        class_path: str,
        directory: Path,
        *,
        policies: Sequence[str] = (),
        openwire: int | None = None,
        stomp: int | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.openwire = openwire or free_port()
        self.stomp = stomp or free_port()
        self.log = directory.with_name(f"{directory.name}-{self.openwire}.log")
        command = ["java", *JVM_TUNING, "-cp", class_path, "StockBroker", str(directory)]
        command += [str(self.openwire), str(self.stomp), *policies]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)

    @property
    def uri(self) -> str:
        """The address for OpenWire clients."""
        return f"tcp://127.0.0.1:{self.openwire}"

    def wait(self) -> "ActiveMQProcess":
        """Return once it serves."""
        line = self.process.stdout.readline()
        assert line == b"listening\n", f"ActiveMQ did not start:\n{self.log.read_text()}"
        return self

    def mbeans(self) -> dict[str, dict[str, Any]]:
        """Return the attributes of its MBeans by their canonical names; needs `useJmx`."""
        self.process.stdin.write(b"mbeans\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """Leave nothing running; no one needs what it would do in an orderly stop."""
        self.kill()
        self.process.stdin.close()
        self.process.stdout.close()
