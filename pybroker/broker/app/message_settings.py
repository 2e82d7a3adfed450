"""The settings that change what happens to every message, which ActiveMQ has as plugins of the broker.

They are settings of `Config` like all others. The readers of tables are imported with the core when one is needed.
"""

from typing import TYPE_CHECKING, Any

from pybroker.broker.app.setting import Read, choice, declared

if TYPE_CHECKING:  # imported when a file has tables
    from pybroker.broker.core.arrival_rules import TimeStamping

MESSAGE_TABLES = ("time_stamping",)
"""Those of these settings that are tables."""

PERSISTENCY = {"persistent": True, "non_persistent": False}
"""The values of `force_persistency_mode`."""


def _table(name: str) -> Read:
    """Return the reader of a table."""

    def read(value: object) -> Any:
        from pybroker.broker.app import message_tables

        return message_tables.READERS[name](value)

    return read


class MessageSettings:
    """The settings."""

    time_stamping: "TimeStamping | None" = declared(
        _table("time_stamping"),
        None,
        description="Give each message the broker's time, for clients whose clocks are wrong.",
    )
    force_persistency_mode: str | None = declared(
        choice(*PERSISTENCY),
        None,
        description="The delivery mode of all messages that clients send, whatever they say, as with ActiveMQ's "
        "`forcePersistencyModeBrokerPlugin`: `persistent`, or `non_persistent`, which loses them when the broker ends.",
    )
