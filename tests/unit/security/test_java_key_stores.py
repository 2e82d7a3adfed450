"""Java key stores that Java would not write, or only in years; those that it writes: tests/integration."""

import datetime
import hashlib
import os
import struct
import sys
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import PBES, serialize_key_and_certificates
from cryptography.x509 import load_pem_x509_certificate

from pybroker.broker.domain.errors import MalformedData, RequirementMissing
from pybroker.security import der, java_key_stores, jks, pkcs12
from pybroker.security.java_key_stores import JavaKeyStore, read, read_file
from pybroker.security.key_store_entries import UnusableKeyStore
from tests.jks_writer import JKS_PROTECTION, PASSWORD, certificate_der, key_der, private_key, protected, trusted
from tests.jks_writer import der as element
from tests.jks_writer import jks as written

AUTHORITY = trustme.CA()
ISSUED = AUTHORITY.issue_cert("broker")
KEY = key_der(ISSUED.private_key_pem.bytes())
CHAIN = [certificate_der(ISSUED.cert_chain_pems[0].bytes()), certificate_der(AUTHORITY.cert_pem.bytes())]


def refused(data: bytes, password: str = PASSWORD) -> str:
    with pytest.raises(UnusableKeyStore) as caught:
        read(data, password)
    return str(caught.value)


def refused_key(store: JavaKeyStore) -> str:
    with pytest.raises(UnusableKeyStore) as caught:
        store.identity()
    return str(caught.value)


