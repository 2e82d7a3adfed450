"""Celery on pybroker, RabbitMQ and Redis: tasks per second, and the time from `delay()` to the result.

Run from the root of the checkout, with the development environment and Debian's `rabbitmq-server` and `redis-server`:

    .venv/bin/python -m benchmarks.celery_tasks --json figures.json

All brokers, each with one worker (`--concurrency` processes), stay up, and are measured in turn, round after round.
Each call has an argument of 1 KB. Results go to one Redis of their own, for all brokers alike. *Burst*: `--clients`
processes call `delay()` as often as `--tasks` says, and wait for all results. *One*: one process calls it again when
the result is there. Tasks are acknowledged late, which is what a queue that must lose nothing needs. Figures are
medians of the rounds; processor time is of the broker, its worker and its clients, over the burst.

The brokers, by the promise that `delay()` returns with:

- `pybroker`, `pybroker-compiled`: the task is synced to disk. The latter has the compiled package in all processes
- `rabbitmq`: the same, by `confirm_publish`; `rabbitmq-quorum` with a quorum queue, of one node here
- `rabbitmq-unconfirmed`: none; Celery's default
- `redis-always`: synced (`appendfsync always`); `redis-everysec`: at most a second is lost
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import celery_load, compiled
from benchmarks.driver import PASSWORD, USER
from benchmarks.failover import free_port
from benchmarks.report import Report, Row, parser, quantile
from benchmarks.side_by_side.brokers import Broker, cpu_seconds, start_pybroker, start_rabbitmq
from benchmarks.side_by_side.rows import Protocol

ROOT = Path(__file__).parents[1]
REFERENCE = "rabbitmq"
TARGET_RATIO = 0.8
"""The least share of RabbitMQ's tasks per second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A broker as it is measured.

    Attributes:
        start: starts it in a directory.
        url: its URL for Celery, with `{}` for the port.
        variables: further variables of worker and clients.
        is_compiled: broker, worker and clients have the compiled package.
    """

    start: Callable[[Path, Mapping[str, str]], Broker]
    url: str
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    is_compiled: bool = False


def _pybroker(directory: Path, variables: Mapping[str, str]) -> Broker:
    return start_pybroker(directory, Protocol.OPENWIRE, variables=variables)


def _rabbitmq(directory: Path, _: Mapping[str, str]) -> Broker:
    return start_rabbitmq(directory)


def _redis(fsync: str) -> Callable[[Path, Mapping[str, str]], Broker]:
    def start(directory: Path, _: Mapping[str, str]) -> Broker:
        return start_redis(directory, "--appendonly", "yes", "--appendfsync", fsync)

    return start


_RABBITMQ_URL = f"pyamqp://{USER}:{PASSWORD}@127.0.0.1:{{}}//"

KINDS: Mapping[str, Kind] = {
    "pybroker": Kind(start=_pybroker, url="activemq://127.0.0.1:{}/"),
    "pybroker-compiled": Kind(start=_pybroker, url="activemq://127.0.0.1:{}/", is_compiled=True),
    "rabbitmq": Kind(start=_rabbitmq, url=_RABBITMQ_URL, variables={celery_load.CONFIRMS: "1"}),
    "rabbitmq-quorum": Kind(
        start=_rabbitmq, url=_RABBITMQ_URL, variables={celery_load.CONFIRMS: "1", celery_load.QUEUE_TYPE: "quorum"}
    ),
    "rabbitmq-unconfirmed": Kind(start=_rabbitmq, url=_RABBITMQ_URL),
    "redis-everysec": Kind(start=_redis("everysec"), url="redis://127.0.0.1:{}/0"),
    "redis-always": Kind(start=_redis("always"), url="redis://127.0.0.1:{}/0"),
}
DEFAULT_KINDS = ("pybroker", "rabbitmq", "rabbitmq-unconfirmed", "redis-everysec", "redis-always")


def main() -> None:
    """Measure and print."""
    command_line = parser(__doc__)
    command_line.add_argument("--brokers", default=",".join(DEFAULT_KINDS), help=f"any of {', '.join(KINDS)}")
    command_line.add_argument("--tasks", type=int, default=1000, help="calls of each client in a burst")
    command_line.add_argument("--calls", type=int, default=300, help="calls one at a time, in each round")
    command_line.add_argument("--clients", type=int, default=2, help="client processes of a burst")
    command_line.add_argument("--concurrency", type=int, default=2, help="processes of a worker")
    command_line.add_argument("--rounds", type=int, default=5, help="rounds, in each of which every broker has a turn")
    options = command_line.parse_args()
    if options.quick:
        options.tasks, options.calls, options.rounds = 20, 10, 1
    names: list[str] = options.brokers.split(",")
    report = Report(options)
    with tempfile.TemporaryDirectory(dir=options.directory) as folder, ExitStack() as stack:
        directory = Path(folder)
        backend = stack.enter_context(start_redis(_made(directory / "results"), "--appendonly", "no"))
        backend.wait_until_listening()
        url = f"redis://127.0.0.1:{backend.ports[Protocol.OPENWIRE]}/0"
        teams = [stack.enter_context(team(name, KINDS[name], directory, url, options)) for name in names]
        for number in range(options.rounds):
            print(f"round {number + 1}", file=sys.stderr, flush=True)
            for each in teams:
                each.measure(options)
    rows = [each.row() for each in teams]
    report.table("Celery: bursts of tasks of 1 KB, and calls one at a time", rows)
    _compare(report, teams)
    report.finish()


def start_redis(directory: Path, *arguments: str) -> Broker:
    """Start Debian's redis-server with its data in a directory, which must exist, without snapshots."""
    port = free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory), "--save", ""]
    ports = {Protocol.OPENWIRE: port}  # the only one; its protocol is Redis's own
    return Broker("redis", [*command, *arguments], ports, log=directory / "log", environment=dict(os.environ))


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


