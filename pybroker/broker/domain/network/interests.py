"""Suppression of duplicate demand: of several ways to one consumer, over all bridges of a broker, one is used.

A demand subscription claims the ids of the consumers that it serves: the original one, and each demand subscription on
the way. A candidate that shares an id with a claim of at least its priority waits; claims of lower priority are
displaced. When a claim ends, the tables that have waiting candidates decide again, so that another way to the consumer
is used. ActiveMQ 5.17 drops the candidate instead, and the consumer stays unreachable.

Source: ActiveMQ 5.17, `DemandForwardingBridgeSupport.duplicateSuppressionIsRequired`.
"""

from collections.abc import Collection, Set
from typing import Protocol

from pybroker.broker.domain.destination import Destination, covers
from pybroker.broker.domain.openwire.ids import ConsumerId


class ClaimOwner(Protocol):
    """A demand table, as the other tables of the broker know it."""

    def on_displaced(self, claim: "Claim", *, wakes: bool) -> None:
        """Record that a claim of this table is displaced; with `wakes`, its bridge has to ask for the changes."""
        ...

    def on_narrowed(self, ids: Set[ConsumerId]) -> None:
        """Record that a claim has these consumers no more, which are about to end in other ways too, as it seems."""
        ...

    def on_release(self, ids: Set[ConsumerId], gone: Set[ConsumerId], *, wakes: bool) -> None:
        """Record that a claim has ended, so that a candidate that waits may be free.

        Args:
            ids: the consumers that it served at its end.
            gone: consumers that have ended: other ways to them are about to end as well, and are not used.
            wakes: the claim was that of another table, so the bridge of this one has to ask for the changes.
        """
        ...


class Claim:
    """The consumers that one demand subscription serves.

    Attributes:
        owner: the table that has the subscription.
        destination: of the subscription.
        ids: consumers, and demand subscriptions on the way.
        priority: of the subscription.
        is_displaced: a way of higher priority is used; the owner has to end the subscription.
    """

    __slots__ = ("destination", "ids", "is_displaced", "owner", "priority")

    def __init__(self, owner: ClaimOwner, destination: Destination, ids: Collection[ConsumerId], priority: int) -> None:
        self.owner = owner
        self.destination = destination
        self.ids = set(ids)
        self.priority = priority
        self.is_displaced = False

    def covers(self, destination: Destination) -> bool:
        """Return True if its subscription takes all messages for that destination, or pattern."""
        ours = self.destination
        return ours.type is destination.type and covers(ours.name, destination.name)


class Interests:
    """The claims of all demand tables of one broker."""

    def __init__(self) -> None:
        self._claims: dict[ConsumerId, dict[Claim, None]] = {}
        self._owners: dict[ClaimOwner, dict[Claim, None]] = {}

    def join(self, owner: ClaimOwner) -> None:
        """Add a table, which learns of changes until it leaves."""
        self._owners[owner] = {}

    def leave(self, owner: ClaimOwner) -> None:
        """Remove a table with all its claims: its bridge is lost."""
        claims = self._owners.pop(owner)
        for claim in claims:
            self._forget(claim)
        if claims:
            self._announce(owner, frozenset(each for claim in claims for each in claim.ids), frozenset())

    def is_free(self, destination: Destination, ids: Set[ConsumerId], priority: int) -> bool:
        """Return True if no claim of at least that priority serves one of these consumers."""
        return all(claim.priority < priority for claim in self._rivals(destination, ids))

    def claim(self, claim: Claim, *, displaces: bool) -> None:
        """Add a claim; with `displaces`, those that serve one of its consumers are displaced."""
        if displaces:
            for rival in self._rivals(claim.destination, claim.ids):
                rival.is_displaced = True
                rival.owner.on_displaced(rival, wakes=rival.owner is not claim.owner)
        self._owners[claim.owner][claim] = None
        for each in claim.ids:
            self._claims.setdefault(each, {})[claim] = None

    def extend(self, claim: Claim, ids: Set[ConsumerId]) -> None:
        """Add consumers to a claim: its subscription serves them too."""
        for each in ids - claim.ids:
            claim.ids.add(each)
            self._claims.setdefault(each, {})[claim] = None

    def narrow(self, claim: Claim, ids: Set[ConsumerId]) -> None:
        """Remove consumers that have ended from a claim; its subscription serves others, and goes on."""
        narrowed = ids & claim.ids
        for each in narrowed:
            claim.ids.remove(each)
            self._forget_id(claim, each)
        if narrowed:
            for owner in self._owners:
                owner.on_narrowed(narrowed)

    def release(self, claim: Claim, gone: Set[ConsumerId]) -> None:
        """Remove a claim.

        Args:
            claim: the claim.
            gone: those of its consumers that have ended.
        """
        del self._owners[claim.owner][claim]
        self._forget(claim)
        self._announce(claim.owner, claim.ids, gone)

    def _rivals(self, destination: Destination, ids: Set[ConsumerId]) -> list[Claim]:
        found = dict.fromkeys(claim for each in ids for claim in self._claims.get(each, ()))
        return [claim for claim in found if not claim.is_displaced and claim.covers(destination)]

    def _forget(self, claim: Claim) -> None:
        for each in claim.ids:
            self._forget_id(claim, each)

    def _forget_id(self, claim: Claim, consumer_id: ConsumerId) -> None:
        claims = self._claims[consumer_id]
        del claims[claim]
        if not claims:
            del self._claims[consumer_id]

    def _announce(self, actor: ClaimOwner, ids: Set[ConsumerId], gone: Set[ConsumerId]) -> None:
        for owner in self._owners:
            owner.on_release(ids, gone, wakes=owner is not actor)