class TestJks:
    def test_key_and_authorities_are_read(self) -> None:
        store = read(written(private_key("a", KEY, CHAIN), trusted("b", CHAIN[1]), trusted("c", CHAIN[0])), PASSWORD)
        identity = store.identity()
        assert key_der(identity.private_key.encode()) == KEY
        assert identity.certificates == (ISSUED.cert_chain_pems[0].bytes() + AUTHORITY.cert_pem.bytes()).decode()
        assert store.authorities() == (AUTHORITY.cert_pem.bytes() + ISSUED.cert_chain_pems[0].bytes()).decode()

    @pytest.mark.parametrize("password", ["", "pässwörd", "密码", "\U0001f511", "\udcff"])
    def test_passwords_are_utf_16(self, password: str) -> None:
        encoded = password.encode("utf-16-be", "surrogatepass")
        body = written()[:-20]
        digest = hashlib.sha1(encoded + b"Mighty Aphrodite" + body).digest()
        assert read(body + digest, password).keys == ()
        assert "the password is another" in refused(body + digest, password + "x")

    def test_version_1_has_no_types_of_certificates(self) -> None:
        entry = struct.pack(">I", 2) + b"\0\1a" + bytes(8) + struct.pack(">I", len(CHAIN[0])) + CHAIN[0]
        assert len(read(written(entry, version=1), PASSWORD).trusted) == 1

    def test_aliases_are_modified_utf_8(self) -> None:
        entry = trusted("x", CHAIN[1]).replace(b"\0\1x", b"\0\x08\xc0\x80\xed\xa0\xbd\xed\xb4\x91", 1)
        assert [each.alias for each in read(written(entry), PASSWORD).trusted] == ["\0\U0001f511"]

    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (b"", "neither JKS, JCEKS nor PKCS#12"),
            (b"PK\3\4", "neither JKS, JCEKS nor PKCS#12"),
            (b"\n-----BEGIN CERTIFICATE-----", "it is PEM, and no key store"),
            (b"\xfe\xed\xfe\xed", "as JKS: it is cut off"),
            (b"\xce\xce\xce\xce", "as JCEKS: it is cut off"),
            (written(count=1), "cut off"),
            (written(count=2**32 - 1), "claims 4294967295 entries, of at most 10000"),
            (written(trusted("a", CHAIN[0]), count=0), "follow the last entry"),
            (written(version=3), "version 3"),
            (written(b"\0\0\0\4" + trusted("a", CHAIN[0])[4:]), "type 4"),
            (written(trusted("a" * 1025, CHAIN[0])), "alias has 1025 bytes"),
            (written(trusted("aa", CHAIN[0]).replace(b"aa", b"\xff\xff", 1)), "alias is not UTF-8"),
            (written(trusted("a", CHAIN[0]).replace(b"X.509", b"X.508")), "of the type 'X.508'"),
            (written(trusted("a", b"\x30\0")), "certificate of 'a' does not parse"),
            (written(private_key("a", bytes(1 << 16), CHAIN)[:-1]), "where 65536 are the limit"),
            (written(private_key("a", KEY, ())[:-4] + b"\xff\xff\xff\xff"), "claims 4294967295 certificates"),
        ],
    )
    def test_what_does_not_parse_is_refused(self, data: bytes, reason: str) -> None:
        assert reason in refused(data)

    def test_a_certificate_may_not_claim_more_than_there_is(self) -> None:
        length = struct.pack(">I", len(CHAIN[0]))
        assert "bytes where" in refused(written(trusted("a", CHAIN[0]).replace(length, b"\x7f\xff\xff\xff", 1)))

    def test_a_key_without_certificates_is_refused(self) -> None:
        assert refused_key(read(written(private_key("a", KEY, ())), PASSWORD)) == "the key 'a' has no certificate"

    def test_a_key_with_another_password_is_refused(self) -> None:
        data = written(private_key("a", KEY, CHAIN, "another"))
        assert "the key 'a' has another password" in refused_key(read(data, PASSWORD))
        assert read(data, PASSWORD, key_password="another").identity().alias == "a"

    @pytest.mark.parametrize(
        ("encrypted", "reason"),
        [
            (b"", "does not parse: there are 0 elements in place of one"),
            (element(0x30, JKS_PROTECTION), "does not parse: an element 0x30 has 1 parts, of at least 2"),
            (element(0x30, JKS_PROTECTION + element(4, bytes(39))), "does not parse: a private key is cut off"),
            (protected(b"", PASSWORD), "has another password, or is not supported"),
            (protected(KEY, PASSWORD, JKS_PROTECTION.replace(b"\x11\1\1", b"\x11\1\2")), "1.3.6.1.4.1.42.2.17.1.2"),
        ],
    )
    def test_a_key_that_does_not_parse_is_refused(self, encrypted: bytes, reason: str) -> None:
        entry = private_key("a", KEY, CHAIN)
        good = protected(KEY, PASSWORD)
        sizes = struct.pack(">I", len(good)), struct.pack(">I", len(encrypted))
        data = written(entry.replace(sizes[0] + good, sizes[1] + encrypted))
        assert reason in refused_key(read(data, PASSWORD))

    def test_equal_aliases_are_told_apart_by_case(self) -> None:
        store = read(written(*(private_key(alias, KEY, CHAIN) for alias in ("a", "A", "b"))), PASSWORD)
        assert [store.identity(alias).alias for alias in ("a", "A", "B")] == ["a", "A", "b"]


