"""The record layer without sockets, and the errors for certificates and keys that cannot be used."""

import contextlib
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given, settings
from hypothesis import strategies as st

from pybroker.broker.domain.errors import ConfigError
from pybroker.transports.tls import TLS_VERSIONS, TlsChannel, TlsRules, server_context
from tests.java.stores import Issuer, subject
from tests.unit.transports.certificates import PASSWORD, Certificates

# ---------------------------------------------------------------- channel


class Pair:
    """A client and the channel, and the bytes each has yet to receive."""

    def __init__(self, certificates: Certificates, step: int = 1 << 20) -> None:
        self.channel = TlsChannel(server_context(certificates.both))
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = certificates.client_context()
        self.client = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self.received = b""
        self.step = step
        for _ in range(3):
            with contextlib.suppress(ssl.SSLWantReadError):
                self.client.do_handshake()
            self.carry()
        assert self.channel.is_established

    def carry(self) -> None:
        """Take the client's bytes to the channel, in steps, and bring the answers."""
        data = self._outgoing.read()
        for start in range(0, len(data), self.step):
            self.received += self.channel.decrypt(data[start : start + self.step])
        self._incoming.write(self.channel.output())

    def bring(self, ciphertext: bytes) -> Iterator[bytes]:
        self._incoming.write(ciphertext)
        with contextlib.suppress(ssl.SSLWantReadError):
            while piece := self.client.read(65536):
                yield piece


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_how_ciphertext_is_cut_makes_no_difference(certificates: Certificates, step: int) -> None:
    pair = Pair(certificates, step)
    text = bytes(range(256)) * 200
    for start in range(0, len(text), 10_000):
        pair.client.write(text[start : start + 10_000])
    pair.carry()
    assert pair.received == text


@pytest.mark.parametrize("size", [1, 16 << 10, 100_001])
def test_what_is_encrypted_is_read_whole(certificates: Certificates, size: int) -> None:
    pair = Pair(certificates)
    assert b"".join(pair.bring(pair.channel.encrypt(bytes(size)))) == bytes(size)


def test_end_of_tls_is_sent_and_received(certificates: Certificates) -> None:
    pair = Pair(certificates)
    with contextlib.suppress(ssl.SSLWantReadError):
        pair.client.unwrap()
    pair.carry()
    assert pair.channel.is_ended
    with pytest.raises(ssl.SSLZeroReturnError):
        list(pair.bring(pair.channel.end()))


def test_before_the_handshake_there_is_no_end_to_send(certificates: Certificates) -> None:
    assert TlsChannel(server_context(certificates.both)).end() == b""


@settings(max_examples=50)
@given(st.binary(min_size=1, max_size=300))
def test_random_bytes_raise_only_tls_errors(certificates: Certificates, noise: bytes) -> None:
    with contextlib.suppress(ssl.SSLError):
        TlsChannel(server_context(certificates.both)).decrypt(noise)


@settings(max_examples=25)
@given(noise=st.binary(min_size=1, max_size=300), cut=st.integers(0, 400))
def test_random_bytes_amid_a_conversation_raise_only_tls_errors(
    certificates: Certificates, noise: bytes, cut: int
) -> None:
    pair = Pair(certificates)
    pair.client.write(bytes(300))
    data = pair._outgoing.read()
    with contextlib.suppress(ssl.SSLError):
        assert pair.channel.decrypt(data[:cut] + noise + data[cut:]) in (b"", bytes(300))


# ---------------------------------------------------------------- certificates and keys


