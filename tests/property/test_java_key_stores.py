"""Java key stores from anywhere: each is read, or refused with one error."""

import contextlib
import datetime

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import PrivateFormat, load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import PBES, serialize_key_and_certificates
from cryptography.x509 import load_pem_x509_certificate
from hypothesis import example, given
from hypothesis import strategies as st

from pybroker.security.java_key_stores import read
from pybroker.security.key_store_entries import UnusableKeyStore
from tests.jks_writer import PASSWORD, certificate_der, jks, key_der, private_key, sealed, trusted

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")  # of a changed certificate

AUTHORITY = trustme.CA()
ISSUED = AUTHORITY.issue_cert("broker")
CERTIFICATES = [certificate_der(each.bytes()) for each in (ISSUED.cert_chain_pems[0], AUTHORITY.cert_pem)]
JKS = jks(
    private_key("broker", key_der(ISSUED.private_key_pem.bytes()), CERTIFICATES), trusted("authority", CERTIFICATES[1])
)
PKCS12 = serialize_key_and_certificates(
    b"broker",
    load_pem_private_key(ISSUED.private_key_pem.bytes(), None),  # type: ignore[arg-type]
    load_pem_x509_certificate(ISSUED.cert_chain_pems[0].bytes()),
    [load_pem_x509_certificate(AUTHORITY.cert_pem.bytes())],
    PrivateFormat.PKCS12.encryption_builder()
    .kdf_rounds(2)
    .key_cert_algorithm(PBES.PBESv2SHA256AndAES256CBC)
    .build(PASSWORD.encode()),
)


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """A store with bytes changed, cut out or put in, or cut off."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(data)))
        data[place : place + draw(st.integers(0, 4))] = draw(st.binary(max_size=4))
    return bytes(data[: draw(st.integers(0, len(data)) | st.just(len(data)))])


def is_read_or_refused(data: bytes) -> None:
    """Use everything in a store; no other error may come of it."""
    with contextlib.suppress(UnusableKeyStore):
        store = read(data, PASSWORD)
        store.authorities()
        store.expired(datetime.datetime.now(datetime.UTC))
        for key in store.keys:
            store.identity(key.alias)


@given(damaged(JKS[:-20]))
@example(JKS[:-20])
def test_damaged_jks_is_read_or_refused(body: bytes) -> None:
    is_read_or_refused(sealed(body))


@given(damaged(b"\xce\xce\xce\xce" + JKS[4:-20]))
def test_damaged_jceks_is_read_or_refused(body: bytes) -> None:
    is_read_or_refused(sealed(body))


@given(damaged(PKCS12))
@example(PKCS12)
def test_damaged_pkcs12_is_read_or_refused(data: bytes) -> None:
    is_read_or_refused(data)


@given(
    st.sampled_from([b"", b"\x30", bytes.fromhex("feedfeed00000002"), bytes.fromhex("cececece00000002")]), st.binary()
)
def test_any_bytes_are_refused(begin: bytes, data: bytes) -> None:
    with pytest.raises(UnusableKeyStore):
        read(begin + data, PASSWORD)


@given(st.integers(0, len(JKS) - 1), st.integers(1, 255))
def test_a_changed_byte_of_jks_is_noticed(place: int, difference: int) -> None:
    changed = bytearray(JKS)
    changed[place] ^= difference
    with pytest.raises(UnusableKeyStore):
        read(bytes(changed), PASSWORD)
