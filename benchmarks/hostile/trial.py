"""One attack on one broker: starts the processes, samples the broker, and gathers what each of them measured."""

import contextlib
import json
import os
import re
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.hostile.attacks import Attack
from benchmarks.hostile.verdict import Waits, judged, problems
from benchmarks.side_by_side.brokers import ACTIVEMQ, Broker, start_activemq, start_pybroker
from benchmarks.side_by_side.rows import Protocol

ROOT: Final = Path(__file__).parents[2]
_SAMPLE_SECONDS: Final = 0.05
_QUIET_SECONDS: Final = 0.3
"""The bystander alone, before."""
_AFTER_SECONDS: Final = 1.0
"""The bystander alone, after the attacker's end, which may be work for the broker too."""
_PREPARE_SECONDS: Final = 180.0
_ANSWER_SECONDS: Final = 20.0
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_DELAY_SECONDS: Final = 0.002
_STOLEN_COLUMN: Final = 8
_TICK_NS: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What one attack did to one broker.

    Attributes:
        broker: its name.
        outcome: what the attacker was answered.
        reached: the depths that it reached.
        seconds: how long the attack took.
        waits: of the bystander.
        peak_mb, after_mb: the broker's resident memory at most, and after the attack.
        log_kb: what it wrote into its log.
        problems: the promises that it broke, and depths that the attack did not reach.
    """

    broker: str
    outcome: str
    reached: Sequence[str]
    seconds: float
    waits: Waits
    peak_mb: float
    after_mb: float
    log_kb: float
    problems: Sequence[str]


def run_trial(
    attack: Attack,
    broker_name: str,
    directory: str,
    *,
    quick: bool,
    variables: Mapping[str, str],
    keep: Path | None = None,
) -> Trial:
    """Start a broker on an empty store, attack it, and return what was measured.

    Args:
        attack: what to run.
        broker_name: `pybroker` or `activemq`.
        directory: where the store goes.
        quick: the short form.
        variables: of the broker's environment, such as where the compiled package is.
        keep: a file that the broker's log is appended to.
    """
    with tempfile.TemporaryDirectory(dir=directory, prefix="hostile-") as name:
        folder = Path(name)
        with _start(attack, broker_name, folder, variables) as broker:
            broker.wait_until_listening()
            try:
                return _measured(attack, broker, folder / "log", quick=quick)
            finally:
                if keep is not None:
                    with keep.open("ab") as file:
                        file.write(f"--- {attack.name}\n".encode() + (folder / "log").read_bytes())


def _start(attack: Attack, broker_name: str, folder: Path, variables: Mapping[str, str]) -> Broker:
    if broker_name == ACTIVEMQ:
        return start_activemq(folder)
    extra = ["--memory-limit", f"{attack.memory_limit_mb}mb", *attack.extra]
    if attack.tls:
        extra += ["--stomp-ssl", "0", "--tls-certificate", str(_certificate(folder))]
    return start_pybroker(folder, Protocol.OPENWIRE, extra=extra, variables=variables)


def _certificate(folder: Path) -> Path:
    """Return a file with a certificate and its key, of RSA, whose handshakes cost a server most."""
    file = folder / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-keyout", str(file), "-out", f"{file}.crt"], check=True, capture_output=True)
    with file.open("ab") as joined:
        joined.write(Path(f"{file}.crt").read_bytes())
    return file


def _tls_port(log: Path) -> list[str]:
    """Return the attacker's arguments for the port of the TLS listener, which the log names; none without one."""
    found = re.search(r"stomp\+ssl://127\.0\.0\.1:(\d+)", log.read_text())
    return ["--tls", found[1]] if found else []


