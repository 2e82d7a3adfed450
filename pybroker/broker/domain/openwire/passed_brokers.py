"""Reads which brokers a message has passed, where the same ones stand behind the properties as in the message before.

All messages of a bridge have come from one broker, most of them with the same path. So the bytes of the last path that
was decoded are compared, and only the number before them is read:

```text
00 structure | 00 consumer | u8 compressed | i32 redelivery counter | path | i64 arrival | 00 user | … | 00 cluster | …
                                                                     as before
```

Anything else is left to `routing`, which checks every field.

Source: OpenWire v11, `Message`.
"""

from typing import Final

from pybroker.broker.domain.message import REDELIVERIES_MAX, BridgeFields
from pybroker.broker.domain.openwire import ids
from pybroker.broker.domain.openwire.layout import MESSAGE, packed

_PATH_BYTES_MAX: Final = 4096
"""The limit to the bytes of the path that is kept, far above those of usual networks."""

_BEFORE_PATH: Final = packed(MESSAGE.run("data_structure", "redelivery_counter", shown=("redelivery_counter",)))
_BEHIND_PATH: Final = packed(MESSAGE.run("arrival", shown=()))
_BEFORE_BYTES: Final = _BEFORE_PATH.size
_BEHIND_BYTES: Final = _BEHIND_PATH.size
_REDELIVERIES_MAX: Final = REDELIVERIES_MAX

_before_at: Final = _BEFORE_PATH.unpack_from
_behind_at: Final = _BEHIND_PATH.unpack_from


class PassedBrokers:
    """The path of the last message of a connection, and its bytes."""

    __slots__ = ("_encoded", "_path", "_unseen")

    def __init__(self) -> None:
        """Begin without a path."""
        self._path: tuple[str, ...] = ()
        self._encoded = b""
        self._unseen: BridgeFields | None = None
        """The fields of a message with this path that was not delivered before."""

    def remember(self, fields: BridgeFields | None) -> None:
        """Compare the messages that follow with the path of this one; None: it has passed no broker."""
        if fields is None or fields.broker_path == self._path:
            return
        encoded = ids.broker_ids(fields.broker_path)
        if len(encoded) <= _PATH_BYTES_MAX:
            self._path, self._encoded, self._unseen = fields.broker_path, encoded, BridgeFields(fields.broker_path, 0)

    def read(self, data: bytes, at: int) -> BridgeFields | None:
        """Return what other brokers have written behind a message's properties, which end at an offset.

        None: it has another path than the message before, or further fields, and has to be read as a whole.
        """
        encoded = self._encoded
        path_at = at + _BEFORE_BYTES
        behind = path_at + len(encoded)
        if not encoded or behind + _BEHIND_BYTES != len(data) or not data.startswith(encoded, path_at):
            return None
        structure: int
        consumer: int
        counter: int
        structure, consumer, counter = _before_at(data, at)
        user: int
        cluster: int
        user, cluster = _behind_at(data, behind)
        if structure or consumer or user or cluster:
            return None
        if not counter:
            return self._unseen
        return BridgeFields(self._path, min(max(counter, 0), _REDELIVERIES_MAX))
