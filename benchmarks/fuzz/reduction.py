"""The shortest conversations with the same finding: delta debugging, first over conversations, then over their frames.

Source: Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", ddmin.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from benchmarks.fuzz.conversations import Conversation

Item = TypeVar("Item")

TRIALS_MAX: Final = 200
"""Brokers that are started for one reduction."""


def reduced(
    conversations: Sequence[Conversation], fails: Callable[[list[Conversation]], bool], trials_max: int = TRIALS_MAX
) -> list[Conversation]:
    """Return conversations as few and as short as can be found that still fail; they must fail as they are.

    Args:
        conversations: what fails.
        fails: plays conversations against a new broker, and returns True if the finding is there again.
        trials_max: how often it may be called.
    """
    left = trials_max

    def limited(candidate: list[Conversation]) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and fails(candidate)

    found = minimal(conversations, limited)
    for index, each in enumerate(found):
        before, after = found[:index], found[index + 1 :]

        def fails_with(
            parts: list[bytes], each: Conversation = each, before: list[Conversation] = before,
            after: list[Conversation] = after,
        ) -> bool:  # fmt: skip
            return limited([*before, replace(each, parts=(each.parts[0], *parts)), *after])

        found[index] = replace(each, parts=(each.parts[0], *minimal(each.parts[1:], fails_with)))
    return found


def minimal(items: Sequence[Item], fails: Callable[[list[Item]], bool]) -> list[Item]:
    """Return a part of a sequence, in its order, that fails and of which no single item can be left out."""
    current, pieces = list(items), 2
    while len(current) > 1:
        size = -(-len(current) // pieces)
        starts = range(0, len(current), size)
        candidates = [current[start : start + size] for start in starts]
        candidates += [current[:start] + current[start + size :] for start in starts]
        smaller = next((each for each in candidates if 0 < len(each) < len(current) and fails(each)), None)
        if smaller is not None:
            current, pieces = smaller, max(2, min(pieces - 1, len(smaller)))
        elif size == 1:
            break
        else:
            pieces = min(len(current), 2 * pieces)
    return current
