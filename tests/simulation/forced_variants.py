"""Broken variants of a promotion at an operator's word, each of which the scenario `forced-promotion` must catch.

One of them breaks the operator: what happens where the former master has not ended shows why that is asked for.
"""

from collections.abc import Mapping
from typing import Any

from pybroker.locks.election import decisions
from pybroker.locks.election.election_state import ElectionDecision, ElectionEvent, ElectionState
from tests.simulation.election_model import ElectionWorld
from tests.simulation.forced_scenario import ForcedPromotionScenario

_decide = decisions.decide


def _word_for_ever(state: ElectionState, event: ElectionEvent, now: float) -> ElectionDecision:
    after = _decide(state, event, now)
    known = after.state.known
    if state.accepted_revision and known is not None and after.state.mastery is None:
        return after._replace(state=after.state._replace(accepted_revision=known.revision))
    return after


def _expected(self: ElectionWorld, revision: int) -> bool:
    return True


def _taken_for_off(self: ForcedPromotionScenario, run: str) -> bool:
    return True


FORCED_VARIANTS: Mapping[str, tuple[str, Any, str, Any]] = {
    "word-for-ever": (
        "takes an operator's word for any later content of the register",
        decisions,
        "decide",
        _word_for_ever,
    ),
    "forced-blindly": ("forces a promotion without comparing", ElectionWorld, "is_expected", _expected),
    "former-not-off": (
        "an operator takes a master that does not reach the election store for one that has ended",
        ForcedPromotionScenario,
        "is_off",
        _taken_for_off,
    ),
}
"""By name: what is broken, its owner and attribute, and what takes its place."""
