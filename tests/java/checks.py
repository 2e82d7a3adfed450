# mypy: disable-error-code="arg-type, union-attr"
"""Runs the Java programs of this directory, each area once per broker, and compares what they saw with expectations.

A test module has the outcomes that both brokers must give. Where pybroker means to differ, `differences` has what
ActiveMQ gives instead, and why.
"""

import json
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.integration.activemq_broker import JVM_TUNING, ActiveMQProcess
from tests.java.differences import DIFFERENCES

HERE = Path(__file__).parent
AREA_SECONDS = 300
ACTIVEMQ_TRIES = 3

Outcomes = dict[str, Any]
Answer = Callable[[str, str], Any]
"""Runs a check's request: its name, the request; what it returns is the answer."""


def _refuse(check: str, question: str) -> Any:
    raise AssertionError(f"{check}: no one answers {question!r}")


@dataclass
class Programs:
    """The compiled programs."""

    class_path: str

    def command(self, program: str, *arguments: str) -> list[str]:
        return ["java", *JVM_TUNING, "-cp", self.class_path, program, *arguments]

    def area(self, area: str, uri: str, *checks: str, answer: Answer = _refuse) -> Outcomes:
        """Run the checks of an area, by default all.

        Args:
            area: the class.
            uri: the broker's address.
            checks: names of methods.
            answer: does what a check asks for, and returns what it shall know.
        """
        outcomes: Outcomes = {}
        with tempfile.TemporaryFile() as errors, self._started(errors, "Run", area, uri, *checks) as process:
            watchdog = threading.Timer(AREA_SECONDS, process.kill)
            watchdog.start()
            try:
                for line in map(json.loads, process.stdout):
                    if "ask" in line:
                        process.stdin.write(json.dumps(answer(line["check"], line["ask"])) + "\n")
                        process.stdin.flush()
                    else:
                        outcomes[line["check"]] = line["outcome"]
            finally:
                watchdog.cancel()
                process.kill()
            errors.seek(0)
            assert not checks or outcomes.keys() == set(checks), errors.read().decode()
        return outcomes

    def _started(self, errors: Any, *arguments: str) -> "subprocess.Popen[str]":
        pipe = subprocess.PIPE
        return subprocess.Popen(self.command(*arguments), stdin=pipe, stdout=pipe, stderr=errors, text=True)


@dataclass
class Laboratory:
    """Two brokers to run areas against; each area is run once, when it is first needed."""

    programs: Programs
    start_activemq: Callable[[], ActiveMQProcess]
    request: pytest.FixtureRequest
    _outcomes: dict[tuple[str, str], Outcomes] = field(default_factory=dict)

    def outcomes(self, broker: str, area: str) -> Outcomes:
        if (broker, area) not in self._outcomes:
            uri = self.request.getfixturevalue(f"{broker}_uri")
            self._outcomes[broker, area] = self.programs.area(area, uri)
        return self._outcomes[broker, area]

    def afresh(self, area: str, check: str) -> Any:
        """Return the outcome of one check on another stock broker: what a failed try leaves in a queue stays there."""
        with closing(self.start_activemq()) as broker:
            return self.programs.area(area, broker.wait().uri, check)[check]


def parametrized(area: str, expected: Mapping[str, Any]) -> Any:
    """Return the decorator of an area's test: once per broker and check."""
    cases = [(broker, area, check) for broker in ("pybroker", "activemq") for check in expected]
    return pytest.mark.parametrize(
        ("broker", "area", "check"), cases, ids=[f"{broker}-{check}" for broker, _, check in cases]
    )


def verify(laboratory: Laboratory, broker: str, area: str, check: str, expected: Mapping[str, Any]) -> None:
    """Compare one check's outcome, and make sure that no check of the area goes uncompared.

    ActiveMQ, which is not what is tested here, may try again: it delivers by threads of its own, and on a busy machine
    the short waits of "nothing comes" are too short for it.
    """
    outcomes = laboratory.outcomes(broker, area)
    for _ in range(1, ACTIVEMQ_TRIES if broker == "activemq" else 1):
        if check not in outcomes or outcomes[check] == wanted(broker, area, check, expected):
            break
        print(f"ActiveMQ gave {outcomes[check]} and is tried again")
        outcomes = outcomes | {check: laboratory.afresh(area, check)}
    compare(outcomes, broker, area, check, expected)


def compare(outcomes: Outcomes, broker: str, area: str, check: str, expected: Mapping[str, Any]) -> None:
    """Compare one of an area's outcomes."""
    assert outcomes.keys() == expected.keys()
    difference = DIFFERENCES.get((area, check))
    found, due = outcomes[check], wanted(broker, area, check, expected)
    assert found == due, f"{found} is not {due}. {difference.reason if difference else ''}"


def wanted(broker: str, area: str, check: str, expected: Mapping[str, Any]) -> Any:
    """Return the outcome that a broker must give."""
    difference = DIFFERENCES.get((area, check))
    return difference.activemq if difference and broker == "activemq" else expected[check]