def test_a_key_may_be_in_a_file_of_its_own_and_encrypted(certificates: Certificates) -> None:
    context = server_context(
        certificates.certificate, key=certificates.encrypted_key, key_password_file=certificates.password_file
    )
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.verify_mode is ssl.CERT_NONE
    assert server_context(certificates.both, client_ca=certificates.authority).verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"certificate": "missing"}, "tls_certificate: cannot read .*missing: No such file"),
        ({"certificate": "key"}, "tls_certificate: there is no certificate in .*key.pem"),
        ({"key": "missing"}, "tls_key: cannot read .*missing: No such file"),
        ({"key": "certificate"}, "tls_key: there is no private key in .*certificate.pem"),
        ({}, "tls_key: there is no private key in .*certificate.pem"),
        ({"key": "client"}, "tls_key: the key in .*client.pem does not belong to .*certificate.pem"),
        ({"key": "encrypted_key"}, "tls_key: the key in .* is encrypted; write its password into a file"),
        ({"key": "encrypted_key", "key_password_file": "missing"}, "tls_key_password_file: cannot read .*missing"),
        ({"key": "encrypted_key", "key_password_file": "wrong"}, "tls_key_password_file: it does not open the key"),
        ({"key": "encrypted_key", "key_password_file": "long"}, "tls_key_password_file: it does not open the key"),
        ({"key": "key", "client_ca": "missing"}, "tls_client_ca: cannot read .*missing"),
        ({"key": "key", "client_ca": "key"}, "tls_client_ca: there is no certificate in .*key.pem"),
        ({"certificate": "broken", "key": "key"}, "tls_certificate: .*broken.* cannot be used"),
        ({"certificate": "directory", "key": "key"}, "tls_certificate: cannot read .*: Is a directory"),
        ({"key": "key", "client_ca": "broken"}, "tls_client_ca: .*broken.* cannot be used"),
    ],
)
def test_an_error_names_setting_and_file(certificates: Certificates, tmp_path, settings, message) -> None:
    (tmp_path / "wrong").write_bytes(b"secret\n")
    (tmp_path / "long").write_bytes(b"x" * 5000)
    (tmp_path / "broken").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    own = {name: tmp_path / name for name in ("missing", "wrong", "long", "broken")} | {"directory": tmp_path}
    files = {key: own.get(name) or getattr(certificates, name) for key, name in settings.items()}
    certificate = files.pop("certificate", certificates.certificate)
    with pytest.raises(ConfigError, match=message) as caught:
        server_context(certificate, **files)
    assert "secret" not in str(caught.value)
    assert PASSWORD.decode() not in str(caught.value)


# ---------------------------------------------------------------- authorities of clients


def shown(certificates: Certificates, directory: Path, name: str, authorities: bytes) -> str:
    """Return the subject of a client that shows a certificate to a server with these authorities.

    Raises:
        ssl.SSLError: it is not trusted.
    """
    (directory / "clients.pem").write_bytes(authorities)
    server = server_context(certificates.both, client_ca=directory / "clients.pem")
    client = certificates.client_context()
    client.load_cert_chain(directory / f"{name}.pem")
    channel = TlsChannel(server)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client.wrap_bio(incoming, outgoing, server_hostname="localhost")
    for _ in range(3):
        with contextlib.suppress(ssl.SSLWantReadError):
            tls.do_handshake()
        channel.decrypt(outgoing.read())
        incoming.write(channel.output())
    assert channel.is_established
    return name


def test_each_certificate_of_client_ca_is_trusted_by_itself(certificates: Certificates, tmp_path: Path) -> None:
    """Java 17 trusts the same."""
    root = Issuer.make("root")
    below, other = Issuer.make("below", root), Issuer.make("other", root)
    for issuer, name in ((below, "a"), (other, "b")):
        issuer.issue(subject(cn=name), tmp_path, name)
    authority = below.certificate.public_bytes(Encoding.PEM)
    own = x509.load_pem_x509_certificates((tmp_path / "b.pem").read_bytes())[0].public_bytes(Encoding.PEM)
    assert shown(certificates, tmp_path, "a", authority) == "a"
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        shown(certificates, tmp_path, "b", authority)
    assert shown(certificates, tmp_path, "b", own) == "b"
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        shown(certificates, tmp_path, "a", own)


# ---------------------------------------------------------------- versions and ciphers


