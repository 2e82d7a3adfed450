"""The short form of the hostile suite: an attack reaches its depth, and no unrelated client waits for long.

`make hostile` measures against the promise. Here the bound is wide, so that it fails when a freeze of a second returns.
"""

import tempfile

import pytest

from benchmarks.hostile.attacks import all_attacks
from benchmarks.hostile.trial import run_trial
from tests.pace import in_time

SECONDS_MAX = 0.5
"""The longest wait of an unrelated client."""

ATTACKS = (
    "flood-keepalive",
    "flood-sends",
    "like-long-text",
    "selector-deep",
    "queues-advisories",
    "frames-unfinished",
    "backlog-non-persistent",
    "ids-used-first",
    "log-refused-commands",
    "mqtt-flood-publish",
    "mqtt-filters",
    "ws-flood-mqtt",
    "amqp-sends",
    "amqp-nested",
)


@pytest.mark.alone
@pytest.mark.parametrize("name", ATTACKS)
def test_attack_keeps_no_unrelated_client_waiting(name: str) -> None:
    with tempfile.TemporaryDirectory(prefix="hostile-") as directory:
        trial = run_trial(all_attacks()[name], "pybroker", directory, quick=True, variables={})
    assert in_time(trial.waits.own_ms / 1000, SECONDS_MAX), trial
    assert [problem for problem in trial.problems if not problem.startswith("wait ")] == [], trial
