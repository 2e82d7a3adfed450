"""Celery while its broker and its workers are killed: what was accepted, what ran, and what ran again.

    python -m tests.kombu.kills --brokers pybroker,redis-everysec,redis-always,rabbitmq --kills 50 --tasks 10000

A publisher calls a task at a steady rate; two workers of four processes each run it, for up to 200 ms. Every call has a
number, which the task writes down when it ends, with the mark of redelivery. Brokers are killed with SIGKILL at random
moments of their own, and started again at once: of a pybroker there is a pair, so that the other one takes over; Redis
and RabbitMQ are one server each, which comes back with its files. Workers are killed with all their processes. A call
that raises is made again, as an application would; the number is then no mistake of the broker if it runs twice.

At the end nothing is killed any more. A task is lost if it has not run once none has run for `--patience` seconds.
"""

import argparse
import contextlib
import itertools
import json
import os
import queue
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from kombu.exceptions import OperationalError

from benchmarks.driver import PASSWORD, USER
from benchmarks.failover import free_port
from benchmarks.report import Report, Row, parser
from pybroker.testing import Cluster
from tests.kombu.application import Application, Run

WORKERS = ("one", "two")
CONCURRENCY = 4
VISIBILITY_SECONDS = 10
"""The visibility time-out with Redis: by default an hour passes until tasks of a dead worker run again."""
START_SECONDS = 60.0


class Site(Protocol):
    """A broker installation that can be killed.

    Attributes:
        url: for Celery.
        options: Celery's `broker_transport_options` for it.
    """

    url: str
    options: Mapping[str, object]

    def kill(self) -> None:
        """Kill what serves, and start it again; return when it serves, or waits to take over."""


class PybrokerSite:
    """A pair of ours."""

    options: Mapping[str, object] = {}

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.url = f"activemq+{cluster.uri}"

    def kill(self) -> None:
        self.cluster.wait_standby()
        killed = self.cluster.kill9("master")
        self.cluster.wait_master()
        self.cluster.restart(killed.name)


class ServerSite:
    """One server of another kind on a port of its own, which comes back with its files."""

    def __init__(self, command: Callable[[], "subprocess.Popen[bytes]"], port: int, url: str, **options: object):
        self.url = url
        self.options: Mapping[str, object] = options
        self._command, self._port = command, port
        self._process = self._start()

    def kill(self) -> None:
        self.end()
        self._process = self._start()

    def end(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()

    def _start(self) -> "subprocess.Popen[bytes]":
        process, deadline = self._command(), time.monotonic() + START_SECONDS
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
                return process
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                process.wait()
                raise AssertionError(f"it does not serve: {process.args!r}")
            threading.Event().wait(0.05)


@contextlib.contextmanager
def pybroker_site(directory: Path) -> Iterator[Site]:
    """Run a pair."""
    with Cluster(2, store=directory / "store") as cluster:
        yield PybrokerSite(cluster)


@contextlib.contextmanager
def redis_site(directory: Path, fsync: str) -> Iterator[Site]:
    """Run Debian's redis-server, with an append-only file."""
    port = free_port()
    arguments = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory), "--save", ""]
    arguments += ["--appendonly", "yes", "--appendfsync", fsync]

    def command() -> "subprocess.Popen[bytes]":
        with (directory / "redis.out").open("ab") as log:
            return subprocess.Popen(["redis-server", *arguments], stdout=log, stderr=log)

    site = ServerSite(command, port, f"redis://127.0.0.1:{port}/0", visibility_timeout=VISIBILITY_SECONDS)
    with contextlib.ExitStack() as stack:
        stack.callback(site.end)
        yield site


@contextlib.contextmanager
def rabbitmq_site(directory: Path) -> Iterator[Site]:
    """Run Debian's RabbitMQ, one node. It confirms what it has on disk."""
    port, nodes = free_port(), free_port()
    (directory / "rabbitmq.conf").write_text(
        f"listeners.tcp.default = 127.0.0.1:{port}\ndefault_user = {USER}\ndefault_pass = {PASSWORD}\n"
    )
    (directory / "enabled_plugins").write_text("[].\n")
    variables = {
        "HOME": directory,
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"kills{nodes}@localhost",
        "RABBITMQ_MNESIA_BASE": directory / "data",
        "RABBITMQ_LOG_BASE": directory / "logs",
        "RABBITMQ_CONFIG_FILE": directory / "rabbitmq",
        "RABBITMQ_CONF_ENV_FILE": directory / "none",
        "RABBITMQ_ENABLED_PLUGINS_FILE": directory / "enabled_plugins",
        "RABBITMQ_PID_FILE": directory / "pid",
        "RABBITMQ_DIST_PORT": nodes,
        "ERL_CRASH_DUMP": directory / "crash",
        "RUNNING_UNDER_SYSTEMD": "true",  # no shell stays in front of it
    }

    def command() -> "subprocess.Popen[bytes]":
        environment = os.environ | {name: str(value) for name, value in variables.items()}
        with (directory / "rabbitmq.out").open("ab") as log:
            return subprocess.Popen(["/usr/lib/rabbitmq/bin/rabbitmq-server"], stdout=log, stderr=log, env=environment)

    site = ServerSite(command, port, f"pyamqp://{USER}:{PASSWORD}@127.0.0.1:{port}//", confirm_publish=True)
    with contextlib.ExitStack() as stack:
        stack.callback(subprocess.run, ["epmd", "-kill"], check=False, stdout=subprocess.DEVNULL)
        stack.callback(site.end)
        yield site


