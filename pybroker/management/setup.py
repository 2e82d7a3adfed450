"""The first line of the node: what the process needs to know of the settings."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pybroker.transports.certificates import CertificateFiles, Certificates
from pybroker.transports.tls import TlsRules

_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The settings.

    Attributes:
        version: the version of the node.
        has_users: True if users log in; else programs of this host may do everything.
        certificates: the certificates of the HTTP server; None: without TLS.
    """

    version: str
    has_users: bool
    certificates: Certificates | None

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Self:
        """Return the settings that a line has.

        Raises:
            ConfigError: a certificate cannot be used any more.
        """
        tls = fields["tls"]
        return cls(
            version=fields["version"],
            has_users=fields["has_users"],
            certificates=None if tls is None else _certificates(tls),
        )


def _certificates(tls: dict[str, Any]) -> Certificates:
    key, password = tls["key"], tls["key_password_file"]
    return Certificates(
        CertificateFiles(
            certificate=Path(tls["certificate"]),
            key=None if key is None else Path(key),
            key_password_file=None if password is None else Path(password),
        ),
        TlsRules(version_min=_VERSIONS[tls["version_min"]], ciphers=tls["ciphers"]),
    )
