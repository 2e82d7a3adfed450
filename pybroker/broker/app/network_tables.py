"""The configuration's `[[network]]` tables: connectors to other brokers, with ActiveMQ's attributes in snake case.

```toml
[[network]]
name = "to-berlin"
uri = "masterslave:(tcp://berlin-a:61616,tcp://berlin-b:61616)"
dynamically_included = ["queue://ORDERS.>"]
```
"""

from collections.abc import Iterable
from typing import Any, Final

from pybroker.broker.app.setting import Setting, Table, listed, milliseconds, tables, text, whole, yes_or_no
from pybroker.broker.domain.destination import Destination, parse, parts
from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.network.connector import NetworkConnector
from pybroker.broker.domain.network.properties import is_forced_durable
from pybroker.transports.network import discovery

_NAME_MAX: Final = 200
_INT_MAX: Final = (1 << 31) - 1
"""The largest prefetch size that a ConsumerInfo can have."""
_TOKEN_MAX: Final = 20


def _destination(value: object) -> Destination:
    return parse(text(value))


def _included(value: object) -> tuple[Destination, bool]:
    """Return a destination of a list that includes, and True if consumers of the topic are durable demand."""
    is_forced = is_forced_durable(text(value))
    if is_forced and not _destination(value).is_topic:
        raise ValueError("forceDurable goes with a topic")
    return _destination(value), is_forced


def _name(value: object) -> str:
    """Return the name of a connector. Those of ActiveMQ have blanks and signs, such as `a->b`, and must stay."""
    name = text(value)
    if not 0 < len(name) <= _NAME_MAX or not name.isprintable():
        raise ValueError(f"a name has 1 to {_NAME_MAX} characters, all of which can be printed")
    return name


def _token(value: object) -> str:
    """Return what joins the parts of client ids."""
    token = text(value)
    if len(token) > _TOKEN_MAX or not token.isprintable():
        raise ValueError(f"it has at most {_TOKEN_MAX} characters, all of which can be printed")
    return token


def _secret(value: object) -> str:
    """Return a password, which no error may show."""
    if not isinstance(value, str):
        raise ValueError("it is not text: write it in quotes")
    return value


_LIST_HINT: Final = 'it is a list of destinations, such as ["queue://A", "topic://B.>"]'
_destinations: Final = listed(_destination, "entry", _LIST_HINT)
_TTL: Final = Setting(whole, least=-1)
_FLAG: Final = Setting(yes_or_no)
_LIST: Final = Setting(_destinations)
_INCLUDING: Final = Setting(listed(_included, "entry", _LIST_HINT))
_TEXT: Final = Setting(text)

_INCLUDED: Final = ("dynamically_included", "statically_included")

_ATTRIBUTES: Final = {
    "name": Setting(_name),
    "client_id_token": Setting(_token),
    "uri": Setting(text, is_required=True),
    "duplex": _FLAG,
    "network_ttl": _TTL,
    "consumer_ttl": _TTL,
    "message_ttl": _TTL,
    "prefetch_size": Setting(whole, least=1, most=_INT_MAX),
    "advisory_prefetch_size": Setting(whole, least=0, most=_INT_MAX),
    "advisory_ack_percentage": Setting(whole, least=1, most=100),
    "conduit_subscriptions": _FLAG,
    "conduit_network_queue_subscriptions": _FLAG,
    "dynamic_only": _FLAG,
    "sync_durable_subs": _FLAG,
    "decrease_network_consumer_priority": _FLAG,
    "consumer_priority_base": Setting(whole, least=-128, most=127),
    "suppress_duplicate_queue_subscriptions": _FLAG,
    "suppress_duplicate_topic_subscriptions": _FLAG,
    "bridge_temp_destinations": _FLAG,
    "always_sync_send": _FLAG,
    "static_bridge": _FLAG,
    "advisory_for_failed_forward": _FLAG,
    "use_compression": _FLAG,
    "use_virtual_dest_subs": _FLAG,
    "replay_when_no_consumers": _FLAG,
    "replay_delay": Setting(milliseconds, above=0),
    "destination_filter": _TEXT,
    "user_name": _TEXT,
    "password": Setting(_secret, is_secret=True),
    "remote_user_name": _TEXT,
    "remote_password": Setting(_secret, is_secret=True),
    "tls_ca": _TEXT,
    "tls_certificate": _TEXT,
    "tls_key": _TEXT,
    "tls_key_password_file": _TEXT,
    "tls_verify_hostname": _FLAG,
    "excluded": _LIST,
    **dict.fromkeys(_INCLUDED, _INCLUDING),
    "gc_destination_views": _FLAG,
    "gc_sweep_time": Setting(whole),
    "use_broker_names_as_id_seed": _FLAG,
    "dispatch_async": _FLAG,
    "check_duplicate_messages_on_duplex": _FLAG,
}

_WITHOUT_EFFECT: Final = (
    "gc_destination_views",
    "gc_sweep_time",
    "use_broker_names_as_id_seed",
    "dispatch_async",
    "check_duplicate_messages_on_duplex",
)
"""Attributes of ActiveMQ's management, ids and threads; and one for what is always so here, see `bridged_messages`."""

_OF_CERTIFICATE: Final = ("tls_key", "tls_key_password_file")


def _connector(**given: Any) -> NetworkConnector:
    for name in _WITHOUT_EFFECT:
        given.pop(name, None)
    entries = {name: given.pop(name, ()) for name in _INCLUDED}
    given |= {name: tuple(each for each, _ in found) for name, found in entries.items()}
    forced = (each for found in entries.values() for each, is_forced in found if is_forced)
    given["forced_durable"] = tuple(part for each in forced for part in parts(each) if part.is_topic)
    if (ttl := given.pop("network_ttl", None)) is not None:
        given = {"consumer_ttl": ttl, "message_ttl": ttl} | given
    has_tls = any(address.is_tls for target in discovery.parse(given["uri"]) for address in target.addresses)
    for name in given:
        if name.startswith("tls_") and not has_tls:
            raise ValueError(f"{name} goes with an address ssl://HOST:PORT, and the uri has none")
    if "tls_certificate" not in given and (of_it := next((each for each in _OF_CERTIFICATE if each in given), None)):
        raise ValueError(f"{of_it} goes with a tls_certificate in the same table")
    if "replay_delay" in given and not given.get("replay_when_no_consumers"):
        raise ValueError("replay_delay goes with replay_when_no_consumers = true")
    return NetworkConnector(**given)


def read_networks(value: object) -> tuple[NetworkConnector, ...]:
    """Read the tables.

    Raises:
        ValueError: one is not valid, or two have the same name.
    """
    found = tables(Table(_connector, _ATTRIBUTES), "network")(value)
    names = [each.name for each in found]
    for name in names:
        if names.count(name) > 1:
            remedy = "give each a name of its own, or the other broker would refuse the second bridge"
            raise ValueError(f"two tables have the name {name!r}: {remedy}")
    return found


def check_files(connectors: Iterable[NetworkConnector]) -> None:
    """Read the certificates and keys for TLS, which each connection reads again.

    Raises:
        ConfigError: one cannot be used.
    """
    from pybroker.transports.network.outgoing import tls_context  # few connectors have TLS

    for connector in connectors:
        for address in (each for target in discovery.parse(connector.uri) for each in target.addresses if each.is_tls):
            try:
                tls_context(connector, address)
            except ConfigError as error:
                raise ConfigError(error.reason, setting=f"network.{error.setting}", hint=error.hint) from error
