"""Reads from the settings by what the members of a replicated cluster know each other: a secret, or certificates."""

from pathlib import Path

from pybroker.broker.app.config import Config
from pybroker.broker.domain.errors import ConfigError
from pybroker.security import files
from pybroker.transports.replica.peer_certificates import PeerCertificates, PeerFiles

SECRET_BYTES_MIN = 16

LOOPBACK = "127.0.0.1"

_ASKING = ("replicate_tls_certificate", "replicate_tls_key", "replicate_tls_ca", "replicate_members")
"""Settings of which each one switches the encryption of the stream on."""


def peer_certificates_of(config: Config) -> PeerCertificates | None:
    """Read the certificates for the stream; None: it is not encrypted.

    They are those of the listeners where no others are set. The listeners' authority vouches for all clients, none of
    which may copy the store, so with it the members have to be named.

    Raises:
        ConfigError: a file cannot be used, or something is missing.
    """
    if not any(getattr(config, each) for each in _ASKING):
        return None
    members = frozenset(name for each in (config.replicate_members or "").split(",") if (name := each.strip()))
    is_own = config.replicate_tls_certificate is not None
    certificate = config.replicate_tls_certificate or config.tls_certificate
    if certificate is None:
        raise ConfigError(
            "members know each other by certificates then, and this one has none",
            setting="replicate_tls_certificate",
            hint="name the file with this member's certificate, or set tls_certificate",
        )
    authority = config.replicate_tls_ca or config.tls_client_ca
    if authority is None:
        raise ConfigError(
            "it is missing: which authority do the members' certificates come from?",
            setting="replicate_tls_ca",
            hint="name the file with its certificate",
        )
    if config.replicate_tls_ca is None and not members:
        raise ConfigError(
            "it is missing: every client with a certificate of tls_client_ca could copy the whole store",
            setting="replicate_members",
            hint="write the names in the members' certificates, or set replicate_tls_ca to an authority of their own",
        )
    return PeerCertificates(
        PeerFiles(
            certificate=certificate,
            key=config.replicate_tls_key or (None if is_own else config.tls_key),
            authority=authority,
            key_password_file=None if is_own else config.tls_key_password_file,
            members=members,
        )
    )


def is_protected(config: Config) -> bool:
    """Return True if members know each other, so that they may be on other machines."""
    return config.replicate_secret_file is not None or any(getattr(config, each) for each in _ASKING)


def stream_host(config: Config) -> str:
    """Return the address on which a master accepts followers."""
    return config.bind if is_protected(config) else LOOPBACK


def read_password(config: Config) -> str | None:
    """Return the password of `replicate_user`; None: there is no such user.

    Raises:
        ConfigError: it cannot be read, is empty, or others may read it.
    """
    path = config.replicate_password_file
    if path is None:
        return None
    data = files.read(path, setting="replicate_password_file", has_passwords=True).data
    try:
        password = data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        password = ""
    if not password:
        raise ConfigError(f"{path} has no password", setting="replicate_password_file")
    return password


def read_secret(path: Path) -> bytes:
    """Return the secret of a cluster.

    Raises:
        ConfigError: it cannot be read, is too short, or others may read it.
    """
    secret = files.read(path, setting="replicate_secret_file", has_passwords=True).data.strip()
    if len(secret) < SECRET_BYTES_MIN:
        raise ConfigError(
            f"{path} has less than {SECRET_BYTES_MIN} bytes",
            setting="replicate_secret_file",
            hint=f"openssl rand -hex 32 > {path}",
        )
    return secret
