"""A short slice of the simulation; `make simulation` runs it long. A failure names the seed: see the README."""

import itertools
import os
import subprocess
import sys

import pytest

from pybroker.broker.core import delivered, queue
from pybroker.broker.core.delivered import without_body
from pybroker.broker.domain.message import BodilessMessage, Message
from tests.simulation import cluster_scenario
from tests.simulation.run import SCENARIOS, catch, run, run_many
from tests.simulation.variants import VARIANTS

HISTORIES = {"store": 100, "cluster": 40, "election": 200, "stopped-clocks": 100, "forced-promotion": 100}
CAUGHT_WITHIN = 1000
"""Histories in which each broken variant has to show. Most do within twenty."""

SEED = {
    "sync-retried": 77,
    "no-seal": 20,
    "number-shared": 128,
    "seal-unsynced": 13,
    "no-checksum": 150,
    "confirmed-at-once": 10,
    "redelivered-unmarked": 19,
    "producers-forgotten": 31,
    "scheduled-at-once": 37,
    "clients-kept": 12,
    "grows-when-swapped": 40,
    "any-epoch": 14,
    "any-connection": 61,
    "lease-from-answer": 59,
    "no-margin": 59,
    "new-disk-old-id": 17,
    "time-out-is-no": 409,
    "promise-not-kept": 189,
    "promise-assumed": 211,
    "guardian-of-any-run": 16,
    "guardian-guesses": 26,
    "word-for-ever": 3,
    "forced-blindly": 1,
    "former-not-off": 26,
}
"""The seed that last caught each other variant; it is tried first. `--broken` searches again."""

TRACED = 10


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_history_breaks_a_promise(scenario: str) -> None:
    found = [each for each in run_many(scenario, range(HISTORIES[scenario])) if each.found]
    assert not found, "\n".join(
        f"python -m tests.simulation --scenario {scenario} --seed {each.seed} --trace: {each.found}" for each in found
    )


@pytest.mark.timeout(300)
def test_no_history_breaks_a_promise_without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bodies of delivered messages leave memory, however short they are."""
    dropped: list[str] = []

    def counted(message: Message) -> BodilessMessage | None:
        made = without_body(message)
        dropped.extend([message.message_id] * (made is not None))
        return made

    monkeypatch.setattr(delivered, "BODY_BYTES_MIN", 1)
    monkeypatch.setattr(queue, "without_body", counted)
    monkeypatch.setattr(cluster_scenario, "MEMORY_LIMITS", (12_000, 6000))
    found = [each for each in run_many("cluster", range(HISTORIES["cluster"])) if each.found]
    assert not found, [(each.seed, each.found) for each in found]
    assert len(dropped) > HISTORIES["cluster"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("variant", VARIANTS)
def test_broken_variant_is_caught(variant: str) -> None:
    seeds = itertools.chain([SEED.get(variant, 0)], range(CAUGHT_WITHIN))
    caught = catch(variant, seeds)
    assert caught is not None, VARIANTS[variant].meaning
    assert "TypeError: " not in caught.found, "the variant does not fit what it replaces"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_one_seed_gives_one_trace(scenario: str) -> None:
    """Equal byte for byte, in another process with other hashes."""
    code = f"from {__name__} import traces; print(traces({scenario!r}))"
    environment = os.environ | {"PYTHONHASHSEED": "4711"}
    other = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert other.stdout.rstrip("\n") == traces(scenario)


def traces(scenario: str) -> str:
    """Return the traces of some histories."""
    return "\n".join(line for seed in range(TRACED) for line in run(scenario, seed, is_traced=True).trace)
