"""The events of high availability: what a member becomes, how long that takes, and when it is not well.

Each is an entry of the member's history. Those that an operator may want to act on go to a command or a web server as
well, see `alerts`.
"""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from pybroker.broker.domain.role import Role
from pybroker.store.member_history import Entry

_TEXT_MAX: Final = 300
_REASONS_MAX: Final = 4
"""So that an entry is shorter than a line of a history may be."""


class HaEventKind(enum.StrEnum):
    """The kind of an event."""

    ROLE = "role"
    PROMOTION = "promotion"
    DEGRADED = "degraded"
    HEALTHY = "healthy"


@dataclass(frozen=True, slots=True, kw_only=True)
class HaEvent:
    """One event.

    Attributes:
        kind: its kind.
        role: the role of the member from then on.
        former: the role before, of a change of roles.
        reason: the reason of a change of roles.
        reasons: the reasons for which a member is degraded.
        epoch: the epoch of a promotion.
        phases: milliseconds of each phase of a promotion, in their order.
        total_ms: milliseconds from the lock to the listeners.
        degraded_ms: for how long a member was degraded that is healthy again.
    """

    kind: HaEventKind
    role: Role
    former: Role | None = None
    reason: str = ""
    reasons: tuple[str, ...] = ()
    epoch: int = 0
    phases: Mapping[str, int] = field(default_factory=dict[str, int])
    total_ms: int = 0
    degraded_ms: int = 0

    def as_entry(self, at_ms: int) -> Entry:
        """Return the entry of a history."""
        entry: Entry = {"at_ms": at_ms, "kind": self.kind.value, "role": self.role.value}
        if self.kind is HaEventKind.ROLE:
            entry["reason"] = self.reason[:_TEXT_MAX]
        elif self.kind is HaEventKind.PROMOTION:
            entry |= {"epoch": self.epoch, "phases": dict(self.phases), "total_ms": self.total_ms}
        elif self.kind is HaEventKind.DEGRADED:
            entry["reasons"] = [each[:_TEXT_MAX] for each in self.reasons[:_REASONS_MAX]]
        else:
            entry["degraded_ms"] = self.degraded_ms
        return entry


Report = Callable[[HaEvent], None]
"""Takes an event, without blocking."""


def ignore(event: HaEvent) -> None:
    """Do nothing with an event: for a run without a history."""


class Phases:
    """Measures the phases of a promotion."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin with the first phase; the clock gives seconds."""
        self._clock = clock
        self._marked_at = clock()
        self.milliseconds: dict[str, int] = {}

    def end(self, phase: str) -> None:
        """End a phase, and begin the next one."""
        now = self._clock()
        self.milliseconds[phase] = round((now - self._marked_at) * 1000)
        self._marked_at = now
