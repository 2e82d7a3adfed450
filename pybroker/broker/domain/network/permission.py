"""Which destinations a bridge may serve: for demand, and once more for each message.

Source: ActiveMQ 5.17, `DemandForwardingBridgeSupport.isPermissableDestination`. ActiveMQ refuses a pattern if `*` of
either side makes it look like an excluded destination; here it is admitted if it covers a destination that is.
"""

from collections.abc import Callable, Iterable

from pybroker.broker.domain.destination import Destination, covers, parts, patterns_overlap
from pybroker.broker.domain.network.connector import NetworkConnector


class Permissions:
    """Decides by the lists of one connector."""

    def __init__(self, connector: NetworkConnector) -> None:
        self._bridges_temporary = connector.bridge_temp_destinations
        self._excluded = _listed(connector.excluded)
        self._static = _listed(connector.statically_included)
        self._dynamic = _listed(connector.dynamically_included)
        self._admits_all = not self._excluded and not self._dynamic

    def admits(self, destination: Destination) -> bool:
        """Return True if demand for the destination, and its messages, may pass.

        The order is ActiveMQ's: temporary destinations by the attribute for them; then excluded destinations; then
        static ones, which pass; then dynamically included ones, or all if none are listed.

        A wildcard pattern passes unless all names that it covers are excluded; of lists that include, if a name that it
        covers is included. Its messages are decided one by one.
        """
        if destination.is_temporary:
            return self._bridges_temporary
        if self._admits_all:
            return True
        if _is_listed(self._excluded, destination, covers):
            return False
        if not self._dynamic or _is_listed(self._static, destination, patterns_overlap):
            return True
        return _is_listed(self._dynamic, destination, patterns_overlap)


def _listed(destinations: Iterable[Destination]) -> tuple[Destination, ...]:
    """Return the destinations, with a composite one replaced by its parts."""
    return tuple(part for each in destinations for part in parts(each))


def _is_listed(listed: Iterable[Destination], destination: Destination, matches: Callable[[str, str], bool]) -> bool:
    return any(each.type is destination.type and matches(each.name, destination.name) for each in listed)
