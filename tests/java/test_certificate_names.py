"""The subject of a certificate as text: as Java prints it, whose form ActiveMQ's files have."""

from __future__ import annotations

import datetime
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID, ObjectIdentifier

from pybroker.transports.distinguished_name import written

pytestmark = [pytest.mark.component("activemq")]

_KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(subject: x509.Name, path: Path) -> Path:
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer")]))
        .public_key(_KEY.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(_KEY, hashes.SHA256())
    )
    from cryptography.hazmat.primitives.serialization import Encoding

    path.write_bytes(made.public_bytes(Encoding.PEM))
    return path


def attribute(oid: ObjectIdentifier, value: str) -> x509.NameAttribute[str]:
    return x509.NameAttribute(oid, value, _validate=False)


def one(value: str, oid: ObjectIdentifier = NameOID.COMMON_NAME) -> x509.Name:
    return x509.Name([attribute(oid, value)])


SUBJECTS = {
    "usual": x509.Name(
        [
            attribute(NameOID.COUNTRY_NAME, "US"),
            attribute(NameOID.STATE_OR_PROVINCE_NAME, "CA"),
            attribute(NameOID.LOCALITY_NAME, "here"),
            attribute(NameOID.ORGANIZATION_NAME, "x"),
            attribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "test"),
            attribute(NameOID.COMMON_NAME, "client one"),
        ]
    ),
    "several in one part": x509.Name(
        [
            x509.RelativeDistinguishedName([attribute(NameOID.COMMON_NAME, "a"), attribute(NameOID.USER_ID, "b")]),
            x509.RelativeDistinguishedName([attribute(NameOID.ORGANIZATION_NAME, "x")]),
        ]
    ),
    "domain": x509.Name(
        [attribute(NameOID.DOMAIN_COMPONENT, "org"), attribute(NameOID.DOMAIN_COMPONENT, "example"), *one("c")]
    ),
    "address": x509.Name([attribute(NameOID.EMAIL_ADDRESS, "a@b"), *one("c")]),
    "names": x509.Name(
        [
            attribute(NameOID.SURNAME, "s"),
            attribute(NameOID.GIVEN_NAME, "g"),
            attribute(NameOID.TITLE, "t"),
            attribute(NameOID.SERIAL_NUMBER, "1"),
            attribute(NameOID.STREET_ADDRESS, "street"),
            attribute(NameOID.GENERATION_QUALIFIER, "2nd"),
            attribute(NameOID.INITIALS, "i"),
            attribute(NameOID.DN_QUALIFIER, "q"),
        ]
    ),
    "comma": one("a, b"),
    "quote": one('say "hi"'),
    "backslash": one("a\\b"),
    "plus and equals": one("a+b=c"),
    "angles": one("<a>;#b"),
    "blank before": one(" a"),
    "blank behind": one("a "),
    "two blanks": one("a  b"),
    "other letters": one("Jürgen Größe"),
    "a slash": one("host/name"),
}


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_subject_is_as_java_prints_it(name: str, tmp_path: Path) -> None:
    path = certificate(SUBJECTS[name], tmp_path / "certificate.pem")
    command = ["keytool", "-J-Dfile.encoding=UTF-8", "-J-Dstdout.encoding=UTF-8", "-printcert", "-file", str(path)]
    printed = subprocess.run(command, capture_output=True, check=True, encoding="utf-8").stdout
    owner = printed.partition("\n")[0].partition(": ")[2]
    decoded: Any = ssl._ssl._test_decode_cert(str(path))  # type: ignore[attr-defined]  # as `getpeercert` returns it
    assert written(decoded["subject"]) == owner
