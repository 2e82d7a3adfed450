"""The setting `destinations`: queues and topics that exist from the start, as ActiveMQ's element of that name has them.

```toml
destinations = ["queue://ORDERS.IN", "topic://PRICES.EUR"]
```
"""

from typing import Final

from pybroker.broker.app.setting import listed, single, text
from pybroker.broker.core.destinations import check_name
from pybroker.broker.core.scheduling_queue import SCHEDULING_QUEUE
from pybroker.broker.domain.destination import Destination, is_advisory, parse
from pybroker.broker.domain.errors import InvalidDestination
from pybroker.broker.domain.reserved_queues import RESERVED_QUEUES

_SCHEMES: Final = ("queue://", "topic://")


def _destination(value: object) -> Destination:
    given = text(value)
    if not given.startswith(_SCHEMES):
        raise ValueError(f"{given!r} has no kind: write queue://{given} or topic://{given}")
    destination = single(parse(given))
    check_name(destination)
    if is_advisory(destination) or destination == SCHEDULING_QUEUE or destination in RESERVED_QUEUES:
        raise InvalidDestination(f"{destination} is the broker's own")
    return destination


_read_list = listed(_destination, "destination", 'it is a list: write for example ["queue://A", "topic://B"]')


def read_destinations(value: object) -> tuple[Destination, ...]:
    """Return the value of the setting, each destination once."""
    return tuple(dict.fromkeys(_read_list(value)))