def agreed(rules: TlsRules, certificates: Certificates, client: ssl.SSLContext) -> tuple[str | None, str]:
    """Return version and cipher on which a client and a server with these rules agree.

    Raises:
        ssl.SSLError: there are none.
    """
    channel = TlsChannel(server_context(certificates.both, rules=rules))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client.wrap_bio(incoming, outgoing, server_hostname="localhost")
    for _ in range(3):
        with contextlib.suppress(ssl.SSLWantReadError):
            tls.do_handshake()
        channel.decrypt(outgoing.read())
        incoming.write(channel.output())
    cipher = tls.cipher()
    assert cipher is not None
    return tls.version(), cipher[0]


def client_of(certificates: Certificates, version: str, ciphers: str | None = None) -> ssl.SSLContext:
    """Return a client of one version of TLS."""
    context = certificates.client_context()
    context.minimum_version = context.maximum_version = TLS_VERSIONS[version]
    if ciphers is not None:
        context.set_ciphers(ciphers)
    return context


@pytest.mark.parametrize("version", TLS_VERSIONS)
def test_both_versions_are_spoken_by_default(certificates: Certificates, version: str) -> None:
    assert agreed(TlsRules(), certificates, client_of(certificates, version))[0] == f"TLSv{version}"


def test_lowest_version_can_be_raised(certificates: Certificates) -> None:
    rules = TlsRules(version_min=ssl.TLSVersion.TLSv1_3)
    assert agreed(rules, certificates, client_of(certificates, "1.3"))[0] == "TLSv1.3"
    with pytest.raises(ssl.SSLError, match="UNSUPPORTED_PROTOCOL"):
        agreed(rules, certificates, client_of(certificates, "1.2"))


def test_ciphers_are_those_of_tls_1_2(certificates: Certificates) -> None:
    offered = certificates.client_context().get_ciphers()
    [wanted] = [each["name"] for each in offered if each["name"].startswith("ECDHE-ECDSA-AES128-GCM")]
    rules = TlsRules(ciphers=f"{wanted}:!aNULL")
    assert agreed(rules, certificates, client_of(certificates, "1.2")) == ("TLSv1.2", wanted)
    assert agreed(rules, certificates, client_of(certificates, "1.3"))[0] == "TLSv1.3"
    with pytest.raises(ssl.SSLError, match="NO_SHARED_CIPHER"):
        agreed(rules, certificates, client_of(certificates, "1.2", "ECDHE-ECDSA-AES256-GCM-SHA384"))


@pytest.mark.parametrize(
    "ciphers",
    [
        "ECDHE+AESGCM:ECDHE+CHACHA20:!aNULL:!MD5:!RC4",
        "ECDHE-RSA-AES256-GCM-SHA384, ECDHE-ECDSA-AES256-GCM-SHA384",
        "HIGH:!aNULL:@STRENGTH",
        "HIGH:!aNULL:@SECLEVEL=2",
        "DEFAULT",
    ],
)
def test_lists_of_ciphers_that_operators_write(certificates: Certificates, ciphers: str) -> None:
    server_context(certificates.both, rules=TlsRules(ciphers=ciphers))


@pytest.mark.parametrize(
    ("ciphers", "message"),
    [
        ("NONSENSE", "OpenSSL has no such ciphers of TLS 1.2: NONSENSE; write names that"),
        ("ECDHE-RSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GMC-SHA384", "1.2: ECDHE-RSA-AES256-GMC-SHA384;"),
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "1.2: TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384;"),
        ("HIGH:TLS_AES_128_GCM_SHA256", "1.2: TLS_AES_128_GCM_SHA256;"),
        ("", "1.2: '';"),
        ("!aNULL", "1.2: '!aNULL';"),
        ("HIGH\0", "no such ciphers"),
        ("HIGH", "without the server's certificate: ADH-.*; append :!aNULL:!eNULL"),
        ("ALL:aNULL:@SECLEVEL=0", "without encryption or without the server's certificate: .*ADH-.*!aNULL:!eNULL"),
        ("HIGH:eNULL@SECLEVEL=0", "without encryption or without the server's certificate: .*NULL-SHA"),
    ],
)
def test_ciphers_that_cannot_be_used_are_refused(certificates: Certificates, ciphers: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        server_context(certificates.both, rules=TlsRules(ciphers=ciphers))
    assert caught.value.setting == "tls_ciphers"
