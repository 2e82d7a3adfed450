"""Alarms of Prometheus, with the rules of the examples, during an hour of failovers under load.

Run from the root of the checkout: `python -m benchmarks.alarms [--minutes 60] [--json FILE]`.

A pair with users shares a directory; clients send and receive through a `failover:` URI all the time, and Prometheus
scrapes both members with the rules and times of `examples/prometheus`. Every few minutes the master is killed, stopped
or made to step down, or the standby is started again. Then a standby that hangs, and one that stays away, must raise
their alarms. Every alarm is compared with what was done at that time.
"""

import contextlib
import logging
import shutil
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks import report
from benchmarks.alarms.load import Load
from benchmarks.alarms.members import CLIENT, MONITOR, Pair
from benchmarks.alarms.run import AlarmLog, Pace, Run
from benchmarks.alarms.truth import Episode, Facts, Span, episodes, failovers_claimed, is_true
from benchmarks.failover import free_port
from benchmarks.prometheus import MonitoringLogin, Prometheus, pending_seconds

MINUTES: Final = 60.0
RATE: Final = 300.0

FULL: Final = Pace(seconds=60 * MINUTES, period=(120.0, 300.0), pause=(1.0, 20.0), rate=RATE, idle=32)
"""So many idle clients come back after a failover that their rate alone would be an alarm."""
QUICK: Final = Pace(seconds=6.0, period=(1.0, 2.0), pause=(0.1, 0.5), rate=RATE, idle=2, hurry=("1s", "3s"))

LATE_SECONDS: Final = 0.5
"""The wait that `PybrokerEventLoopLag` calls long."""

_AFTER_SECONDS: Final = 15.0
"""In this time after a disturbance began clients wait for it, and not for the event loop."""
_EMPTY_SECONDS: Final = 15.0
"""What management answers about all queues is some seconds old."""


def main() -> int:
    """Run, judge and print; return 1 if an alarm was false or missing, or a message was lost."""
    parser = report.parser(__doc__)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of disturbances")
    parser.add_argument("--seed", type=int, default=1, help="of the times and the order of disturbances")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="where the logs are copied to")
    options = parser.parse_args()
    pace = QUICK if options.quick else replace(FULL, seconds=60 * options.minutes)
    logging.disable(logging.WARNING)  # each client reports that its broker is gone
    made = report.Report(options)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.directory, prefix="alarms-")))
        if options.keep is not None:
            stack.callback(_keep_logs, folder, options.keep)
        problems = measure(folder, pace, options.seed, made)
    made.table("Verdict", [{"seed": options.seed, "problems": len(problems), "verdict": "; ".join(problems) or "pass"}])
    made.finish()
    return 0 if options.quick or not problems else 1


def measure(folder: Path, pace: Pace, seed: int, made: report.Report) -> list[str]:
    """Run, add the tables to a report, and return the problems."""
    with contextlib.ExitStack() as stack:
        pair = stack.enter_context(contextlib.closing(Pair(folder)))
        pair.start()
        load = Load(
            {
                "openwire": [member.openwire for member in pair.members.values()],
                "stomp": [member.stomp for member in pair.members.values()],
            },
            user=CLIENT, password=pair.passwords[CLIENT], rate=pace.rate, idle=pace.idle,
        )  # fmt: skip
        load.start()
        rules = pace.rules()
        prometheus = stack.enter_context(contextlib.closing(_prometheus(folder, pair, pace)))
        began_at = time.time()
        alarm_log = stack.enter_context(contextlib.closing(AlarmLog(prometheus)))
        alarm_log.start()
        run = Run(pair, load, prometheus, pace, seed)
        problems = _course(run, load)
        left = _left_over(pair)
        pair.facts.late.extend(late_waits(load, run))
        found = episodes(prometheus.samples("ALERTS", began_at), 2.5 * pace.interval)
        problems += _broken_rules(prometheus)
        scrapes = [value for each in prometheus.samples("up", began_at) for _, value in each.values]
    judged = Judged(found, pair.facts, pending_seconds(rules), pace.interval, began_at, alarm_log)
    made.table("Alerts that fired", judged.fired())
    made.table("Alerts that were pending", judged.pending())
    made.table("Waits of clients for a confirmation, ms", _waits(run, load, pair.facts))
    made.table("Messages", _messages(load, left))
    promotions = len(pair.facts.promotions)
    made.table(
        "The run",
        [
            {
                "minutes": (time.time() - began_at) / 60,
                "disturbances": len(run.disturbances),
                "failovers": promotions,
                "scrapes": len(scrapes),
                "scrapes that failed": scrapes.count(0.0),
                "alerts that fired": sum(each.state == "firing" for each in found),
                "false alarms": len(judged.false()),
                "longest wait outside of disturbances, ms": 1000 * _calm_wait(run, load),
            }
        ],
    )
    problems += [f"false alarm: {each}" for each in judged.false()]
    problems += [f"did not fire: {each}" for each in run.missed]
    if not all(failovers_claimed(value, at, pair.facts.promotions, pace.interval) for at, value in alarm_log.claims):
        problems.append("PybrokerFailovers names more failovers than there were")
    if pair.promotion_count() != promotions + 1:
        problems.append(f"{pair.promotion_count() - 1} failovers, of which {promotions} were caused")
    problems += [f"{each.protocol}: {each.lost} messages lost" for each in load.streams if each.lost]
    problems += [f"{each.protocol}: {each.unmarked} unmarked duplicates" for each in load.streams if each.unmarked]
    return problems + [f"{size} messages are left on {name}" for name, size in left.items()]


