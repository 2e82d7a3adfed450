"""Celery's tasks for later while their worker is replaced and the master killed: what ran late, early, or twice.

    python -m tests.kombu.later --brokers pybroker,rabbitmq --tasks 1000

A worker gets tasks with a `countdown` of up to 30 seconds. A second worker starts, the first one is terminated after 10
seconds, and the master is killed 5 seconds later; the only server of another kind is not. Late is the time from when
a task is due until it ends; it takes no time by itself. With `--busy` a task of so many seconds is in the first worker
when it is terminated: Celery ends a worker after its tasks.

Source: specification of Kombu's transport, acceptance check 7.
"""

import random
import statistics
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.report import Report, Row, parser
from tests.kombu.application import Application
from tests.kombu.kills import SITES, Site

AHEAD_SECONDS = 30.0
TERMINATE_SECONDS = 10.0
KILL_SECONDS = 5.0
"""After the termination."""
CONCURRENCY = "4"
CALLERS = 8


def run(site: Site, directory: Path, *, tasks: int, seed: int, busy: float, is_killed: bool, **more: str) -> Row:
    """Call the tasks, replace the worker, kill the master; return the figures."""
    chooser, application, due = random.Random(seed), Application(site.url, directory, **more), dict[int, float]()
    ended = list[float]()
    try:
        with application.worker("one", "--concurrency", CONCURRENCY) as first:
            application.record(tasks)  # its import and the first connections
            application.wait(1)
            start = time.time()
            if busy:
                application.record(tasks + 1, seconds=TERMINATE_SECONDS + busy)

            def call(number: int, countdown: float) -> None:
                due[number] = time.time() + countdown
                application.record(number, countdown=countdown, ignore_result=True)

            with ThreadPoolExecutor(CALLERS) as pool:
                list(pool.map(call, range(tasks), [chooser.uniform(0.0, AHEAD_SECONDS) for _ in range(tasks)]))
            called = time.time() - start
            with application.worker("two", "--concurrency", CONCURRENCY):
                application.wait_logged("two", " ready.", 1)
                _wait_until(start + TERMINATE_SECONDS)
                terminated_at = time.time()
                first.terminate()
                ender = threading.Thread(target=lambda: ended.append(first.wait() or time.time()))
                ender.start()
                if is_killed:
                    _wait_until(terminated_at + KILL_SECONDS)
                    site.kill()
                ender.join()
                application.wait(tasks + 1 + bool(busy))
                runs = [each for each in application.runs() if each.number < tasks]
    finally:
        application.close()
    late = {each.number: each.at - due[each.number] for each in runs}
    times = Counter(each.number for each in runs)
    change = [
        late[number] for number, at in due.items() if terminated_at - 0.5 < at < terminated_at + KILL_SECONDS - 1.0
    ]
    return {
        "calls s": round(called, 1),
        "end of the worker s": round(ended[0] - terminated_at, 1),
        "early": sum(seconds < 0 for seconds in late.values()),
        "twice": sum(count > 1 for count in times.values()),
        "marked": sum(each.redelivered for each in runs),
        "late, median ms": round(1000 * statistics.median(late.values())),
        "longest s": round(max(late.values()), 2),
        "longest at the change of workers s": round(max(change, default=0.0), 2),
    }


def _wait_until(moment: float) -> None:
    threading.Event().wait(max(0.0, moment - time.time()))


def main() -> None:
    """Measure and print."""
    command_line = parser(__doc__)
    command_line.add_argument("--brokers", default="pybroker", help=f"any of {', '.join(SITES)}")
    command_line.add_argument("--tasks", type=int, default=1000, help="calls")
    command_line.add_argument("--busy", type=float, default=0.0, help="seconds of a task in the worker that ends")
    command_line.add_argument("--scheduled", action="store_true", help="tasks wait in the broker: scheduled_eta")
    command_line.add_argument("--no-kill", action="store_true", help="the master stays")
    command_line.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32), help="of the times")
    options = command_line.parse_args()
    report, rows = Report(options), list[Row]()
    more: dict[str, Any] = {"LEDGER_SCHEDULED": str(int(options.scheduled))}
    for name in options.brokers.split(","):
        with tempfile.TemporaryDirectory(dir=options.directory) as folder:
            directory = Path(folder).resolve()
            with SITES[name](directory) as site:
                is_killed = name == "pybroker" and not options.no_kill
                tasks = 40 if options.quick else options.tasks
                row = run(
                    site, directory, tasks=tasks, seed=options.seed, busy=options.busy, is_killed=is_killed, **more
                )
                rows.append({"broker": name, **row})
    report.table(f"tasks for later, seed {options.seed}", rows)
    report.finish()


if __name__ == "__main__":
    main()
