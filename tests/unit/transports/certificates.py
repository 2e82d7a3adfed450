"""Certificates made for a test run: an authority everyone trusts, and one no one does."""

import ssl
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization

PASSWORD = b"correct horse"


@dataclass(frozen=True, kw_only=True)
class Certificates:
    """PEM files, by what they hold."""

    directory: Path

    def __post_init__(self) -> None:
        ours, strange = trustme.CA(), trustme.CA()
        server = ours.issue_cert("localhost", "127.0.0.1")
        ours.cert_pem.write_to_path(self.authority)
        strange.cert_pem.write_to_path(self.strange_authority)
        server.private_key_and_cert_chain_pem.write_to_path(self.both)
        server.cert_chain_pems[0].write_to_path(self.certificate)
        server.private_key_pem.write_to_path(self.key)
        ours.issue_cert("client").private_key_and_cert_chain_pem.write_to_path(self.client)
        strange.issue_cert("client").private_key_and_cert_chain_pem.write_to_path(self.strange_client)
        self.encrypted_key.write_bytes(_encrypted(server.private_key_pem.bytes()))
        self.password_file.write_bytes(PASSWORD + b"\n")

    authority = property(lambda self: self.directory / "authority.pem")
    strange_authority = property(lambda self: self.directory / "strange-authority.pem")
    both = property(lambda self: self.directory / "both.pem")
    certificate = property(lambda self: self.directory / "certificate.pem")
    key = property(lambda self: self.directory / "key.pem")
    client = property(lambda self: self.directory / "client.pem")
    strange_client = property(lambda self: self.directory / "strange-client.pem")
    encrypted_key = property(lambda self: self.directory / "encrypted-key.pem")
    password_file = property(lambda self: self.directory / "password")

    def client_context(self, certificate: Path | None = None, authority: Path | None = None) -> ssl.SSLContext:
        """Return the TLS context of a client that trusts the authority, and may present a certificate."""
        context = ssl.create_default_context(cafile=authority or self.authority)
        if certificate is not None:
            context.load_cert_chain(certificate)
        return context


def _encrypted(key: bytes) -> bytes:
    return serialization.load_pem_private_key(key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(PASSWORD),
    )
