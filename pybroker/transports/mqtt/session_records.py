"""The records of MQTT sessions in the store: the parts of a session that durable subscriptions have no place for.

```text
{"version": 1, "user": "device", "expiry": 3600, "durable": true, "subscriptions": [["a/+", 0, false, false, null], …]}

user            its user, if clients log in
expiry          the session expiry interval in seconds; null: the session does not end
durable         true if it has subscriptions with QoS 1 or 2, which are durable ones
subscriptions   topic filter, QoS, no local, retain as published, subscription identifier
```

Durable subscriptions without options are not in the record: the store has all of them, in the form of ActiveMQ. So for
most clients it is written once. An ActiveMQ that has the store meanwhile neither reads nor changes it: where a durable
subscription is gone, or has another QoS, the record is outdated.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, cast

from pybroker.broker.domain.errors import RequestError
from pybroker.broker.domain.mqtt.packets import FilterSubscription
from pybroker.transports.mqtt.session_state import KeptSubscription

_log = logging.getLogger(__name__)

_VERSION: Final = 1

RECORD_BYTES_MAX: Final = 64 << 10
"""The bytes of a record, which is written whole for each change: some 1,000 topic filters with QoS 0. The subscriptions
of a session that do not fit end with its master."""


class RecordStore(Protocol):
    """Keeps one record per client id."""

    def __contains__(self, key: str) -> bool:
        """Return True if there is a record."""
        ...

    def __iter__(self) -> Iterator[str]:
        """Iterate over the client ids."""
        ...

    @property
    def can_grow(self) -> bool:
        """False while the store has no space for new messages."""
        ...

    def put(self, key: str, body: bytes) -> None:
        """Append a record, which replaces that of the same client id.

        Raises:
            RequestError: the store cannot hold the client id.
        """
        ...

    def remove(self, key: str) -> None:
        """Append the removal of a record; do nothing if there is none."""
        ...

    def request(self, key: str, receive: Callable[[bytes | None], None]) -> None:
        """Read a record back in a later turn of the event loop, or now; None: there is none."""
        ...


@dataclass(slots=True, kw_only=True)
class SessionRecord:
    """The record of one session.

    Attributes:
        user: the name of its user; None: there were no logins.
        expiry_seconds: the session expiry interval; None: the session does not end.
        is_durable: True if it has durable subscriptions.
        subscriptions: those that are not in the store as durable ones, or have options, by topic filter.
    """

    user: str | None
    expiry_seconds: int | None
    is_durable: bool = False
    subscriptions: dict[str, KeptSubscription] = field(default_factory=dict[str, KeptSubscription])


def record_of(
    subscriptions: Mapping[str, KeptSubscription], *, user: str | None, expiry_seconds: int | None
) -> SessionRecord:
    """Return the record of a session with these subscriptions."""
    return SessionRecord(
        user=user,
        expiry_seconds=expiry_seconds,
        is_durable=any(each.subscription.qos for each in subscriptions.values()),
        subscriptions={text: kept for text, kept in subscriptions.items() if _has_options(kept)},
    )


def _has_options(kept: KeptSubscription) -> bool:
    options = kept.subscription
    return not options.qos or options.retain_as_published or kept.identifier is not None


def encode_record(record: SessionRecord) -> bytes:
    """Return the body of a record, without those subscriptions for which it has no space."""
    left, rows = RECORD_BYTES_MAX, list[list[object]]()
    for options, identifier in record.subscriptions.values():
        row: list[object] = [options.filter, options.qos, options.no_local, options.retain_as_published, identifier]
        left -= len(json.dumps(row)) + 2
        if left < 0:
            break
        rows.append(row)
    fields = {
        "version": _VERSION,
        "user": record.user,
        "expiry": record.expiry_seconds,
        "durable": record.is_durable,
        "subscriptions": rows,
    }
    return json.dumps(fields).encode()


def decode_record(client_id: str, body: bytes) -> SessionRecord | None:
    """Return a record; None, with a warning in the log, if it is none: the session goes on without it."""
    try:
        fields = cast("dict[str, object]", json.loads(body))
        if fields["version"] != _VERSION:
            raise ValueError(f"its version is {fields['version']}")
        record = SessionRecord(
            user=cast("str | None", fields["user"]),
            expiry_seconds=cast("int | None", fields["expiry"]),
            is_durable=bool(fields["durable"]),
        )
        for row in cast("list[list[object]]", fields["subscriptions"]):
            text, qos, no_local, as_published, identifier = row
            options = FilterSubscription(str(text), int(cast("int", qos)), bool(no_local), bool(as_published))
            record.subscriptions[options.filter] = KeptSubscription(options, cast("int | None", identifier))
    except (ValueError, KeyError, TypeError) as error:
        _log.warning("the record of the session of %s cannot be used: %s", client_id, error)
        return None
    return record


def put_record(records: RecordStore, client_id: str, body: bytes) -> None:
    """Append a record if the store takes it; without one the session goes on by its durable subscriptions alone."""
    if not records.can_grow:
        records.remove(client_id)
        return
    try:
        records.put(client_id, body)
    except RequestError as error:
        _log.warning("the session of %s outlasts its master by durable subscriptions alone: %s", client_id, error)