def _course(run: Run, load: Load) -> list[str]:
    """Run to the end; what ends it early is a problem, and what came before is judged all the same."""
    try:
        run.disturb()
        run.raise_alarms()
        load.finish()
    except Exception as error:
        traceback.print_exc()
        return [f"ended early: {error!r}"]
    return []


def _prometheus(folder: Path, pair: Pair, pace: Pace) -> Prometheus:
    password_file = folder / "password"
    password_file.write_text(pair.passwords[MONITOR])
    targets = [member.instance for member in pair.members.values()]
    configuration = pace.configuration(targets, MonitoringLogin(MONITOR, password_file))
    return Prometheus(folder / "prometheus", port=free_port(), configuration=configuration, rules=pace.rules())


def _left_over(pair: Pair) -> dict[str, int]:
    deadline = time.monotonic() + _EMPTY_SECONDS
    while (found := pair.left_over()) and time.monotonic() < deadline:
        time.sleep(1.0)
    return found


def _broken_rules(prometheus: Prometheus) -> list[str]:
    """Return the rules that Prometheus could not evaluate."""
    rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
    return [f"{rule['name']}: {rule['lastError']}" for rule in rules if rule["health"] != "ok"]


# ---------------------------------------------------------------- alerts


class Judged:
    """Alerts, each beside what is true of it."""

    def __init__(
        self,
        found: Sequence[Episode],
        facts: Facts,
        pending: Mapping[str, float],
        interval: float,
        began_at: float,
        alarm_log: AlarmLog,
    ) -> None:
        self._firing = [(each, is_true(each, facts, pending, interval)) for each in found if each.state == "firing"]
        self._pending = [each for each in found if each.state == "pending"]
        self._for = pending
        self._began_at = began_at
        self._log = alarm_log

    def fired(self) -> list[report.Row]:
        """Return a row for each alert that fired."""
        return [
            {
                "alert": each.alert,
                "minute": (each.began_at - self._began_at) / 60,
                "fired for s": each.ended_at - each.began_at,
                "true": "yes" if true else "NO",
                "summary": self._log.text(each),
            }
            for each, true in self._firing
        ]

    def pending(self) -> list[report.Row]:
        """Return a row for each alert that was pending."""
        names = sorted({each.alert for each in self._pending})
        return [
            {
                "alert": name,
                "times": len(own := [each.ended_at - each.began_at for each in self._pending if each.alert == name]),
                "longest s": max(own),
                "fires after s": self._for[name],
            }
            for name in names
        ]

    def false(self) -> list[str]:
        """Return the false alarms."""
        return [
            f"{each.alert} {each.instance} in minute {(each.began_at - self._began_at) / 60:.1f}"
            for each, true in self._firing
            if not true
        ]


# ---------------------------------------------------------------- clients


def late_waits(load: Load, run: Run) -> list[Span]:
    """Return when a client waited long for an answer, and nothing had been done to the pair."""
    return [
        Span(float(second), second + wait)
        for stream in load.streams
        for second, wait in stream.waits(LATE_SECONDS).items()
        if not _is_disturbed(second, run)
    ]


def _calm_wait(run: Run, load: Load) -> float:
    """Return the longest wait when nothing had been done to the pair."""
    waits = [item for stream in load.streams for item in stream.waits(0.0).items()]
    return max((wait for second, wait in waits if not _is_disturbed(second, run)), default=0.0)


def _is_disturbed(second: float, run: Run) -> bool:
    return any(each.began_at - 2 <= second <= each.began_at + _AFTER_SECONDS for each in run.disturbances)


def _waits(run: Run, load: Load, facts: Facts) -> list[report.Row]:
    rows: list[report.Row] = []
    for kind in dict.fromkeys(each.kind for each in run.disturbances):
        times = [each.began_at for each in run.disturbances if each.kind == kind]
        row: dict[str, report.Cell] = {"disturbance": kind, "times": len(times)}
        for stream in load.streams:
            waits = [1000 * stream.longest_wait(at - 1, at + _AFTER_SECONDS) for at in times]
            row |= {f"{stream.protocol}: median": statistics.median(waits), f"{stream.protocol}: max": max(waits)}
        silences = [
            1000 * (span.ended_at - span.began_at)
            for span in facts.without_master
            if any(at <= span.began_at <= at + 1 for at in times)
        ]
        rows.append(row | {"without a master: max": max(silences, default=0.0)})
    return rows


def _messages(load: Load, left: Mapping[str, int]) -> list[report.Row]:
    return [
        {
            "protocol": each.protocol,
            "confirmed": each.confirmed,
            "received": each.received,
            "lost": each.lost,
            "duplicates, marked": each.duplicates - each.unmarked,
            "duplicates, unmarked": each.unmarked,
            "left on all queues": sum(left.values()),
        }
        for each in load.streams
    ]


def _keep_logs(folder: Path, keep: Path) -> None:
    """Copy the logs of members and of Prometheus."""
    keep.mkdir(parents=True, exist_ok=True)
    for log in [*folder.glob("*.log"), *folder.glob("prometheus/log")]:
        shutil.copy(log, keep)


if __name__ == "__main__":
    sys.exit(main())
