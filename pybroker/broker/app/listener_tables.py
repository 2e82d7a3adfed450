"""The configuration's `[[listeners]]` tables; `listening` opens the listeners.

```toml
[[listeners]]
name = "partners"
protocol = "openwire"
host = "192.0.2.10"
port = 61617
tls = true
connections_max = 50
```

A value that a table does not set is that of the plain setting of the same name. The certificate, its key and the key's
password belong together: a table with a certificate of its own takes none of them from the plain settings.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pybroker.broker.app.listeners import ListenerKind, networks_of
from pybroker.broker.app.setting import Read, Setting, Table, choice, member_name, port, tables, text, yes_or_no
from pybroker.broker.domain.errors import ConfigError

_TLS: Final = (
    "tls_certificate",
    "tls_key",
    "tls_key_password_file",
    "tls_client_ca",
    "tls_client_auth",
    "tls_version_min",
    "tls_ciphers",
)
_CLUSTER: Final = (
    "update_cluster_clients",
    "rebalance_cluster_clients",
    "update_cluster_clients_on_remove",
    "update_cluster_filter",
)
_OPENWIRE: Final = ("openwire_max_inactivity", "openwire_initial_delay", *_CLUSTER)
_MQTT: Final = ("mqtt_keep_alive_max", "mqtt_receive_maximum", "mqtt_subscription_strategy")
_WITHOUT_MQTT: Final = (ListenerKind.STOMP.value, ListenerKind.OPENWIRE.value, ListenerKind.AMQP.value)
_WITHOUT_OPENWIRE: Final = (
    ListenerKind.STOMP.value,
    ListenerKind.MQTT.value,
    ListenerKind.AMQP.value,
    ListenerKind.WS.value,
)
_AMQP: Final = ("amqp_transformer", "amqp_max_inactivity")
_WITH_AMQP: Final = (ListenerKind.AMQP.value, ListenerKind.WS.value, ListenerKind.AUTO.value)
_LIKE_SETTINGS: Final = (
    "connections_max",
    "frame_max",
    *_AMQP,
    *_OPENWIRE,
    *_MQTT,
    *(name for name in _TLS if "auth" not in name),
)
"""The attributes with the bounds of the plain settings of the same names."""

_SCHEME: Final = "tcp"
"""No name of a listener: management knows the listener of the setting `openwire` by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerTable:
    """One `[[listeners]]` table, as it is given; None: not set. `bind` is another name of `host`.

    Raises:
        ValueError: attributes do not go together.
    """

    protocol: str
    port: int
    name: str | None = None
    host: str | None = None
    bind: str | None = None
    tls: bool | None = None
    proxy_protocol: bool | None = None
    allow: str | None = None
    deny: str | None = None
    connections_max: int | None = None
    frame_max: int | None = None
    openwire_max_inactivity: float | None = None
    openwire_initial_delay: float | None = None
    update_cluster_clients: bool | None = None
    rebalance_cluster_clients: bool | None = None
    update_cluster_clients_on_remove: bool | None = None
    update_cluster_filter: str | None = None
    mqtt_keep_alive_max: int | None = None
    mqtt_receive_maximum: int | None = None
    mqtt_subscription_strategy: str | None = None
    amqp_transformer: str | None = None
    amqp_max_inactivity: float | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_key_password_file: Path | None = None
    tls_client_ca: Path | None = None
    tls_client_auth: str | None = None
    tls_version_min: str | None = None
    tls_ciphers: str | None = None

    def __post_init__(self) -> None:
        """Check what needs no other settings."""
        if self.host is not None and self.bind is not None:
            raise ValueError("host and bind are the same: write one of them")
        if not self.tls and (given := self._given(_TLS)):
            raise ValueError(f"{given} goes with TLS: write tls = true")
        if self.protocol in _WITHOUT_OPENWIRE and (given := self._given(_OPENWIRE)):
            raise ValueError(f"{given} goes with protocol = 'openwire' or 'auto'")
        if self.protocol in _WITHOUT_MQTT and (given := self._given(_MQTT)):
            raise ValueError(f"{given} goes with protocol = 'mqtt', 'ws' or 'auto'")
        if self.protocol not in _WITH_AMQP and (given := self._given(_AMQP)):
            raise ValueError(f"{given} goes with protocol = 'amqp', 'ws' or 'auto'")
        if self.tls_certificate is None and (given := self._given(("tls_key", "tls_key_password_file"))):
            raise ValueError(f"{given} goes with a tls_certificate in the same table")
        if self.tls_client_auth == "none" and self.tls_client_ca is not None:
            raise ValueError("tls_client_ca goes with tls_client_auth = 'need' or 'want'")

    def _given(self, names: Collection[str]) -> str | None:
        """Return the first of some attributes that is set."""
        return next((name for name in names if getattr(self, name) is not None), None)


def _port(value: object) -> int:
    number = port(value)
    if number is None:
        raise ValueError("write a number; without its table a listener is not open")
    return number


def _networks(name: str) -> Read:
    """Return a reader of a list of networks, which stays text."""

    def read(value: object) -> str:
        networks_of(name, text(value))
        return text(value)

    return read


def _listener_name(value: object) -> str:
    name = member_name(value)
    if name == _SCHEME:
        raise ValueError(f"{name!r} is a scheme of URLs: choose another name")
    return name


_ATTRIBUTES: Final = {
    "name": Setting(_listener_name),
    "protocol": Setting(choice(*(each.value for each in ListenerKind)), is_required=True),
    "host": Setting(text),
    "bind": Setting(text),
    "port": Setting(_port, is_required=True),
    "tls": Setting(yes_or_no),
    "proxy_protocol": Setting(yes_or_no),
    "allow": Setting(_networks("allow")),
    "deny": Setting(_networks("deny")),
    "tls_client_auth": Setting(choice("need", "want", "none")),
}
"""The attributes that differ from the plain settings."""

_NOT_SERVED: Final = (
    "uri",
    "discovery_uri",
    "maximum_consumers_allowed_per_connection",
    "maximum_producers_allowed_per_connection",
    "allow_link_stealing",
)


def read_listeners(value: object, plain: Mapping[str, Setting]) -> tuple[ListenerTable, ...]:
    """Read the tables.

    Args:
        value: the list of them.
        plain: the declarations of the plain settings, whose bounds attributes of the same names have too.

    Raises:
        ValueError: one is not valid; names its number and the attribute.
    """
    like_settings = {name: plain[name]._replace(default=None) for name in _LIKE_SETTINGS}
    table = Table(ListenerTable, _ATTRIBUTES | like_settings, not_served=_NOT_SERVED)
    return tables(table, "listeners")(value)


def names_of(given: Sequence[ListenerTable], taken: Collection[str]) -> list[str]:
    """Return the names of listeners: their own, or made of the protocol, with a number if that is taken.

    Args:
        given: the tables.
        taken: the names of other open listeners.

    Raises:
        ConfigError: two have the same name.
    """
    used = set(taken)
    for name in [each.name for each in given if each.name is not None]:
        if name in used:
            raise ConfigError(f"two listeners have the name {name!r}: choose another one", setting="listeners")
        used.add(name)
    found: list[str] = []
    for each in given:
        name = usual = each.name or each.protocol + ("_ssl" if each.tls else "")
        number = 1
        while each.name is None and name in used:
            number += 1
            name = f"{usual}_{number}"
        used.add(name)
        found.append(name)
    return found
