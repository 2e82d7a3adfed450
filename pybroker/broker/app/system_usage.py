"""The usage of store and spool, and the URLs of the listeners, for statistics of the broker."""

from collections.abc import Mapping, Sequence

from pybroker.broker.app.config import Config
from pybroker.broker.domain.openwire.values import Long, Value
from pybroker.broker.domain.ports import MessageSpool, MessageStore

_CONNECTORS = {"tcp": "openwire", "ssl": "ssl", "stomp": "stomp", "stomp+ssl": "stomp+ssl"}
"""The entries by the scheme of a listener's URL."""


class BrokerSystemUsage:
    """The usage and the listeners of one master; implements `core.statistics.SystemUsage`."""

    def __init__(
        self, config: Config, store: MessageStore, spool: MessageSpool | None, listeners: Sequence[str]
    ) -> None:
        self._listeners = listeners
        self._config = config
        self._store = store
        self._spool = spool

    def statistics(self) -> Mapping[str, Value]:
        """Return the entries of the answer about the broker; see `core.statistics.SystemUsage`."""
        config, spool = self._config, self._spool
        urls = dict.fromkeys((*_CONNECTORS.values(), "vm"), "")
        for url in self._listeners:
            if (entry := _CONNECTORS.get(url.partition("://")[0])) is not None:
                urls[entry] = url
        return {
            **urls,
            **_usage("store", self._store.used_bytes, config.store_limit),
            **_usage("temp", 0 if spool is None else spool.used_bytes, 0 if spool is None else spool.bytes_max),
            "dataDirectory": config.store if config.is_in_directory else "",
        }


def _usage(name: str, used: int, limit: int) -> dict[str, Value]:
    return {
        f"{name}Usage": Long(used),
        f"{name}Limit": Long(limit),
        f"{name}PercentUsage": 100 * used // limit if limit else 0,
    }
