"""The course of a run: what is done to the pair, how hurried, and which alerts are active meanwhile."""

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from benchmarks.alarms.load import Load
from benchmarks.alarms.members import Pair
from benchmarks.alarms.truth import Episode
from benchmarks.prometheus import (
    MonitoringLogin,
    Prometheus,
    hurried,
    seconds_of,
    shipped_configuration,
    shipped_rules,
    with_interval,
)

KINDS: Final = ("kill -9 of the master", "SIGTERM of the master", "stepdown over REST", "restart of the standby")
"""The disturbances."""
HANG: Final = "hang of the standby"
LOSS: Final = "loss of the standby"

LOST_ALARMS: Final = frozenset(("PybrokerMemberDown", "PybrokerDegraded", "PybrokerNoStandby"))
"""The alarms that a standby must raise that stays away."""

_ALARM_SECONDS: Final = 420.0
"""The longest `for` is five minutes."""
_LOOK_SECONDS: Final = 1.0
_RESOLVED_SECONDS: Final = 120.0


class Disturbance(NamedTuple):
    """Something that was done to the pair."""

    kind: str
    began_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long a run is, and how hurried.

    Attributes:
        seconds: of disturbances.
        period: the seconds from one to the next, at least and at most.
        pause: the seconds from the end of a member to its next start.
        rate: messages each second.
        idle: clients that only stay connected.
        hurry: the interval of scrapes, and for how long alerts of the pair are pending; None: those of the examples.
    """

    seconds: float
    period: tuple[float, float]
    pause: tuple[float, float]
    rate: float
    idle: int
    hurry: tuple[str, str] | None = None

    def rules(self) -> dict[str, Any]:
        """Return the rules."""
        return shipped_rules() if self.hurry is None else hurried(shipped_rules(), self.hurry[1])

    def configuration(self, targets: Sequence[str], login: MonitoringLogin) -> dict[str, Any]:
        """Return the configuration of Prometheus for these members."""
        found = shipped_configuration(targets, login)
        return found if self.hurry is None else with_interval(found, self.hurry[0])

    @property
    def interval(self) -> float:
        """Seconds between two scrapes, and between two evaluations."""
        shipped: Mapping[str, str] = shipped_configuration(())["global"]
        assert shipped["scrape_interval"] == shipped["evaluation_interval"]
        return seconds_of(shipped["scrape_interval"] if self.hurry is None else self.hurry[0])


class AlarmLog(threading.Thread):
    """Records the texts of alerts while they are active, for their series have none.

    Attributes:
        claims: for each time, in seconds since 1970, the number that `PybrokerFailovers` named.
    """

    def __init__(self, prometheus: Prometheus) -> None:
        super().__init__(name="alarm-log", daemon=True)
        self.claims: list[tuple[float, float]] = []
        self._texts: dict[tuple[str, str], str] = {}
        self._prometheus = prometheus
        self._ends = threading.Event()
        self._error: Exception | None = None

    def run(self) -> None:
        """Record until `close`."""
        try:
            self._record()
        except Exception as error:
            self._error = error  # raised again by `close`

    def close(self) -> None:
        """End it. Raises `RuntimeError` if Prometheus did not answer."""
        self._ends.set()
        self.join()
        if self._error is not None:
            raise RuntimeError("the alerts were not recorded to the end") from self._error

    def text(self, episode: Episode) -> str:
        """Return the last summary that an alert had."""
        return self._texts.get((episode.alert, episode.instance), "")

    def _record(self) -> None:
        while not self._ends.wait(_LOOK_SECONDS):
            for each in self._prometheus.ask("alerts")["alerts"]:
                labels, now = each["labels"], time.time()
                key = (labels["alertname"], labels.get("instance", ""))
                if key not in self._texts:
                    print(f"{time.strftime('%X')} {each['state']} {key}", file=sys.stderr, flush=True)
                self._texts[key] = each["annotations"]["summary"]
                if labels["alertname"] == "PybrokerFailovers":
                    self.claims.append((now, float(each["value"])))


class Run:
    """One run: a pair, its load, its Prometheus, and all that is done to it."""

    def __init__(self, pair: Pair, load: Load, prometheus: Prometheus, pace: Pace, seed: int) -> None:
        self._pair, self._load, self._prometheus, self._pace = pair, load, prometheus, pace
        self._random = random.Random(seed)
        self._acts: dict[str, Callable[[float], None]] = {
            kind: act
            for kind, act in zip(KINDS, (pair.kill, pair.stop, pair.step_down, pair.restart_standby), strict=True)
        }
        self.disturbances: list[Disturbance] = []
        self.missed: list[str] = []

    def disturb(self) -> None:
        """Disturb the pair again and again."""
        ends_at = time.monotonic() + self._pace.seconds
        for kind in self._kinds():
            pause = self._random.uniform(*self._pace.pause)
            due_at = time.monotonic() + self._random.uniform(*self._pace.period)
            while time.monotonic() < min(due_at, ends_at):
                self._check()
                time.sleep(min(_LOOK_SECONDS, max(0.0, due_at - time.monotonic())))
            if time.monotonic() >= ends_at:
                return
            self._record(kind)
            self._acts[kind](pause)

    def raise_alarms(self) -> None:
        """Have the standby hang, and then stay away, each until its alarms fire."""
        self._wait_until_calm()
        if self._pace.hurry is None:
            self._record(HANG)
            self._pair.hang_standby(lambda: self._wait_for_firing(frozenset(("PybrokerMemberSilent",))))
            self._wait_until_calm()
        self._record(LOSS)
        self._pair.lose_standby(lambda: self._wait_for_firing(LOST_ALARMS))

    def _kinds(self) -> Iterator[str]:
        while True:
            kinds = list(KINDS)
            self._random.shuffle(kinds)
            yield from kinds

    def _record(self, kind: str) -> None:
        self._check()
        self.disturbances.append(Disturbance(kind, time.time()))
        print(f"{time.strftime('%X')} {kind}", file=sys.stderr, flush=True)

    def _check(self) -> None:
        self._pair.require_running()
        self._load.check()

    def _active(self, *states: str) -> set[str]:
        """Return the alerts with one of these states; without a state, all that are active."""
        alerts = self._prometheus.ask("alerts")["alerts"]
        return {each["labels"]["alertname"] for each in alerts if not states or each["state"] in states}

    def _wait_for_firing(self, expected: frozenset[str]) -> None:
        left, deadline = set(expected), time.monotonic() + _ALARM_SECONDS
        while left := left - self._active("firing"):
            if time.monotonic() > deadline:
                self.missed += sorted(left)
                return
            time.sleep(_LOOK_SECONDS)

    def _wait_until_calm(self) -> None:
        """Wait until nothing fires or is pending but what it takes an hour to forget."""
        deadline = time.monotonic() + _RESOLVED_SECONDS
        while active := self._active() - {"PybrokerFailovers"}:
            if time.monotonic() > deadline:
                self.missed += [f"the end of {alert}" for alert in sorted(active)]
                return
            time.sleep(_LOOK_SECONDS)
