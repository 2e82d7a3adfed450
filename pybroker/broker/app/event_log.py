"""Records the HA events of this member in its history, and notifies the configured command and webhook of them."""

import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from pybroker.broker.app.alerts import Alert, Alerts
from pybroker.broker.app.ha_events import HaEvent, HaEventKind
from pybroker.broker.app.machine import clock
from pybroker.broker.domain.role import Role
from pybroker.store.member_history import HISTORY_MAX, Entry

_TOLD: Final = {
    HaEventKind.DEGRADED: "degraded",
    HaEventKind.HEALTHY: "healthy",
    HaEventKind.PROMOTION: "master",
}


class EventLog:
    """The events of one member, the newest `HISTORY_MAX`."""

    def __init__(
        self, name: str, store: str, alerts: Alerts, keep: Callable[[Entry], None], earlier: Sequence[Entry] = ()
    ) -> None:
        """Create it.

        Args:
            name: the name of the member.
            store: the store's name, without a password.
            alerts: gets the events that an operator may want to act on.
            keep: stores an entry, without blocking.
            earlier: the entries of earlier processes of this member.
        """
        self._name = name
        self._store = store
        self._alerts = alerts
        self._keep = keep
        self._entries: deque[Entry] = deque(earlier, maxlen=HISTORY_MAX)

    def __call__(self, event: HaEvent) -> None:
        """Take an event."""
        entry = event.as_entry(clock())
        self._entries.append(entry)
        self._keep(entry)
        if (told := _name_of(event)) is not None:
            alert: Alert = {"event": told, "member": self._name, "host": socket.gethostname(), "store": self._store}
            self._alerts.send(alert | {name: value for name, value in entry.items() if name != "kind"})

    def entries(self) -> list[Entry]:
        """Return the entries, the oldest first."""
        return list(self._entries)


def _name_of(event: HaEvent) -> str | None:
    """Return the name of an event in notifications; None if none is sent for it."""
    if event.kind is HaEventKind.ROLE:
        return (
            "stepped_back" if event.former in (Role.MASTER, Role.PROMOTING) and event.role is not Role.MASTER else None
        )
    return _TOLD.get(event.kind)
