"""Reads `sslContext`: the key stores of listeners with TLS.

Where the file has no `sslContext`, Java's own properties name the stores, such as `javax.net.ssl.keyStore`. The stores
are not opened here: see `derived_files`.

Source: activemq-xml.md, section 10; `SpringSslContext` of ActiveMQ 5.17.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pybroker.activemq_xml.elements import XmlElement
from pybroker.activemq_xml.protection import ConfiguredStore, ConfiguredTls
from pybroker.activemq_xml.reading import (
    Handler,
    Reading,
    Rules,
    ignored,
    read_attributes,
    read_properties,
    refused,
    refused_element,
    silent,
    warned,
)

KEY_ALIAS: Final = "pybroker.key_alias"
"""The property that names the private key where a store has several."""

_OWN_CLASS: Final = "a bean of its own class is not run: name keyStore and trustStore"
_TYPES: Final = ("JKS", "JCEKS", "PKCS12")

SSL_CONTEXT: Final[Rules] = {
    # Read by `_store`:
    **dict.fromkeys(("keyStore", "keyStoreType", "keyStorePassword", "keyStoreKeyPassword"), silent),
    **dict.fromkeys(("trustStore", "trustStoreType", "trustStorePassword"), silent),
    "crlPath": warned("lists of revoked certificates are not read: revoke at the authority, or by users"),
    "protocol": ignored("it is TLS 1.2 or 1.3: see tls_version_min"),
    **dict.fromkeys(
        ("provider", "secureRandomAlgorithm", "keyStoreAlgorithm", "trustStoreAlgorithm"),
        ignored("OpenSSL has its own"),
    ),
    **dict.fromkeys(("SSLContext", "secureRandom"), refused(_OWN_CLASS)),
}
_PROPERTIES: Final[Mapping[str, Handler]] = dict.fromkeys(
    ("SSLContext", "keyManagers", "secureRandom", "trustManagers"), refused_element(_OWN_CLASS)
)


def read(reading: Reading, element: XmlElement) -> None:
    """Read the property `sslContext` of the broker; `complete` says what becomes of it."""
    for each in element.children:
        if each.name != "sslContext":
            reading.findings.refuse(each, _OWN_CLASS)
            continue
        read_attributes(reading, each, SSL_CONTEXT)
        read_properties(reading, each, _PROPERTIES)
        key_store = _store(reading, each, each.attributes, "key")
        if key_store is not None:
            reading.protection = replace(
                reading.protection,
                tls=ConfiguredTls(
                    key_store=key_store,
                    trust_store=_store(reading, each, each.attributes, "trust"),
                    key_alias=reading.file.properties.get(KEY_ALIAS),
                ),
            )


def _store(
    reading: Reading, element: XmlElement, values: Mapping[str, str], kind: str, *, is_attribute: bool = True
) -> ConfiguredStore | None:
    """Return the store of a kind, `key` or `trust`; None if there is none, or if it is refused."""
    name = f"{kind}Store"
    location = values.get(name, "").strip()
    attribute = name if is_attribute else ""
    if not location:
        return None
    if "://" in location and not location.startswith("file://"):
        reading.findings.refuse(element, "it must be a file", attribute)
        return None
    type_ = values.get(f"{name}Type", "").strip().upper() or "JKS"
    if type_ not in _TYPES:
        reading.findings.refuse(element, f"pybroker reads {', '.join(_TYPES)}", f"{name}Type" if is_attribute else "")
        return None
    directories = reading.file.directories
    return ConfiguredStore(
        path=directories.path(location),
        class_path=None if ":" in location or location.startswith("/") else directories.conf / location,
        type=type_,
        password=values.get(f"{name}Password", ""),
        key_password=values.get("keyStoreKeyPassword") if kind == "key" else None,
        element=element,
        attribute=attribute,
    )


def complete(reading: Reading) -> None:
    """Check what can be known only when all of the broker is read."""
    broker = reading.file.broker
    protection = reading.protection
    has_tls = _has_tls(reading)
    if has_tls and protection.tls is None:
        _read_java_properties(reading, broker)
    tls = reading.protection.tls
    if not has_tls:
        if tls is not None:
            reading.findings.ignore(tls.key_store.element, "no listener with TLS is open")
            reading.protection = replace(reading.protection, tls=None)
    elif tls is None:
        if not any(each.at.startswith("sslContext") and each.kind.value == "refused" for each in reading.findings):
            reading.findings.refuse(broker, "a listener has TLS, and no sslContext has a keyStore for it")
        return
    else:
        reading.findings.warn(
            tls.key_store.element,
            "it is converted into PEM files: convert it again when a certificate is renewed",
            tls.key_store.attribute,
        )
        _complete_clients(reading, tls)
    if protection.has_certificate_users and not reading.client_auth:
        assert protection.login_plugin is not None, "only a plugin makes such users"
        reading.findings.refuse(
            protection.login_plugin, "no listener asks clients for a certificate: set needClientAuth or wantClientAuth"
        )


def _complete_clients(reading: Reading, tls: ConfiguredTls) -> None:
    if not reading.client_auth:
        reading.protection = replace(reading.protection, tls=replace(tls, trust_store=None))
    elif tls.trust_store is None:
        reading.findings.refuse(
            tls.key_store.element,
            "clients are asked for certificates, and no trustStore has the authorities that vouch for them: Java's own "
            "would let in everyone who has a certificate of a public one",
        )


def _has_tls(reading: Reading) -> bool:
    settings = reading.settings
    return any(name in settings for name in ("openwire_ssl", "stomp_ssl", "auto_ssl", "ws_ssl")) or any(
        each.get("tls") for each in settings.get("listeners", ())
    )


def _read_java_properties(reading: Reading, broker: XmlElement) -> None:
    prefix = "javax.net.ssl."
    values = {
        name.removeprefix(prefix): value
        for name, value in reading.file.properties.items()
        if name.startswith(prefix) and name.removeprefix(prefix)
    }
    key_store = _store(reading, broker, values, "key", is_attribute=False)
    if key_store is not None:
        reading.protection = replace(
            reading.protection,
            tls=ConfiguredTls(
                key_store=key_store,
                trust_store=_store(reading, broker, values, "trust", is_attribute=False),
                key_alias=reading.file.properties.get(KEY_ALIAS),
            ),
        )