def _measured(attack: Attack, broker: Broker, log: Path, *, quick: bool) -> Trial:
    ports = ["--openwire", str(broker.ports[Protocol.OPENWIRE]), "--stomp", str(broker.ports[Protocol.STOMP])]
    arguments = [attack.name, *ports, *_tls_port(log), *(["--quick"] if quick else [])]
    with _Child("attacker", arguments) as attacker, _Child("bystander", ports) as bystander:
        attacker.answer(_PREPARE_SECONDS)
        bystander.answer(_PREPARE_SECONDS)
        time.sleep(_QUIET_SECONDS)
        log_bytes = log.stat().st_size
        with _sampled(broker.pid) as samples:
            attacker.order()
            result = attacker.answer(attack.seconds_max)
            attacker.end()
            time.sleep(_AFTER_SECONDS)
            bystander.order()
            measured = bystander.answer(_ANSWER_SECONDS)
    if measured is None:
        raise RuntimeError("the bystander does not answer")
    if result is None:
        outcome = f"under way after {attack.seconds_max:g} s"
        result = {
            "outcome": outcome, "seconds": attack.seconds_max, "harm": [], "reached": [], "missed": [outcome],
        }  # fmt: skip
    waits = judged(measured["waits"], late=measured["late"], delays=samples.delays)
    log_kb = (log.stat().st_size - log_bytes) / 1024
    return Trial(
        broker=broker.name,
        outcome=result["outcome"],
        reached=result["reached"],
        seconds=result["seconds"],
        waits=waits,
        peak_mb=samples.peak_mb,
        after_mb=samples.last_mb,
        log_kb=log_kb,
        problems=problems(
            waits,
            peak_mb=samples.peak_mb,
            limit_mb=attack.memory_limit_mb,
            frame_mb=attack.frame_mb,
            index_mb=attack.index_mb,
            log_kb=log_kb,
            errors=measured["errors"] + _refusals(attack, measured["refused"]),
            harm=result["harm"],
            missed=result["missed"] if broker.name != ACTIVEMQ else (),  # whose limits and reasons are others
        ),
    )


def _refusals(attack: Attack, refused: int) -> list[str]:
    return [f"{refused} connections refused"] if refused and not attack.fills else []


class _Child:
    """A process of this package that speaks lines of JSON."""

    def __init__(self, module: str, arguments: Sequence[str]) -> None:
        command = [sys.executable, "-m", f"benchmarks.hostile.{module}", *arguments]
        self._name = module
        self._process = subprocess.Popen(
            _on_last_core(command), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )  # fmt: skip
        self._rest = b""

    def __enter__(self) -> "_Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def order(self) -> None:
        """Send it a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def answer(self, seconds: float) -> dict[str, Any] | None:
        """Return its next line, or None if it takes longer. Raises `RuntimeError` when the process has ended."""
        assert self._process.stdout is not None
        until = time.monotonic() + seconds
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return None
            chunk = os.read(self._process.stdout.fileno(), 1 << 20)
            if not chunk:
                raise RuntimeError(f"the {self._name} has ended")
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def _on_last_core(command: list[str]) -> list[str]:
    """Return a command that keeps off all processors but the last one, so that the broker has the others."""
    cores = sorted(os.sched_getaffinity(0))
    return ["taskset", "--cpu-list", str(cores[-1]), *command] if len(cores) > 1 else command


class _Samples:
    """The broker's resident memory, and when its main thread could run but had no processor.

    Either another thread had it, or the host of a virtual machine had taken it away.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._delay_ns = self._read_delay()
        self._at = time.monotonic()
        self.peak_mb = self.last_mb = 0.0
        self.delays: list[tuple[float, float]] = []

    def sample(self) -> None:
        """Read once."""
        pages = int(Path(f"/proc/{self._pid}/statm").read_text().split()[1])
        self.last_mb = pages * _PAGE / (1 << 20)
        self.peak_mb = max(self.peak_mb, self.last_mb)
        now, delay_ns = time.monotonic(), self._read_delay()
        if (delay := (delay_ns - self._delay_ns) / 1e9) > _DELAY_SECONDS:
            self.delays.append((self._at, min(delay, now - self._at)))
        self._at, self._delay_ns = now, delay_ns

    def _read_delay(self) -> int:
        return int(Path(f"/proc/{self._pid}/schedstat").read_text().split()[1]) + _stolen_ns()


def _stolen_ns() -> int:
    """Return what the host took away from the processor that lost most, in nanoseconds since the machine started."""
    cores = [line.split() for line in Path("/proc/stat").read_text().splitlines() if re.match(r"cpu\d", line)]
    return max(int(core[_STOLEN_COLUMN]) for core in cores) * _TICK_NS


@contextlib.contextmanager
def _sampled(pid: int) -> Iterator[_Samples]:
    samples, over = _Samples(pid), threading.Event()

    def run() -> None:
        while not over.wait(_SAMPLE_SECONDS):
            with contextlib.suppress(OSError):  # the broker has ended: the bystander reports it
                samples.sample()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()
