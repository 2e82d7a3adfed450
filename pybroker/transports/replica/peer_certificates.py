"""TLS 1.3 with certificates on both sides of the replication stream, which then needs no secret.

Source: specification of replication, section 7.
"""

import ssl
from pathlib import Path

from pybroker.broker.domain.errors import ConfigError


def master_context(certificate: Path, key: Path | None, authority: Path) -> ssl.SSLContext:
    """Return the context of a master: followers need a certificate of the authority.

    Args:
        certificate: the own certificate in PEM, and its chain.
        key: its key; None: it is in the same file.
        authority: certificates of the authority in PEM.

    Raises:
        ConfigError: a file cannot be used.
    """
    return _context(ssl.PROTOCOL_TLS_SERVER, certificate, key, authority)


def follower_context(certificate: Path, key: Path | None, authority: Path) -> ssl.SSLContext:
    """Return the context of a follower: the master needs a certificate of the authority for the name that is dialled.

    Args:
        certificate: the own certificate in PEM, and its chain.
        key: its key; None: it is in the same file.
        authority: certificates of the authority in PEM.

    Raises:
        ConfigError: a file cannot be used.
    """
    return _context(ssl.PROTOCOL_TLS_CLIENT, certificate, key, authority)


def _context(protocol: int, certificate: Path, key: Path | None, authority: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        raise ConfigError(f"{certificate}: {error}", setting="replicate_tls_certificate") from error
    try:
        context.load_verify_locations(authority)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{authority}: {error}", setting="replicate_tls_ca") from error
    return context
