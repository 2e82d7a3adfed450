"""Certificates of clients and of a server, as PEM files for pybroker and as Java's key stores for ActiveMQ."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_java_truststore,
    serialize_key_and_certificates,
)
from cryptography.x509.oid import NameOID

PASSWORD = b"password"
_DAY = datetime.timedelta(days=1)
_NOW = datetime.datetime.now(datetime.UTC)


@dataclass(frozen=True, kw_only=True)
class Issuer:
    """An authority."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    chain: tuple[x509.Certificate, ...] = ()

    @staticmethod
    def make(name: str, parent: Issuer | None = None) -> Issuer:
        """Return an authority, which vouches for itself without another one."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = (
            _builder(subject, parent.certificate.subject if parent else subject, key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_AUTHORITY_USE, critical=True)
        )
        certificate = builder.sign(parent.key if parent else key, hashes.SHA256())
        return Issuer(certificate=certificate, key=key, chain=(certificate, *parent.chain) if parent else ())

    def issue(self, subject: x509.Name, directory: Path, name: str, *, days: int = 1) -> None:
        """Write NAME.pem and NAME.p12; with days below 0 it has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(_LOOPBACK)])
        builder = _builder(subject, self.certificate.subject, key, days).add_extension(names, critical=False)
        made = builder.sign(self.key, hashes.SHA256())
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        chain = [made, *self.chain]
        pem = b"".join([each.public_bytes(Encoding.PEM) for each in chain])
        (directory / f"{name}.pem").write_bytes(private + pem)
        store = serialize_key_and_certificates(b"key", key, made, self.chain, BestAvailableEncryption(PASSWORD))
        (directory / f"{name}.p12").write_bytes(store)

    def trust(self, directory: Path) -> None:
        """Write trust.pem and trust.p12, for those who trust it."""
        (directory / "trust.pem").write_bytes(self.certificate.public_bytes(Encoding.PEM))
        store = serialize_java_truststore(
            [PKCS12Certificate(self.certificate, b"ca")], BestAvailableEncryption(PASSWORD)
        )
        (directory / "trust.p12").write_bytes(store)


_LOOPBACK = ip_address("127.0.0.1")
_AUTHORITY_USE = x509.KeyUsage(
    digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
    data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
)  # fmt: skip


def subject(**attributes: str) -> x509.Name:
    """Return a subject, its attributes in the order of the certificate: `subject(o="x", cn="client")`."""
    return x509.Name([x509.NameAttribute(_OIDS[name], value) for name, value in attributes.items()])


_OIDS = {
    "c": NameOID.COUNTRY_NAME, "o": NameOID.ORGANIZATION_NAME, "ou": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "cn": NameOID.COMMON_NAME, "email": NameOID.EMAIL_ADDRESS,
}  # fmt: skip


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int = 1
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_NOW - 3 * _DAY)
        .not_valid_after(_NOW + days * _DAY)
    )