SITES: Mapping[str, Callable[[Path], contextlib.AbstractContextManager[Site]]] = {
    "pybroker": pybroker_site,
    "redis-everysec": lambda directory: redis_site(directory, "everysec"),
    "redis-always": lambda directory: redis_site(directory, "always"),
    "rabbitmq": rabbitmq_site,
}


# ---------------------------------------------------------------- the course of a run


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The measure of a run.

    Attributes:
        tasks: calls.
        rate: calls per second.
        kills: of the broker, spread over the calls.
        worker_kills: of workers.
        patience: seconds without a run after which the rest is lost.
        task_seconds: the longest that a task takes.
        is_late: tasks are acknowledged after they ran, not before.
        seed: of all that is random.
    """

    tasks: int
    rate: float
    kills: int
    worker_kills: int
    patience: float = 60.0
    task_seconds: float = 0.2
    is_late: bool = True
    seed: int = 0


@dataclass
class Outcome:
    """The calls of a run, and the runs of tasks.

    Attributes:
        plan: its measure.
        runs: what the tasks have written.
        errors: calls that raised.
        repeated: the numbers of calls that were made again after that.
        longest_call: seconds of the longest call that succeeded.
        seconds: of the whole.
    """

    plan: Plan
    runs: list[Run] = field(default_factory=list[Run])
    errors: int = 0
    repeated: set[int] = field(default_factory=set[int])
    longest_call: float = 0.0
    seconds: float = 0.0

    @property
    def lost(self) -> list[int]:
        """The tasks that never ran."""
        return sorted(set(range(self.plan.tasks)) - {run.number for run in self.runs})

    @property
    def extra_runs(self) -> int:
        """Runs of tasks that had run before, but for calls that were made twice."""
        return sum(count - 1 for number, count in self._counts().items() if number not in self.repeated)

    @property
    def unflagged(self) -> list[int]:
        """The tasks that ran more than once without the mark of redelivery."""
        first = Counter(run.number for run in self.runs if not run.redelivered)
        return sorted(number for number, count in first.items() if count > 1 and number not in self.repeated)

    def longest_pause(self) -> float:
        """Return the longest time in seconds in which no task ended."""
        times = sorted(run.at for run in self.runs)
        return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0.0)

    def row(self, name: str) -> Row:
        """Return the figures."""
        return {
            "broker": name,
            "tasks": self.plan.tasks,
            "broker kills": self.plan.kills,
            "worker kills": self.plan.worker_kills,
            "lost": len(self.lost),
            "extra runs": self.extra_runs,
            "unmarked": len(self.unflagged),
            "calls that raised": self.errors,
            "longest call s": round(self.longest_call, 1),
            "longest pause s": round(self.longest_pause(), 1),
            "seconds": round(self.seconds),
        }

    def _counts(self) -> Counter[int]:
        return Counter(run.number for run in self.runs)


class Killer(threading.Thread):
    """A thread that kills one after the other; a failure is raised by the next request."""

    def __init__(self, kill: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._kill = kill
        self._requests: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._idle = threading.Event()
        self._idle.set()
        self._failure: BaseException | None = None
        self.start()

    def request(self) -> None:
        """Kill once more, as soon as what was killed before is back."""
        self.wait()
        self._idle.clear()
        self._requests.put(True)

    def wait(self) -> None:
        """Wait until all is back."""
        self._idle.wait()
        if self._failure is not None:
            raise self._failure

    def run(self) -> None:
        while True:
            self._requests.get()
            try:
                self._kill()
            except BaseException as error:  # raised where it was requested
                self._failure = error
            self._idle.set()


class Workers:
    """Some workers of an application, of which one at a time can be killed."""

    def __init__(self, application: Application, stack: contextlib.ExitStack) -> None:
        self._application, self._stack = application, stack
        self.processes = {name: self._start(name) for name in WORKERS}
        self._starts = Counter(WORKERS)
        self._next = 0

    def kill(self) -> None:
        """Kill one of them in turn, and start it again; return when it is ready, so that one always is."""
        name = WORKERS[self._next % len(WORKERS)]
        self._next += 1
        os.killpg(self.processes[name].pid, signal.SIGKILL)
        self.processes[name] = self._start(name)
        self._starts[name] += 1
        self.wait_ready(name)

    def wait_ready(self, name: str) -> None:
        """Wait until a worker takes tasks."""
        self._application.wait_logged(name, " ready.", self._starts[name])

    def _start(self, name: str) -> "subprocess.Popen[Any]":
        return self._stack.enter_context(self._application.worker(name, "--concurrency", str(CONCURRENCY)))


def run(site: Site, directory: Path, plan: Plan, on_second: Callable[[Workers], None] = lambda _: None) -> Outcome:
    """Call, kill and count.

    Args:
        site: the broker.
        directory: for the ledger and the logs.
        plan: the measure.
        on_second: called about once a second while tasks are called.

    Raises:
        Exception: what was killed did not come back.
    """
    chooser, outcome, start = random.Random(plan.seed), Outcome(plan), time.monotonic()
    more = {"LEDGER_OPTIONS": json.dumps(dict(site.options)), "LEDGER_EARLY": "0" if plan.is_late else "1"}
    application = Application(site.url, directory, **more)
    with contextlib.ExitStack() as stack:
        stack.callback(application.close)
        workers = Workers(application, stack)
        for name in WORKERS:
            workers.wait_ready(name)
        application.task("record")  # its import is no part of the first call
        killers = [(Killer(site.kill), _moments(chooser, plan.tasks, plan.kills))]
        killers.append((Killer(workers.kill), _moments(chooser, plan.tasks, plan.worker_kills)))
        due = seen = time.monotonic()
        for number in range(plan.tasks):
            for killer, moments in killers:
                if number in moments:
                    killer.request()
            _call(application, number, chooser.uniform(0.0, plan.task_seconds), outcome)
            due = max(due + 1 / plan.rate, time.monotonic() - 1.0)  # what a pause has delayed is not hurried for long
            threading.Event().wait(max(0.0, due - time.monotonic()))
            if time.monotonic() > seen + 1.0:
                seen = time.monotonic()
                on_second(workers)
        for killer, _ in killers:
            killer.wait()
        outcome.runs = _wait(application, plan)
    outcome.seconds = time.monotonic() - start
    return outcome


def _moments(chooser: random.Random, tasks: int, kills: int) -> set[int]:
    """Return the calls before which is killed: one in each of so many equal parts."""
    part = tasks // max(1, kills)
    return {part * number + chooser.randrange(part) for number in range(kills)}


def _call(application: Application, number: int, seconds: float, outcome: Outcome) -> None:
    while True:
        start = time.monotonic()
        try:
            application.record(number, seconds=seconds, ignore_result=True)
        except OperationalError:
            outcome.errors += 1
            outcome.repeated.add(number)
            threading.Event().wait(0.2)
        else:
            outcome.longest_call = max(outcome.longest_call, time.monotonic() - start)
            return


def _wait(application: Application, plan: Plan) -> list[Run]:
    """Return all runs, when every task has run, or none has for a while."""
    runs, since = application.runs(), time.monotonic()
    while len({run.number for run in runs}) < plan.tasks and time.monotonic() < since + plan.patience:
        threading.Event().wait(0.5)
        if len(later := application.runs()) > len(runs):
            runs, since = later, time.monotonic()
    return runs


def main() -> None:
    """Measure and print."""
    command_line = parser(__doc__)
    command_line.add_argument("--brokers", default="pybroker", help=f"any of {', '.join(SITES)}")
    command_line.add_argument("--tasks", type=int, default=10_000, help="calls")
    command_line.add_argument("--rate", type=float, default=40.0, help="calls per second")
    command_line.add_argument("--kills", type=int, default=50, help="kills of the broker")
    command_line.add_argument("--worker-kills", type=int, default=10, help="kills of workers")
    command_line.add_argument("--patience", type=float, default=60.0, help="seconds without a run until all is lost")
    command_line.add_argument("--early", action="store_true", help="acknowledge tasks before they run")
    command_line.add_argument("--keep", type=Path, metavar="DIRECTORY", help="where to keep logs and ledgers")
    command_line.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32), help="of the kills")
    options = command_line.parse_args()
    plan = plan_of(options)
    report, rows = Report(options), list[Row]()
    for name in options.brokers.split(","):
        with tempfile.TemporaryDirectory(dir=options.directory) as folder:
            directory = Path(folder).resolve()
            with SITES[name](directory) as site:
                outcome = run(site, directory, plan)
            rows.append(outcome.row(name))
            if options.keep is not None:
                keep(outcome, directory, options.keep / name)
    report.table(f"tasks while brokers and workers are killed, seed {plan.seed}", rows)
    report.finish()


def keep(outcome: Outcome, directory: Path, place: Path) -> None:
    """Copy what tells why a task was lost or ran again: the workers' logs, the ledger and the numbers."""
    place.mkdir(parents=True)
    for path in (*directory.glob("*.log"), directory / "runs"):
        shutil.copy(path, place)
    numbers = {"lost": outcome.lost, "unmarked": outcome.unflagged, "called again": sorted(outcome.repeated)}
    (place / "numbers.json").write_text(json.dumps(numbers))


def plan_of(options: argparse.Namespace) -> Plan:
    """Return the plan of a command line."""
    tasks, kills = (60, 1) if options.quick else (options.tasks, options.kills)
    return Plan(
        tasks=tasks,
        rate=options.rate,
        kills=kills,
        worker_kills=min(kills, options.worker_kills),
        patience=options.patience,
        is_late=not options.early,
        seed=options.seed,
    )


if __name__ == "__main__":
    main()