class TestJceks:
    """Private keys in JCEKS, whose encryption Java 17 computed: `Cipher` of PBEWithMD5AndTripleDES, 1,000 rounds."""

    @pytest.mark.parametrize(
        ("salt", "encrypted"),
        [
            ("0102030401020304", "7f9aee47d07feec99cbb9f753eab2594"),
            ("0102030405060708", "383d082e3f56f5f12543e3d7ceaa0645"),
        ],
    )
    def test_decrypts_as_java_does(self, salt: str, encrypted: str) -> None:
        parameters = _parameters(bytes.fromhex(salt), 1000)
        assert jks.decrypted_jceks_key(bytes.fromhex(encrypted), PASSWORD, parameters) == b"hello world"
        assert jks.decrypted_jceks_key(bytes.fromhex(encrypted), "changeme", parameters) is None
        assert jks.decrypted_jceks_key(bytes.fromhex(encrypted), "é", parameters) is None

    @pytest.mark.parametrize("iterations", [0, 1_000_001, 2**62])
    def test_too_many_rounds_are_refused(self, iterations: int) -> None:
        with pytest.raises(UnusableKeyStore, match=rf"hashed {iterations} times, of at most 1000000; make another"):
            jks.decrypted_jceks_key(bytes(16), PASSWORD, _parameters(bytes(8), iterations))

    @pytest.mark.parametrize(("salt", "data"), [(7, 16), (9, 16), (8, 0), (8, 15)])
    def test_what_is_cut_off_is_refused(self, salt: int, data: int) -> None:
        with pytest.raises(MalformedData, match="cut off"):
            jks.decrypted_jceks_key(bytes(data), PASSWORD, _parameters(bytes(salt), 1000))


def _parameters(salt: bytes, iterations: int) -> der.DerElement:
    number = iterations.to_bytes(8, "big")
    return der.element(element(0x30, element(4, salt) + element(2, number)))


class TestPkcs12:
    """Stores as `cryptography` writes them, which encrypts certificates and keys together unless told otherwise."""

    def test_certificates_alone_are_trusted(self) -> None:
        store = read(_pkcs12(has_key=False), PASSWORD)
        assert store.authorities() == AUTHORITY.cert_pem.bytes().decode()

    def test_key_and_chain_are_read(self) -> None:
        store = read(_pkcs12(), PASSWORD)
        identity = store.identity()
        assert identity.alias == "broker"
        assert identity.certificates == (ISSUED.cert_chain_pems[0].bytes() + AUTHORITY.cert_pem.bytes()).decode()
        assert store.authorities() == ISSUED.cert_chain_pems[0].bytes().decode()  # the own certificate alone

    def test_a_key_without_alias_has_its_number(self) -> None:
        assert read(_pkcs12(name=None), PASSWORD).identity().alias == "1"

    def test_more_rounds_than_the_limit_are_refused_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rounds = 2500  # for the key, and for the certificates; and 2048 for the MAC
        monkeypatch.setattr(pkcs12, "ITERATIONS_MAX", 7048)
        assert read(_pkcs12(rounds), PASSWORD).keys
        monkeypatch.setattr(pkcs12, "ITERATIONS_MAX", 7047)
        assert "its passwords are to be hashed 7048 times, of at most 7047; make another" in refused(_pkcs12(rounds))
        assert "hashed" in refused(_pkcs12(rounds), "another")  # before the password was tried

    def test_bags_within_bags_are_refused_at_once(self) -> None:
        """`cryptography` would decrypt a key in them, whose rounds are not counted."""
        bag_type, data_type = bytes.fromhex("060b2a864886f70d010c0a0106"), bytes.fromhex("06092a864886f70d010701")
        bags = element(0x30, element(0x30, bag_type + element(0xA0, element(0x30, b""))))
        contents = element(0x30, element(0x30, data_type + element(0xA0, element(4, bags))))
        store = element(0x30, b"\2\1\3" + element(0x30, data_type + element(0xA0, element(4, contents))))
        assert "it has bags within bags; make another store" in refused(store)

    def test_rounds_of_a_pbmac1_are_counted(self) -> None:
        """They are in the parameters of the MAC's algorithm, and not where those of other MACs are."""
        data_type = bytes.fromhex("06092a864886f70d010701")
        pbmac1, pbkdf2 = bytes.fromhex("06092a864886f70d01050e"), bytes.fromhex("06092a864886f70d01050c")
        hmac = element(0x30, bytes.fromhex("06082a864886f70d0209") + b"\5\0")
        rounds = element(2, (2**31 - 1).to_bytes(4, "big"))
        derivation = element(0x30, pbkdf2 + element(0x30, element(4, b"salt") + rounds + element(2, b"\x20") + hmac))
        algorithm = element(0x30, pbmac1 + element(0x30, derivation + hmac))
        mac = element(0x30, element(0x30, algorithm + element(4, b"x" * 32)) + element(4, b"salt") + element(2, b"\1"))
        contents = element(0x30, data_type + element(0xA0, element(4, element(0x30, b""))))
        assert "hashed 2147483647 times, of at most" in refused(element(0x30, b"\2\1\3" + contents + mac))

    @pytest.mark.parametrize("password", ["another", "", "\udcff", "\0", PASSWORD + "\0"])
    def test_another_password_is_refused(self, password: str) -> None:
        assert "password" in refused(_pkcs12(), password)

    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (b"0", "an element is cut off"),
            (b"\x30\x80\0\0", "no definite length"),
            (b"\x30\0", "has 0 parts, of at least 2"),
            (AUTHORITY.cert_pem.bytes(), "it is PEM"),
            (CHAIN[0], "does not parse as PKCS12"),
            (element(0x30, b"\2\1\3" + element(0x30, b"\6\2\x2a\3\xa0\2\5\0")), "or is no PKCS#12"),
        ],
    )
    def test_what_does_not_parse_is_refused(self, data: bytes, reason: str) -> None:
        assert reason in refused(data)