# ---------------------------------------------------------------- one broker with its worker and clients


class Client:
    """A process of `celery_load`."""

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        command = [sys.executable, "-m", "benchmarks.celery_load"]
        with log.open("wb") as stream:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stream, env=environment, text=True
            )

    def request(self, request: str) -> None:
        """Send a request; `answer` waits for its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{request}\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """Return the answer. Raises `RuntimeError` if the client has ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("a client has failed")
        return json.loads(line)


class Team:
    """A broker with a worker and clients, and what they have measured.

    Attributes:
        name: the key in `KINDS`.
        rates: tasks per second of each burst.
    """

    def __init__(self, name: str, broker: Broker, worker: "subprocess.Popen[bytes]", clients: Sequence[Client]) -> None:
        self.name = name
        self.rates: list[float] = []
        self._broker, self._worker, self._clients = broker, worker, clients
        self._sent: list[float] = []
        self._calls: list[float] = []
        self._cpu: dict[str, list[float]] = {"broker": [], "worker": [], "clients": []}

    def warm(self, options: argparse.Namespace) -> None:
        """Wait for the worker, and let everything run once."""
        for each in self._clients:
            each.request(f"burst {max(1, options.tasks // 10)}")
        for each in self._clients:
            each.answer()

    def measure(self, options: argparse.Namespace) -> None:
        """Measure one round."""
        before = self._cpu_now()
        for each in self._clients:
            each.request(f"burst {options.tasks}")
        answers = [each.answer() for each in self._clients]
        after = self._cpu_now()
        count = options.tasks * len(self._clients)
        self.rates.append(count / max(answer["done"] for answer in answers))
        self._sent.append(count / max(answer["sent"] for answer in answers))
        for name, seconds in after.items():
            self._cpu[name].append((seconds - before[name]) / count * 1e6)
        self._cpu["clients"].append(sum(answer["cpu"] for answer in answers) / count * 1e6)
        self._clients[0].request(f"one {options.calls}")
        self._calls += self._clients[0].answer()["seconds"]

    def _cpu_now(self) -> dict[str, float]:
        workers = [self._worker.pid, *_children(self._worker.pid)]
        return {"broker": cpu_seconds(self._broker.pid), "worker": sum(map(cpu_seconds, workers))}

    def row(self) -> Row:
        """Return the figures."""
        return {
            "broker": self.name,
            "tasks/s": statistics.median(self.rates),
            "least": min(self.rates),
            "most": max(self.rates),
            "delay()/s": statistics.median(self._sent),
            "p50 ms": statistics.median(self._calls) * 1000,
            "p99 ms": quantile(self._calls, 0.99) * 1000,
            **{f"{name} CPU us/task": statistics.median(values) for name, values in self._cpu.items()},
        }


@contextmanager
def team(name: str, kind: Kind, directory: Path, backend: str, options: argparse.Namespace) -> Iterator[Team]:
    """Start a broker with its worker and clients; all are killed at the end."""
    place = _made(directory / name)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), celery_load.BACKEND: backend, **kind.variables}
    of_broker: dict[str, str] = {}
    if kind.is_compiled:
        of_broker = compiled.environment(compiled.unpacked())
        environment |= of_broker | {"PYTHONPATH": f"{of_broker['PYTHONPATH']}{os.pathsep}{ROOT}"}
    with ExitStack() as stack:
        broker = stack.enter_context(kind.start(place, of_broker))
        broker.wait_until_listening()
        environment[celery_load.BROKER] = kind.url.format(next(iter(broker.ports.values())))
        worker = _worker(environment, place / "worker.log", options.concurrency)
        stack.callback(_kill, worker)
        clients = [Client(environment, place / f"client{number}.log") for number in range(options.clients)]
        for each in clients:
            stack.callback(_kill, each.process)
        made = Team(name, broker, worker, clients)
        try:
            made.warm(options)
            yield made
        except RuntimeError as error:
            error.add_note("\n".join(f"{path}:\n{path.read_text()[-3000:]}" for path in sorted(place.glob("*.log"))))
            raise


def _worker(environment: Mapping[str, str], log: Path, concurrency: int) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "celery", "--app", "benchmarks.celery_load", "worker", "--loglevel", "WARNING"]
    command += ["--concurrency", str(concurrency), "--without-heartbeat"]
    variables = {**environment, "C_FORCE_ROOT": "1"}
    with log.open("wb") as stream:
        return subprocess.Popen(command, stdout=stream, stderr=stream, env=variables)


def _kill(process: "subprocess.Popen[Any]") -> None:
    for pid in _children(process.pid):
        os.kill(pid, 9)
    process.kill()
    process.wait()


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(child) for child in task.read_text().split()]
    return found


def _compare(report: Report, teams: Sequence[Team]) -> None:
    """Print the ratios to the reference: the median of those of neighbouring turns."""
    reference = next((each for each in teams if each.name == REFERENCE), None)
    if reference is None:
        return
    rows: list[Row] = []
    for each in teams:
        ratios = [rate / other for rate, other in zip(each.rates, reference.rates, strict=True)]
        ratio = statistics.median(ratios)
        target = "" if not each.name.startswith("pybroker") else "met" if ratio >= TARGET_RATIO else "missed"
        rows.append({"broker": each.name, "tasks/s, ratio": ratio, "least": min(ratios), "target 0.8": target})
    report.table(f"against {REFERENCE}", rows)


if __name__ == "__main__":
    main()
