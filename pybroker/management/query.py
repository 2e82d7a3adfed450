"""Pages of queues and topics for `queryQueues` and `queryTopics`, which consoles of ActiveMQ read.

Source: ActiveMQ 5.17, `DestinationsViewFilter`; management.md, section 5.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from pybroker.broker.domain.node_requests import DestinationRow
from pybroker.management.jolokia_errors import illegal
from pybroker.management.json_types import as_object
from pybroker.management.mbean_destinations import QUEUE, TOPIC
from pybroker.management.mbean_names import destination_keys, with_keys
from pybroker.management.mbeans import BrokerPicture, MBeanKind
from pybroker.management.rest import FILTERS

PAGE_SIZE_MAX: Final = 1000


def _every(row: DestinationRow) -> bool:
    return True


_FILTERS: Final[Mapping[str, Callable[[DestinationRow], bool]]] = {
    "": _every,
    "nonadvisory": _every,  # no other topics are here
    **{name.lower(): keep for name, keep in FILTERS.items()},
}


def query_destinations(picture: BrokerPicture, kind: str, text: str | None, page: int, page_size: int) -> str:
    """Return a page as JSON: `data` with attributes by object name, and the `count` of all that match.

    Args:
        picture: the state, with its destinations.
        kind: `queue` or `topic`.
        text: a JSON object with `name` (a part of it), `filter`, `sortColumn` and `sortOrder`; None: all by name.
        page: the number of the page, from 1 on.
        page_size: destinations of a page.

    Raises:
        JolokiaError: the query makes no sense.
    """
    wanted = _wanted(text)
    table = QUEUE if kind == "queue" else TOPIC
    keep = _FILTERS.get(str(wanted.get("filter") or "").lower())
    if keep is None:
        raise illegal(f"filter is one of {', '.join(_FILTERS)}")
    if page < 1 or not 0 < page_size <= PAGE_SIZE_MAX:
        raise illegal(f"a page is a number from 1 on, and has from 1 to {PAGE_SIZE_MAX} items")
    name = str(wanted.get("name") or "")
    rows = [row for row in picture.destinations if row.kind == kind and name in row.name and keep(row)]
    attribute = _attribute(table, str(wanted.get("sortColumn") or "name"))
    rows.sort(
        key=lambda row: table.attributes[attribute].value(picture, row),
        reverse=str(wanted.get("sortOrder") or "asc").lower() == "desc",
    )
    shown = rows[(page - 1) * page_size : page * page_size]
    return json.dumps(
        {"data": {_name(picture, row): _fields(picture, table, row) for row in shown}, "count": len(rows)}
    )


def _wanted(text: str | None) -> Mapping[str, Any]:
    try:
        found = as_object(json.loads(text or "{}"))
    except ValueError as error:
        raise illegal(f"the filter is no JSON: {error}") from error
    if found is None:
        raise illegal("the filter is a JSON object")
    return found


def _attribute(table: MBeanKind, column: str) -> str:
    found = column[:1].upper() + column[1:]
    if found not in table.attributes or table.attributes[found].needs:
        raise illegal(f"there is no column {column!r}")
    return found


def _name(picture: BrokerPicture, row: DestinationRow) -> str:
    return with_keys(picture.prefix, destination_keys(row.kind, row.is_temporary, row.name))


def _fields(picture: BrokerPicture, table: MBeanKind, row: DestinationRow) -> dict[str, Any]:
    """Return the attributes that need no other rows, with names as beans of Java have them."""
    return {
        _bean_name(name): attribute.value(picture, row)
        for name, attribute in table.attributes.items()
        if not attribute.needs
    }


def _bean_name(name: str) -> str:
    return name if name.isupper() else name[:1].lower() + name[1:]
