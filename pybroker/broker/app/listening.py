"""The listeners that settings open, and their TLS: settings that are ports, and tables.

With tables the defaults of the ports do not count: the tables list what is open, and a port that is set besides.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pybroker.broker.app.listeners import (
    PORTS,
    ListenerKind,
    ListenerSettings,
    MqttSettings,
    TlsSettings,
    networks_of,
    proxied_of,
)
from pybroker.broker.app.network_settings import NetworkSettings
from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.network.cluster import ClusterSettings
from pybroker.security.networks import Networks

if TYPE_CHECKING:  # imported when a file has tables
    from pybroker.broker.app.listener_tables import ListenerTable


_NAMES_OF_SCHEMES: Final = {"openwire_ssl": "ssl", "mqtt_ssl": "mqtts", "ws_ssl": "wss"}
"""The names by which management knows listeners of ports with TLS, as far as they could be names of tables."""


def open_listeners(config: NetworkSettings, tables: "Sequence[ListenerTable]") -> Iterator[ListenerSettings]:
    """Yield the listeners of the settings that are ports, and then those of the tables.

    Raises:
        ConfigError: a table does not go with the other settings.
        ValueError: a port does not.
    """
    wanted = [name for name in PORTS if not tables or name in config.given]
    ports = {name: number for name in wanted if (number := getattr(config, name)) is not None}
    if not tables:
        yield from _of_ports(config, ports, proxied_of(config.proxy_protocol, ports))
        return
    from pybroker.broker.app import listener_tables  # only some files have any

    schemes = [scheme for name, scheme in _NAMES_OF_SCHEMES.items() if name in ports]
    names = listener_tables.names_of(tables, [*ports, *schemes])
    proxied = proxied_of(config.proxy_protocol, [*ports, *names])
    yield from _of_ports(config, ports, proxied)
    for table, name in zip(tables, names, strict=True):
        yield _opened(table, name, config, is_for_proxies=name in proxied)


def check_tls(config: NetworkSettings) -> None:
    """Check the plain settings of TLS together. Those that are no files may be there for listeners with own files.

    Raises:
        ValueError: they do not go together.
    """
    has_tls = config.tls_certificate is not None or any(each.tls for each in config.listeners)
    if config.tls_certificate is None and (config.tls_key or config.tls_key_password_file):
        raise ValueError("tls_key, and tls_key_password_file, go with a tls_certificate")
    if config.tls_client_ca and not has_tls:
        raise ValueError("tls_client_ca goes with a tls_certificate")
    if config.tls_client_auth == "want" and config.tls_client_ca is None:
        raise ValueError("tls_client_auth = want goes with a tls_client_ca, without which no certificate is asked for")
    if config.tls_ciphers is not None and (not has_tls or config.tls_version_min != "1.2"):
        raise ValueError("tls_ciphers goes with a tls_certificate and tls_version_min = 1.2: it is for TLS 1.2")


def _of_ports(config: NetworkSettings, ports: dict[str, int], proxied: frozenset[str]) -> Iterator[ListenerSettings]:
    tls = config.tls
    for name, number in ports.items():
        kind, is_tls = PORTS[name]
        if is_tls and tls is None:
            raise ValueError(f"{name} needs a certificate: set tls_certificate")
        yield ListenerSettings(
            name=name,
            kind=kind,
            is_table=False,
            tls=tls if is_tls else None,
            host=config.bind,
            port=number,
            frame_max=config.frame_max,
            max_inactivity=config.openwire_max_inactivity,
            initial_delay=config.openwire_initial_delay,
            cluster=config.cluster_settings,
            mqtt=config.mqtt_settings,
            amqp_transformer=config.amqp_transformer,
            amqp_max_inactivity=config.amqp_max_inactivity,
            connections_max=None,
            networks=None,
            is_for_proxies=name in proxied,
        )


def _opened(table: "ListenerTable", name: str, config: NetworkSettings, *, is_for_proxies: bool) -> ListenerSettings:
    """Return the listener of a table, with the plain settings for what that does not set.

    Args:
        table: the table.
        name: the listener's name.
        config: the plain settings.
        is_for_proxies: the plain setting `proxy_protocol` names it.

    Raises:
        ConfigError: the table does not go with the plain settings.
    """
    own_max = table.connections_max
    if own_max is not None and own_max > config.connections_max:
        raise ConfigError(
            f"{name}: connections_max is {own_max}, and only {config.connections_max} for the whole broker",
            setting="listeners",
            hint="raise that, which is the plain setting connections_max",
        )
    networks = None
    if table.allow is not None or table.deny is not None:
        allow = config.allow if table.allow is None else table.allow
        deny = config.deny if table.deny is None else table.deny
        networks = Networks(allow=networks_of("allow", allow), deny=networks_of("deny", deny))
    inactivity, delay = table.openwire_max_inactivity, table.openwire_initial_delay
    silence = table.amqp_max_inactivity
    return ListenerSettings(
        name=name,
        kind=ListenerKind(table.protocol),
        is_table=True,
        tls=_tls_of_table(table, name, config) if table.tls else None,
        host=next(each for each in (table.host, table.bind, config.bind) if each is not None),
        port=table.port,
        frame_max=config.frame_max if table.frame_max is None else table.frame_max,
        max_inactivity=config.openwire_max_inactivity if inactivity is None else inactivity,
        initial_delay=config.openwire_initial_delay if delay is None else delay,
        cluster=_cluster_of_table(table, config),
        mqtt=_mqtt_of_table(table, config),
        amqp_transformer=table.amqp_transformer or config.amqp_transformer,
        amqp_max_inactivity=config.amqp_max_inactivity if silence is None else silence,
        connections_max=own_max,
        networks=networks,
        is_for_proxies=is_for_proxies if table.proxy_protocol is None else table.proxy_protocol,
    )


def _cluster_of_table(table: "ListenerTable", config: NetworkSettings) -> ClusterSettings:
    plain, on_remove = config.cluster_settings, table.update_cluster_clients_on_remove
    update, rebalance = table.update_cluster_clients, table.rebalance_cluster_clients
    return ClusterSettings(
        update_clients=plain.update_clients if update is None else update,
        rebalance_clients=plain.rebalance_clients if rebalance is None else rebalance,
        update_on_remove=plain.update_on_remove if on_remove is None else on_remove,
        filter=plain.filter if table.update_cluster_filter is None else table.update_cluster_filter,
    )


def _mqtt_of_table(table: "ListenerTable", config: NetworkSettings) -> MqttSettings:
    keep_alive, receive_maximum = table.mqtt_keep_alive_max, table.mqtt_receive_maximum
    return MqttSettings(
        keep_alive_max=config.mqtt_keep_alive_max if keep_alive is None else keep_alive,
        receive_maximum=config.mqtt_receive_maximum if receive_maximum is None else receive_maximum,
        subscription_strategy=table.mqtt_subscription_strategy or config.mqtt_subscription_strategy,
    )


def _tls_of_table(table: "ListenerTable", name: str, config: NetworkSettings) -> TlsSettings:
    has_own = table.tls_certificate is not None
    certificate = table.tls_certificate or config.tls_certificate
    if certificate is None:
        raise ConfigError(f"{name} needs a certificate: set tls_certificate", setting="listeners")
    auth = table.tls_client_auth or config.tls_client_auth
    client_ca = None if auth == "none" else table.tls_client_ca or config.tls_client_ca
    if client_ca is None and table.tls_client_auth in ("need", "want"):
        raise ConfigError(
            f"{name}: tls_client_auth = {auth} goes with a tls_client_ca, without which no certificate is asked for",
            setting="listeners",
        )
    version_min = table.tls_version_min or config.tls_version_min
    if table.tls_ciphers is not None and version_min != "1.2":
        raise ConfigError(
            f"{name}: tls_ciphers goes with tls_version_min = 1.2: it is for TLS 1.2", setting="listeners"
        )
    return TlsSettings(
        certificate=certificate,
        key=table.tls_key if has_own else config.tls_key,
        key_password_file=table.tls_key_password_file if has_own else config.tls_key_password_file,
        client_ca=client_ca,
        needs_client=auth == "need",
        version_min=version_min,
        ciphers=(table.tls_ciphers or config.tls_ciphers) if version_min == "1.2" else None,
    )
