"""Key stores that Java's keytool has made, in each of its formats."""

import datetime
import re
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.x509 import load_pem_x509_certificates
from cryptography.x509.oid import NameOID

from pybroker.security.java_key_stores import KeyStoreFormat, PemIdentity, read_file
from pybroker.security.key_store_entries import UnusableKeyStore

pytestmark = pytest.mark.component("java")

PASSWORD = "changeit"
FORMATS = ("JKS", "JCEKS", "PKCS12")
NOW = datetime.datetime.now(datetime.UTC)

Keytool = Callable[..., str]


def keytool(*arguments: str, stdin: str = "") -> str:
    command = ["keytool", "-J-XX:TieredStopAtLevel=1", "-J-Duser.language=en", *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def generate(path: Path, alias: str, kind: str, *extra: str, password: str = PASSWORD) -> None:
    keytool(
        *("-genkeypair", "-keyalg", "EC", "-groupname", "secp256r1", "-dname", f"CN={alias}, O=pybroker"),
        *("-alias", alias, "-keystore", str(path), "-storetype", kind, "-storepass", password, *extra),
    )


def trust(path: Path, alias: str, kind: str, certificate: str, *extra: str) -> None:
    keytool(
        *("-importcert", "-noprompt", "-alias", alias, "-keystore", str(path), "-storetype", kind),
        *("-storepass", PASSWORD, *extra),
        stdin=certificate,
    )


class Authorities:
    """A root authority and one below it, each in a store of its own; PEM of both."""

    def __init__(self, directory: Path) -> None:
        self.stores = {name: directory / name for name in ("root", "below")}
        for name, path in self.stores.items():
            generate(path, name, "PKCS12", "-ext", "bc:c")
        self.root = keytool("-exportcert", "-rfc", "-alias", "root", *self._store("root"))
        self.below = self.issued("root", self._request("below", self.stores["below"]), "-ext", "bc:c")
        trust(self.stores["below"], "below", "PKCS12", self.root + self.below)

    def certify(self, path: Path, alias: str) -> None:
        """Replace a key's certificate by one of the authority below, with both authorities behind it."""
        certificate = self.issued("below", self._request(alias, path))
        trust(path, alias, keystore_type(path), self.root + self.below + certificate)

    def issued(self, name: str, request: str, *extra: str) -> str:
        return keytool("-gencert", "-rfc", "-alias", name, *self._store(name), *extra, stdin=request)

    def _store(self, name: str) -> tuple[str, ...]:
        return ("-keystore", str(self.stores[name]), "-storepass", PASSWORD)

    @staticmethod
    def _request(alias: str, path: Path) -> str:
        return keytool("-certreq", "-alias", alias, "-keystore", str(path), "-storepass", PASSWORD)


def keystore_type(path: Path) -> str:
    return {b"\xfe\xed": "JKS", b"\xce\xce": "JCEKS"}.get(path.read_bytes()[:2], "PKCS12")


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> Authorities:
    return Authorities(tmp_path_factory.mktemp("authorities"))


def common_names(pem: str) -> list[str]:
    """Return the names in the subjects of certificates."""
    subjects = [each.subject for each in load_pem_x509_certificates(pem.encode())] if pem else []
    return [str(subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value) for subject in subjects]


def is_usable(identity: PemIdentity, directory: Path) -> bool:
    """Load key and certificates as a server does, which fails unless they belong together."""
    key, chain = directory / "key.pem", directory / "chain.pem"
    key.write_text(identity.private_key)
    chain.write_text(identity.certificates)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(chain, key)
    return True


@pytest.fixture(scope="module", params=FORMATS)
def broker(request: pytest.FixtureRequest, authorities: Authorities, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a key, its chain, and an authority of the chain that is trusted too; the name has no format."""
    path = tmp_path_factory.mktemp("broker") / "broker.ks"
    generate(path, "broker", request.param)
    authorities.certify(path, "broker")
    trust(path, "clients", request.param, authorities.below)
    return path


def test_a_key_comes_with_its_chain(broker: Path, tmp_path: Path) -> None:
    store = read_file(broker, PASSWORD)
    identity = store.identity()
    assert store.format is KeyStoreFormat(keystore_type(broker))
    assert (identity.alias, common_names(identity.certificates)) == ("broker", ["broker", "below", "root"])
    assert is_usable(identity, tmp_path)
    assert PASSWORD not in repr(store)
    assert identity.private_key not in repr(identity)


def test_only_what_java_trusts_is_trusted(broker: Path) -> None:
    store = read_file(broker, PASSWORD)
    assert [each.alias for each in store.trusted] == ["clients"]
    assert common_names(store.authorities()) == ["below", "broker"]
    program = Path(__file__).parent / "java" / "TrustedIssuers.java"
    command = ["java", "-XX:TieredStopAtLevel=1", str(program), str(broker), PASSWORD]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert sorted(done.stdout.splitlines()) == ["CN=below,O=pybroker", "CN=broker,O=pybroker"]


def test_another_password_is_refused(broker: Path) -> None:
    with pytest.raises(UnusableKeyStore, match=r"^the password is another, or the file is damaged.*; try it with key"):
        read_file(broker, "changeme")


def test_one_of_several_keys_is_named(broker: Path, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(broker.read_bytes())
    generate(path, "another", keystore_type(broker))
    store = read_file(path, PASSWORD)
    with pytest.raises(UnusableKeyStore, match=r"^it has 2 private keys; name one of '\w+', '\w+'$") as refused:
        store.identity()
    assert "'broker'" in refused.value.hint
    assert "'another'" in refused.value.hint
    with pytest.raises(UnusableKeyStore, match=r"^it has no private key 'third'; name one of "):
        store.identity("third")
    assert common_names(store.identity("BROKER").certificates) == ["broker", "below", "root"]
    assert common_names(store.identity("another").certificates) == ["another"]
    assert is_usable(store.identity("broker"), tmp_path)
    assert is_usable(store.identity("another"), tmp_path)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_trust_store_has_all_authorities(kind: str, authorities: Authorities, tmp_path: Path) -> None:
    path = tmp_path / "client.ts"
    trust(path, "One", kind, authorities.root)
    trust(path, "two", kind, authorities.below)
    store = read_file(path, PASSWORD)
    assert {each.alias.lower() for each in store.trusted} == {"one", "two"}
    assert sorted(common_names(store.authorities())) == ["below", "root"]
    with pytest.raises(UnusableKeyStore, match=r"^it has no private key; it may be the trust store"):
        store.identity()


@pytest.mark.parametrize("kind", ["JKS", "JCEKS"])
def test_a_key_may_have_its_own_password(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    generate(path, "broker", kind, "-keypass", "another")
    with pytest.raises(UnusableKeyStore, match=r"^the key 'broker' has another password"):
        read_file(path, PASSWORD).identity()
    assert is_usable(read_file(path, PASSWORD, key_password="another").identity(), tmp_path)


@pytest.mark.parametrize("kind", FORMATS)
def test_expired_certificates_are_reported(kind: str, authorities: Authorities, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    generate(path, "old", kind, "-startdate", "-10d", "-validity", "5")
    trust(path, "root", kind, authorities.root)
    store = read_file(path, PASSWORD)
    (expired,) = store.expired(NOW)
    assert abs(expired.end - (NOW - datetime.timedelta(days=5))) < datetime.timedelta(days=2)  # daylight saving
    assert str(expired) == f"the certificate CN=old,O=pybroker of 'old' has expired on {expired.end:%Y-%m-%d}"
    assert not store.expired(NOW - datetime.timedelta(days=8))


def test_pkcs12_of_older_javas_is_read(authorities: Authorities, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    legacy = "-J-Dkeystore.pkcs12.legacy"  # the certificates are encrypted by RC2 with 40 bits, as up to Java 16
    generate(path, "broker", "PKCS12", legacy)
    trust(path, "root", "PKCS12", authorities.root, legacy)
    assert bytes.fromhex("060a2a864886f70d010c0106") in path.read_bytes()  # that algorithm
    store = read_file(path, PASSWORD)
    assert is_usable(store.identity(), tmp_path)
    assert common_names(store.authorities()) == ["root", "broker"]


def test_secret_keys_in_jceks_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    arguments = ("-keyalg", "AES", "-keysize", "128", "-storetype", "JCEKS")
    keytool("-genseckey", "-alias", "hidden", *arguments, "-keystore", str(path), "-storepass", PASSWORD)
    with pytest.raises(UnusableKeyStore, match=r"it has a secret key, 'hidden', .*; remove it: keytool -delete"):
        read_file(path, PASSWORD)


@pytest.mark.filterwarnings("ignore:Parsed a serial number which wasn't positive")
def test_the_certificates_of_java_itself_are_read() -> None:
    path = Path("/etc/ssl/certs/java/cacerts")
    if not path.is_file():
        pytest.skip("this machine has no cacerts of Java's")
    listed = keytool("-list", "-keystore", str(path), "-storepass", PASSWORD)
    number = re.search(r"contains (\d+) entr", listed)
    assert number is not None, listed
    assert len(read_file(path, PASSWORD).trusted) == int(number[1])
