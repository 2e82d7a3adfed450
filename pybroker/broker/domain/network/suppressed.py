"""The consumers of a remote broker to which another way is used, by the ids that decide when to reconsider that.

A change concerns few of them: those that share an id with the claim that has ended. Thousands may wait, where a ring of
brokers has thousands of consumers, and each end of one of these would else be a walk over all.
"""

from collections.abc import Hashable, Iterator, Sequence, Set
from typing import Generic, Protocol, TypeVar

from pybroker.broker.domain.openwire.ids import ConsumerId


class Suppressible(Protocol):
    """A candidate for a demand subscription."""

    @property
    def key(self) -> Hashable:
        """Its name, unique among those of a bridge."""
        ...

    @property
    def ids(self) -> frozenset[ConsumerId]:
        """The consumers that it serves, and the demand subscriptions on the way."""
        ...


CandidateT = TypeVar("CandidateT", bound=Suppressible)


class SuppressedCandidates(Generic[CandidateT]):
    """Candidates that wait, of one bridge."""

    __slots__ = ("_by_id", "_candidates", "_count", "_freed", "_gone", "_later")

    def __init__(self) -> None:
        self._candidates: dict[Hashable, tuple[int, CandidateT]] = {}
        """The candidates by key, each with a sequence number: they are reconsidered in its order."""
        self._by_id: dict[ConsumerId, dict[Hashable, None]] = {}
        self._count = 0
        self._freed: set[ConsumerId] = set()
        self._gone: set[ConsumerId] = set()
        self._later: set[ConsumerId] = set()
        """Ids whose candidates are reconsidered with the next change, whichever it is."""

    def __iter__(self) -> Iterator[CandidateT]:
        """Iterate over the candidates, in the order in which they came."""
        return iter([candidate for _, candidate in self._candidates.values()])

    def add(self, candidate: CandidateT) -> None:
        """Let a candidate wait."""
        if candidate.key not in self._candidates:
            self._count += 1
            self._candidates[candidate.key] = self._count, candidate
            for each in candidate.ids:
                self._by_id.setdefault(each, {})[candidate.key] = None

    def remove(self, candidate: CandidateT) -> None:
        """Remove a candidate that waits."""
        del self._candidates[candidate.key]
        for each in candidate.ids:
            keys = self._by_id[each]
            del keys[candidate.key]
            if not keys:
                del self._by_id[each]
                self._later.discard(each)

    def with_id(self, consumer_id: ConsumerId) -> Sequence[CandidateT]:
        """Return the candidates that have an id."""
        return [self._candidates[key][1] for key in self._by_id.get(consumer_id, ())]

    def narrowed(self, ids: Set[ConsumerId]) -> None:
        """Record ids that a claim has no more: another way to them may be free, unless they are about to end."""
        self._later.update(each for each in ids if each in self._by_id)

    def freed(self, ids: Set[ConsumerId], gone: Set[ConsumerId]) -> bool:
        """Record the ids of a claim that has ended; return True if `take` has something to do.

        Args:
            ids: those that it had at its end.
            gone: consumers that have ended: candidates for them are not to be used.
        """
        concerned = [each for each in ids if each in self._by_id]
        if not concerned and not self._later:
            return False
        self._freed.update(concerned)
        self._gone |= gone
        return True

    def take(self) -> Sequence[CandidateT]:
        """Remove and return the candidates to reconsider, in the order in which they came."""
        keys = {key for each in self._freed | self._later for key in self._by_id.get(each, ())}
        gone = self._gone
        self._freed, self._gone, self._later = set(), set(), set()
        found: list[CandidateT] = []
        for _, candidate in sorted([self._candidates[key] for key in keys], key=_number):
            ended = candidate.ids & gone
            if ended:
                self._later |= ended
            else:
                self.remove(candidate)
                found.append(candidate)
        return found


def _number(numbered: "tuple[int, object]") -> int:
    return numbered[0]