def _pkcs12(rounds: int = 2, *, has_key: bool = True, name: bytes | None = b"broker") -> bytes:
    authority = load_pem_x509_certificate(AUTHORITY.cert_pem.bytes())
    encryption = (
        PrivateFormat.PKCS12.encryption_builder()
        .kdf_rounds(rounds)
        .key_cert_algorithm(PBES.PBESv2SHA256AndAES256CBC)
        .hmac_hash(SHA256())
        .build(PASSWORD.encode())
    )
    if not has_key:
        return serialize_key_and_certificates(None, None, None, [authority], BestAvailableEncryption(PASSWORD.encode()))
    key = load_pem_private_key(ISSUED.private_key_pem.bytes(), None)
    own = load_pem_x509_certificate(ISSUED.cert_chain_pems[0].bytes())
    return serialize_key_and_certificates(name, key, own, [authority], encryption)  # type: ignore[arg-type]


class TestFiles:
    def test_a_long_file_is_not_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "store"
        path.write_bytes(written())
        monkeypatch.setattr(java_key_stores, "FILE_BYTES_MAX", len(written()))
        assert read_file(path, PASSWORD).keys == ()
        path.write_bytes(written() + b"x")
        with pytest.raises(UnusableKeyStore, match="more than"):
            read_file(path, PASSWORD)

    @pytest.mark.parametrize(
        ("name", "reason"), [("", "Is a directory"), ("missing", "no such file"), ("fifo", "it is no regular file")]
    )
    def test_what_is_no_file_is_refused(self, tmp_path: Path, name: str, reason: str) -> None:
        os.mkfifo(tmp_path / "fifo")
        with pytest.raises(UnusableKeyStore, match=reason):
            read_file(tmp_path / name, PASSWORD)

    def test_the_package_that_is_missing_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "cryptography", None)
        with pytest.raises(RequirementMissing, match="pip install cryptography"):
            read(written(trusted("a", CHAIN[0])), PASSWORD)


def test_certificates_expire_after_their_last_moment() -> None:
    store = read(written(trusted("a", CHAIN[1])), PASSWORD)
    end = store.trusted[0].certificate.not_valid_after_utc
    assert store.expired(end) == []
    (expired,) = store.expired(end + datetime.timedelta(seconds=1))
    assert (expired.alias, expired.end) == ("a", end)


def test_an_empty_store_is_what_keytool_writes() -> None:
    """The writer of these tests agrees with the keytool of Java 17, after `-delete` of the only entry."""
    assert written() == bytes.fromhex("feedfeed0000000200000000e2686e45fb43dfa4d992dd41ceb6b21c6330d792")
