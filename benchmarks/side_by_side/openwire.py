"""The stock Java client as a load: one Java machine for a whole run, so that both brokers meet the same warm code.

`../java/Load.java` is compiled once; this end sends it commands, line by line, and reads its answers.
"""

import os
import select
import subprocess
from pathlib import Path

from benchmarks.driver import PASSWORD, USER
from benchmarks.side_by_side.rows import Row, Timing

JARS = tuple(
    Path("/usr/share/java") / f"{name}.jar"
    for name in (
        "activemq-client",
        "geronimo-j2ee-management-1.1-spec",
        "geronimo-jms_1.1_spec",
        "hawtbuf",
        "slf4j-api",
        "slf4j-jdk14",
    )
)
"""Client jars of Debian's libactivemq-java."""

JAVA_OPTIONS = ("-Xms256M", "-Xmx1G")
_SOURCE = Path(__file__).parents[1] / "java" / "Load.java"
_PATIENCE_SECONDS = 120.0
_READ_BYTES = 1 << 16


class JavaClient:
    """A Java process that loads brokers."""

    def __init__(self, directory: Path) -> None:
        """Compile into an existing directory and start."""
        class_path = ":".join(map(str, JARS))
        subprocess.run(["javac", "-nowarn", "-cp", class_path, "-d", str(directory), str(_SOURCE)], check=True)
        self._log = directory / "log"
        with self._log.open("wb") as stream:
            self._process = subprocess.Popen(
                ["java", *JAVA_OPTIONS, "-cp", f"{directory}:{class_path}", _SOURCE.stem],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input = self._process.stdin
        self._output = self._process.stdout
        self._rest = b""

    def __enter__(self) -> "JavaClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._input.close()
        self._output.close()

    @property
    def pid(self) -> int:
        """Of the Java process."""
        return self._process.pid

    def prepare(self, row: Row, port: int, remote_port: int | None = None) -> None:
        """Connect and warm up; on return only the measured part is left.

        Args:
            row: the load.
            port: the broker's.
            remote_port: that of the consumers' broker, if it is another one; of either's with a duplex bridge.
        """
        ports = [port] if remote_port is None else [port, remote_port]
        words = [
            ("<>" if row.duplex else ">").join(f"tcp://127.0.0.1:{each}" for each in ports),
            row.producers,
            row.consumers,
            row.warm,
            row.count,
            row.body_bytes,
            row.ahead,
            row.per_commit,
            row.persistent,
            row.asynchronous,
            row.topic,
            "BENCH",
            USER,
            PASSWORD,
        ]
        self._send(" ".join(map(str, words)))
        self._expect("ready")

    def run(self) -> Timing:
        """Do the measured part, to the last acknowledgement."""
        self._send("go")
        seconds, p50, p99 = map(float, self._expect("result").split())
        return Timing(seconds=seconds, p50_ms=p50, p99_ms=p99)

    def finish(self) -> None:
        """Wait until nothing is left in the queue."""
        self._expect("drained")

    def _send(self, line: str) -> None:
        self._input.write(line.encode() + b"\n")
        self._input.flush()

    def _expect(self, word: str) -> str:
        """Return the rest of the next line, which must begin with `word`."""
        line = self._read_line()
        if not line.startswith(word):
            raise RuntimeError(
                f"the Java client printed {line!r} instead of {word!r}; its log:\n{self._log.read_text()}"
            )
        return line.removeprefix(word)

    def _read_line(self) -> str:
        """Return the next line, empty when the process has ended or is silent for too long."""
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._output], [], [], _PATIENCE_SECONDS)
            chunk = os.read(self._output.fileno(), _READ_BYTES) if ready else b""
            if not chunk:
                return ""
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()
