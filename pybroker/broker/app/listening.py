"""The listeners that settings open, and their TLS: settings that are ports, and tables.

With tables the defaults of the ports do not count: the tables list what is open, and a port that is set besides.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pybroker.broker.app.listeners import PORTS, ListenerSettings, PlainSettings, TlsSettings, proxied_of

if TYPE_CHECKING:  # imported when a file has tables
    from pybroker.broker.app.listener_tables import ListenerTable


def open_listeners(config: PlainSettings, tables: "Sequence[ListenerTable]") -> Iterator[ListenerSettings]:
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

    names = listener_tables.names_of(tables, [*ports, *(["ssl"] if "openwire_ssl" in ports else [])])
    proxied = proxied_of(config.proxy_protocol, [*ports, *names])
    yield from _of_ports(config, ports, proxied)
    for table, name in zip(tables, names, strict=True):
        yield listener_tables.opened(table, name, config, is_for_proxies=name in proxied)


def _of_ports(config: PlainSettings, ports: dict[str, int], proxied: frozenset[str]) -> Iterator[ListenerSettings]:
    tls = tls_of(config)
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
            connections_max=None,
            networks=None,
            is_for_proxies=name in proxied,
        )


def tls_of(config: PlainSettings) -> TlsSettings | None:
    """Return the TLS of the plain settings; None without a certificate."""
    if config.tls_certificate is None:
        return None
    return TlsSettings(
        certificate=config.tls_certificate,
        key=config.tls_key,
        key_password_file=config.tls_key_password_file,
        client_ca=config.tls_client_ca,
        needs_client=config.tls_client_auth == "need",
        version_min=config.tls_version_min,
        ciphers=config.tls_ciphers,
    )


def check_tls(config: PlainSettings) -> None:
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
