"""Runs histories, one or many, and reports what was found."""

import gc
import logging
import multiprocessing
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from tests.simulation.cluster_scenario import ClusterScenario
from tests.simulation.election_scenario import ElectionScenario, StoppedClocksScenario
from tests.simulation.forced_scenario import ForcedPromotionScenario
from tests.simulation.store_scenario import StoreScenario
from tests.simulation.variants import VARIANTS, broken
from tests.simulation.world import Violation

SCENARIOS: dict[str, type[StoreScenario | ClusterScenario | ElectionScenario]] = {
    "store": StoreScenario,
    "cluster": ClusterScenario,
    "election": ElectionScenario,
    "stopped-clocks": StoppedClocksScenario,
    "forced-promotion": ForcedPromotionScenario,
}


COLLECT_EVERY = 50
"""Histories. A new master freezes what there is, so that the garbage collector never finds much by itself."""


class History(NamedTuple):
    """Result of a seed.

    Attributes:
        seed: the seed.
        found: what is wrong; empty when nothing is.
        trace: what happened, line by line, if tracing is on.
    """

    seed: int
    found: str
    trace: list[str]


def run(scenario: str, seed: int, *, variant: str | None = None, is_traced: bool = False) -> History:
    """Run one history, of the broker as it is or of a broken variant."""
    found = ""
    with _silence(), broken(variant):
        history = SCENARIOS[scenario](seed, is_traced=is_traced)
        try:
            history.run()
        except Violation as violation:
            found = str(violation)
        except Exception:
            found = traceback.format_exc()
    if seed % COLLECT_EVERY == 0:
        gc.collect()
    return History(seed, found, history.world.trace)


def run_many(scenario: str, seeds: Iterable[int], *, jobs: int = 1, variant: str | None = None) -> Iterator[History]:
    """Run histories, in several processes if there is more than one job, in no special order then."""
    one = partial(run, scenario, variant=variant)
    if jobs == 1:
        yield from map(one, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=20) as pool:
        yield from pool.imap_unordered(one, seeds, chunksize=50)


def catch(variant: str, seeds: Iterable[int]) -> History | None:
    """Return the first history in which a broken variant shows; None when it does in none."""
    scenario = VARIANTS[variant].scenario
    return next((each for each in run_many(scenario, seeds, variant=variant) if each.found), None)


@contextmanager
def _silence() -> Iterator[None]:
    """Keep logs of thousands of failures from costing time."""
    former = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(former)
