"""Celery for a long time on a pair whose masters are killed: memory, destinations and journal files must not grow.

python -m tests.kombu.soak --minutes 1440 --rate 100 --kill-every 600
"""

import contextlib
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.report import Report, Row, parser
from pybroker.testing import Cluster
from tests.kombu.kills import Plan, PybrokerSite, Workers, run


class Sampler(threading.Thread):
    """Samples of what must not grow, in a thread, because a look at the broker takes seconds on a busy machine.

    Attributes:
        rows: one for each sample.
    """

    def __init__(self, cluster: Cluster, seconds: float) -> None:
        """Sample every so many seconds, once there are workers."""
        super().__init__(daemon=True)
        self.rows: list[Row] = []
        self._cluster, self._seconds = cluster, seconds
        self._start = time.monotonic()
        self._stopping = threading.Event()
        self._workers: Workers | None = None
        self._failure: Exception | None = None

    def on_second(self, workers: Workers) -> None:
        """Note the workers."""
        if self._workers is None:
            self._workers = workers
            self.start()

    def stop(self) -> None:
        """Take no further sample. Raises what a sample has failed with."""
        self._stopping.set()
        self.join()
        if self._failure is not None:
            raise self._failure

    def run(self) -> None:
        try:
            while not self._stopping.wait(self._seconds):
                self._sample()
        except Exception as error:  # raised by `stop`
            self._failure = error

    def _sample(self) -> None:
        assert self._workers is not None
        store = self._cluster.store
        sizes = _sizes(store / "kahadb")
        row: Row = {
            "minute": round((time.monotonic() - self._start) / 60, 1),
            **{f"member {each.name} MB": _resident_mb(each.pid) for each in self._cluster.members},
            **{f"worker {name} MB": _tree_mb(process.pid) for name, process in self._workers.processes.items()},
            "queues": _count(store, "queues"),
            "topics": _count(store, "topics"),
            "journal files": len(sizes),
            "journal MB": round(sum(sizes) / 1e6, 1),
        }
        self.rows.append(row)
        print(row, file=sys.stderr, flush=True)


def main() -> None:
    """Measure and print."""
    command_line = parser(__doc__)
    command_line.add_argument("--minutes", type=float, default=15.0, help="the time of calls")
    command_line.add_argument("--rate", type=float, default=100.0, help="calls per second")
    command_line.add_argument(
        "--kill-every", type=float, default=120.0, help="seconds from one killed master to the next"
    )
    command_line.add_argument("--sample-every", type=float, default=60.0, help="seconds from one sample to the next")
    options = command_line.parse_args()
    seconds = 20.0 if options.quick else options.minutes * 60
    plan = Plan(
        tasks=int(seconds * options.rate),
        rate=options.rate,
        kills=max(1, int(seconds / options.kill_every)),
        worker_kills=0,
        task_seconds=0.02,
        seed=random.SystemRandom().randrange(1 << 32),
    )
    report = Report(options)
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        directory = Path(folder).resolve()
        with Cluster(2, store=directory / "store", settings={"management": "127.0.0.1:0"}) as cluster:
            sampler = Sampler(cluster, 5.0 if options.quick else options.sample_every)
            outcome = run(PybrokerSite(cluster), directory, plan, sampler.on_second)
            sampler.stop()
    report.table("what must not grow", sampler.rows)
    report.table("tasks", [outcome.row("pybroker")])
    report.finish()


def _sizes(directory: Path) -> list[int]:
    """Return the bytes of each journal file; one may be collected meanwhile."""
    sizes = list[int]()
    for each in directory.glob("db-*.log"):
        with contextlib.suppress(FileNotFoundError):
            sizes.append(each.stat().st_size)
    return sizes


def _count(store: Path, kind: str) -> int:
    """Return how many queues or topics the master has; -1 while there is none."""
    command = [sys.executable, "-m", "pybroker.broker.app.cli", kind, "--store", str(store), "--json", "--wait", "10s"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return int(json.loads(done.stdout)["count"]) if done.returncode == 0 else -1


def _tree_mb(pid: int) -> float:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return round(sum(_resident_mb(each) for each in (pid, *map(int, children))), 1)


def _resident_mb(pid: int) -> float:
    """Return the resident memory; 0 of a process that has just been killed."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):  # the latter if it ends between the open and the read
        return 0.0
    return round(sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024, 1)


if __name__ == "__main__":
    main()
