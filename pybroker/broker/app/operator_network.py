"""The state of network connectors and bridges as text, from the answers of the API."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pybroker.broker.app.operator_lists import all_pages
from pybroker.broker.app.operator_text import Row, TableColumn, age, number, plain, table
from pybroker.broker.domain.network.rows import UP

if TYPE_CHECKING:
    from pybroker.management_client.client import ManagementClient

_PARTS: Final = ("connectors", "bridges", "incoming", "demand", "stranded")
"""The lists of the API below `network`."""

_STATE: Final = (
    TableColumn("STATE", "shown_state", plain),
    TableColumn("REMOTE BROKER", "remote", plain),
    TableColumn("SINCE", "since", plain, True),
    TableColumn("DEMAND", "demand", number, True),
)
_BRIDGES: Final = (
    TableColumn("CONNECTOR", "connector", plain),
    *_STATE,
    TableColumn("FORWARDED", "forwarded", number, True),
    TableColumn("RECEIVED", "received", number, True),
    TableColumn("FAILURES", "failures", number, True),
    TableColumn("LAST FAILURE", "failure", plain),
)
_INCOMING: Final = (
    TableColumn("INCOMING", "connector", plain),
    *_STATE,
    TableColumn("RECEIVED", "received", number, True),
    TableColumn("FORWARDED", "forwarded", number, True),
    TableColumn("PROBLEM", "problem", plain),
)
_DEMAND: Final = (
    TableColumn("CONNECTOR", "connector", plain),
    TableColumn("DESTINATION", "shown_destination", plain),
    TableColumn("PREFETCH", "prefetch", number, True),
    TableColumn("OUTSTANDING", "outstanding", number, True),
    TableColumn("PRIORITY", "priority", number, True),
    TableColumn("STATE", "shown_state", plain),
    TableColumn("SELECTOR", "selector", plain),
    TableColumn("SUBSCRIPTION", "subscription", plain),
)
_STRANDED: Final = (
    TableColumn("QUEUE", "queue", plain),
    TableColumn("SIZE", "size", number, True),
    TableColumn("STRANDED", "shown_stranded", plain, True),
)


def fetch(client: "ManagementClient") -> dict[str, Any]:
    """Return all lists about networks.

    Raises:
        ManagementError: there are none.
    """
    return {part: all_pages(client, "network", part) for part in _PARTS}


def described(found: Mapping[str, Sequence[Row]], now_ms: int) -> Iterator[str]:
    """Yield the lines of the lists; those without a row are left out."""
    if not found["connectors"]:
        yield "there is no network connector"
    else:
        yield from table(_BRIDGES, [_bridge(row, now_ms) for row in found["bridges"]])
    if found["incoming"]:
        yield ""
        yield from table(_INCOMING, [_incoming(row, now_ms) for row in found["incoming"]])
    if found["demand"]:
        yield ""
        yield from table(_DEMAND, map(_demand, found["demand"]))
    if found["stranded"]:
        yield ""
        yield from table(_STRANDED, map(_stranded, found["stranded"]))


def _bridge(row: Row, now_ms: int) -> Row:
    wait = max(0, row["next_attempt_ms"] - now_ms) / 1000
    waits = f"waits, connects in {wait:.0f} s"
    failed_at = f"{age(now_ms - row['last_failure_ms'])} ago: " if row["last_failure"] else ""
    return {
        **row,
        "shown_state": waits if row["next_attempt_ms"] else row["state"].upper() if row["state"] != UP else UP,
        "remote": " at ".join(filter(None, (row["remote_name"], row["target"]))),
        "since": age(now_ms - row["since_ms"]),
        "failure": failed_at + row["last_failure"],
    }


def _incoming(row: Row, now_ms: int) -> Row:
    ways = "both ways" if row["is_duplex"] else "one way"
    return {
        **row,
        "shown_state": "REFUSED" if row["problem"] else ways,
        "remote": " at ".join(filter(None, (row["remote_name"], row["address"]))),
        "since": age(now_ms - row["since_ms"]),
    }


def _demand(row: Row) -> Row:
    state = "ends" if row["is_ending"] else "paused" if row["is_paused"] else ""
    return {**row, "shown_destination": f"{row['kind']}://{row['destination']}", "shown_state": state}


def _stranded(row: Row) -> Row:
    of = "" if row["examined"] >= row["size"] else f" of the first {row['examined']}"
    return {**row, "shown_stranded": f"{row['stranded']}{of}"}
