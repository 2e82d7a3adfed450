"""No password gets into a log, a command line, a status, an exception, a `repr`, or a file of the store."""

import base64
import gc
import hashlib
import logging
import os
import resource
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.modes import CBC
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

import pybroker
from pybroker.broker.app import security_files
from pybroker.broker.app.config import Config
from pybroker.broker.domain.errors import BrokerError
from pybroker.broker.domain.openwire import commands as wire
from pybroker.broker.domain.security import Credentials, User
from pybroker.broker.domain.stomp.codec import FrameDecoder
from pybroker.broker.domain.stomp.frames import StompLimits
from pybroker.client.errors import ClientError, LoginRefused, NotAuthorized
from pybroker.security import files, hashes, users_toml
from pybroker.security.accounts import Account, Accounts
from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.openwire_client import FORMAT, OpenWireClient
from tests.integration.stomp_client import Disconnected, StompClient
from tests.ldap_server import BASE, SERVICE, SERVICE_PASSWORD, LdapServer
from tests.secret_search import Secrets
from tests.unit.transports.certificates import Certificates

Start = Callable[..., BrokerProcess]
Material = dict[str, bytes | str]

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def secrets() -> Secrets:
    return Secrets()


def command(*arguments: str, typed: str = "", **environment: str) -> Material:
    """Run a command of pybroker; return what it wrote."""
    line = [sys.executable, "-m", "pybroker.broker.app.cli", *arguments]
    done = subprocess.run(
        line, input=typed.encode(), capture_output=True, timeout=60, env=os.environ | environment, check=False
    )
    place = f"`pybroker {' '.join(arguments[:2])}`, exit code {done.returncode}"
    return {f"output of {place}": done.stdout, f"errors of {place}": done.stderr}


def shown(error: BaseException) -> str:
    """Return all that a log or a terminal can show of an exception."""
    parts = [str(error), repr(error), repr(vars(error)), "".join(traceback.format_exception(error))]
    return "\n".join([*parts, *(shown(each) for each in (error.__cause__, error.__context__) if each is not None)])


def reprs() -> str:
    """Return the `repr` of every object of pybroker in this process."""
    objects = [each for each in gc.get_objects() if str(type(each).__module__).partition(".")[0] == "pybroker"]
    return "\n".join(map(repr, objects))


def files_below(directory: Path) -> Material:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def processes_of(pid: int) -> Iterator[tuple[int, bytes]]:
    """Yield a process and its descendants, with their command lines."""
    yield pid, Path(f"/proc/{pid}/cmdline").read_bytes()
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            yield from processes_of(int(child))


def encrypted(text: str, master: str) -> str:
    """Return a value as ActiveMQ's `encrypt` command writes it."""
    salt = os.urandom(8)
    derived = master.encode() + salt
    for _ in range(1000):
        derived = hashlib.md5(derived).digest()
    padding = 8 - len(text) % 8
    cipher = Cipher(TripleDES(derived[:8] * 3), CBC(derived[8:])).encryptor()
    content = cipher.update(text.encode() + bytes([padding]) * padding) + cipher.finalize()
    return f"ENC({base64.b64encode(salt + content).decode()})"


def with_password(certificates: Certificates, password: str) -> Path:
    """Return the server's key, encrypted with a password."""
    key = load_pem_private_key(certificates.key.read_bytes(), None)
    path = certificates.directory / "own-key.pem"
    encryption = BestAvailableEncryption(password.encode())
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    return path


MALFORMED = {
    "an escape that is none": "CONNECT\naccept-version:1.2\nhost:h\nlogin:alice\npasscode:{}\\t\n\n\0",
    "a header without a colon": "CONNECT\naccept-version:1.2\nhost:h\nlogin:alice\npasscode {}\n\n\0",
    "a negative length": "CONNECT\naccept-version:1.2\nlogin:alice\npasscode:{}\ncontent-length:-1\n\n\0",
    "no version": "CONNECT\naccept-version:9.9\nlogin:alice\npasscode:{}\n\n\0",
    "no UTF-8": "CONNECT\naccept-version:1.2\nlogin:alice\npasscode:{}\udcff\n\n\0",
    "a body": "CONNECT\naccept-version:1.2\nlogin:alice\npasscode:{}\ncontent-length:2000000\n\n\0",
    "another first command": "SEND\nlogin:alice\npasscode:{}\ndestination:/queue/a\n\nm\0",
    "a heart-beat that is none": "CONNECT\naccept-version:1.2\nlogin:alice\npasscode:{}\nheart-beat:x\n\n\0",
    "no end": "CONNECT\naccept-version:1.2\nlogin:alice\npasscode:{}\n",
}


def send_malformed_stomp(port: int, secrets: Secrets) -> Material:
    """Send frames that are refused, each with a password; return the answers."""
    answers: Material = {}
    for name, text in MALFORMED.items():
        frame = text.format(secrets.new(f"in {name}")).encode(errors="surrogateescape")
        with closing(StompClient(port, is_connected=False)) as client:
            client.send_bytes(frame)
            if name != "no end":
                answers[f"answer to {name}"] = repr(client.read())
    return answers


def send_malformed_openwire(port: int, secrets: Secrets) -> None:
    """Send a ConnectionInfo with each kind of damage."""

    def frame(label: str) -> bytearray:
        info = wire.ConnectionInfo(
            connection_id=wire.ConnectionId("c"), client_id="c", user_name="alice", password=secrets.new(label)
        )
        return bytearray(FORMAT.encode_frame(info))

    unknown, cut, long_, trailing = (frame(f"in OpenWire, {name}") for name in ("unknown", "cut", "long", "more"))
    unknown[4] = 200
    cut = cut[:-20]
    cut[:4] = (len(cut) - 4).to_bytes(4, "big")
    long_[-12] = 0x7F
    trailing += b"more"
    trailing[:4] = (len(trailing) - 4).to_bytes(4, "big")
    for each in (unknown, cut, long_, trailing):
        client = OpenWireClient(port)
        client.send_bytes(bytes(each))
        with suppress(OSError):
            client._socket.shutdown(1)
        client.read_to_end()
        client.close()


def make_users(users: Path, secrets: Secrets, alice: str, bob: str) -> Material:
    """Make a users.toml by commands, of which some are refused; return what they and the file say."""
    file = f"--file={users}"
    written = command("user", "add", "alice", "--group", "g", file, typed=secrets.new("replaced") + "\n")
    written |= command("user", "passwd", "alice", file, typed=alice + "\n")
    written |= command("user", "add", "bob", file, typed=bob + "\n")
    written |= command("user", "add", "carol", file, typed=secrets.new("too long") * 100 + "\n")
    written |= command("user", "add", "dave", file, typed=secrets.new("with a NUL") + "\0\n")
    written |= command("user", "list", "--json", file)
    return written | {"users.toml": users.read_bytes()}


def test_a_broker_with_users(start: Start, tmp_path: Path, secrets: Secrets, caplog: pytest.LogCaptureFixture) -> None:
    """Logins of all kinds, right, wrong and malformed; a reload that fails; a failover; all at DEBUG, as text."""
    caplog.set_level(logging.DEBUG)
    material: Material = {}
    certificates = Certificates(directory=tmp_path)
    users, rules, key_password = tmp_path / "users.toml", tmp_path / "rules.toml", tmp_path / "key-password"
    alice, bob, key_secret = secrets.new("alice"), secrets.new("bob"), secrets.new("the key's")
    key_password.write_text(key_secret + "\n")
    rules.write_text('[[rules]]\nqueue = "A"\nread = ["g"]\nwrite = ["g"]\nadmin = ["g"]\n')
    material |= make_users(users, secrets, alice, bob)

    openwire, stomp, tls = free_port(), free_port(), free_port()
    options: dict[str, object] = {
        "users-file": users, "rules-file": rules, "openwire": openwire, "stomp-ssl": tls,
        "tls-certificate": certificates.certificate, "tls-key": with_password(certificates, key_secret),
        "tls-key-password-file": key_password, "log-level": "debug",
    }  # fmt: skip
    arguments = [f"--{name}={value}" for name, value in options.items()]
    broker = start("--openwire", str(openwire), *arguments, port=stomp, is_fresh=True)
    broker.wait_for("listening on")
    for pid, line in processes_of(broker.process.pid):
        material[f"command line of {pid}"] = line
        material[f"environment of {pid}"] = Path(f"/proc/{pid}/environ").read_bytes()

    url = f"failover:(tcp://127.0.0.1:{openwire})?initialReconnectDelay=10"
    resumed: list[str] = []
    connection = pybroker.connect(url, user="alice", password=alice, on_resumed=resumed.append)
    connection.send("A", "m")
    with pytest.raises(NotAuthorized) as denied:
        connection.send("B", "m")
    material["a denial"] = shown(denied.value)
    for scheme, port in (("stomp", stomp), ("tcp", openwire)):
        with pybroker.connect(f"{scheme}://127.0.0.1:{port}", user="bob", password=bob):
            material[f"objects of a client of {scheme}"] = reprs()
        with pytest.raises(LoginRefused) as refused:
            pybroker.connect(f"{scheme}://127.0.0.1:{port}", user="bob", password=secrets.new(f"wrong for {scheme}"))
        material[f"a refusal by {scheme}"] = shown(refused.value)
    with closing(StompClient(tls, tls=certificates.client_context(), login="bob", passcode=bob)) as client:
        client.send("CONNECT", b"", login="bob", passcode=secrets.new("in a second CONNECT"))
        material["answer to a second CONNECT"] = repr(client.read())
    material |= send_malformed_stomp(stomp, secrets)
    send_malformed_openwire(openwire, secrets)

    address, wrong = f"--url=tcp://127.0.0.1:{openwire}", secrets.new("of PYBROKER_PASSWORD")
    material |= command("produce", "A", "m", address, "--user=alice", PYBROKER_PASSWORD=wrong)
    wrong_file = tmp_path / "password"
    wrong_file.write_text(secrets.new("of --password-file"))
    material |= command("consume", "A", address, "--user=alice", f"--password-file={wrong_file}")
    material |= command("browse", "A", address, "--user=alice", PYBROKER_PASSWORD=alice)

    before = users.read_bytes()
    users.write_text(f'[users.alice]\npassword = "{secrets.new("clear in users.toml")}"\n')
    broker.wait_for("the users stay as they were")
    users.write_bytes(before)
    broker.process.send_signal(signal.SIGUSR1)
    broker.wait_for("connections")
    material |= command("status", "--json", "--store", str(tmp_path / "store"))
    material |= command("status", f"--store={tmp_path / 'store'}")
    broker.kill()
    second = start("--openwire", str(openwire), *arguments, port=stomp, is_fresh=True)
    second.wait_for("listening on")
    while not resumed:
        connection.send("A", "after the failover")
    connection.close()
    assert second.terminate() == 0
    material["log"] = "\n".join([*broker.lines, *second.lines])
    material["log of the clients"] = "\n".join(f"{each.getMessage()} {each.exc_text}" for each in caplog.records)
    material |= files_below(tmp_path / "store")
    assert "refused" in str(material["log"])
    assert secrets.found(material) == []


@pytest.fixture
def core_files() -> Iterator[None]:
    """Processes that are started may write core files, where this one may allow it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))


@pytest.mark.usefixtures("core_files")
def test_a_crash_leaves_no_core_with_passwords(start: Start, tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text("[users]\n")
    of_test = resource.prlimit(0, resource.RLIMIT_CORE)
    for arguments, limit in ((["--users-file", str(users)], (0, of_test[1])), ([], of_test)):
        broker = start(*arguments, store="memory:", is_fresh=True)
        broker.wait_for("listening on")
        assert resource.prlimit(broker.process.pid, resource.RLIMIT_CORE) == limit


@pytest.mark.component("slapd")
def test_a_broker_with_a_directory_and_an_activemqs_users(
    start: Start, tmp_path: Path, secrets: Secrets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passwords in clear, encrypted ones, and those of the directory; at DEBUG, as JSON."""
    monkeypatch.setenv("ACTIVEMQ_ENCRYPTION_PASSWORD", master := secrets.new("the master"))
    (tmp_path / "slapd").mkdir()
    server = LdapServer(tmp_path / "slapd").start()
    secrets.add("the directory's", SERVICE_PASSWORD)
    clear, hidden = secrets.new("clear"), secrets.new("encrypted")
    users, bind, configuration = tmp_path / "users.properties", tmp_path / "bind", tmp_path / "broker.toml"
    users.write_text(f"clear={clear}\nhidden={encrypted(hidden, master)}\n")
    bind.write_text(SERVICE_PASSWORD)
    for each in (users, bind):
        each.chmod(0o600)
    configuration.write_text(f"""
users_file = "{users}"
log_level = "debug"
log_format = "json"
[ldap]
connection_url = "{server.url}"
connection_username = "{SERVICE}"
connection_password_file = "{bind}"
start_tls = "no"
user_base = "ou=people,{BASE}"
""")
    broker = start("--config", str(configuration), store="memory:", is_fresh=True)
    try:
        broker.wait_for("listening on")
        material: Material = {f"command line of {pid}": line for pid, line in processes_of(broker.process.pid)}
        for name, password in {
            "clear": clear, "hidden": hidden, "alice": "sesame", "bob": secrets.new("wrong for the directory"),
            "carol": secrets.new("wrong for nobody"),
        }.items():  # fmt: skip
            with suppress(AssertionError):
                StompClient(broker.port, login=name, passcode=password).close()
        users.write_text(f"clear={clear}\nhidden={secrets.new('before a wrong escape')}\\u00zz\n")
        broker.wait_for("the users stay as they were")
        users.write_text(f"clear={clear}\nhidden={encrypted(secrets.new('of another master'), 'other')}\n")
        broker.wait_for("master password")
        server.stop()
        with pytest.raises((AssertionError, Disconnected)):
            StompClient(broker.port, login="dora", passcode=secrets.new("without a directory"))
    finally:
        server.stop()
    users.write_text(f"clear={clear}\nhidden={encrypted(hidden, master)}\n")
    material |= command("user", "import", f"--users={users}", f"--file={tmp_path / 'imported.toml'}")
    material["imported.toml"] = (tmp_path / "imported.toml").read_bytes()
    assert broker.terminate() == 0
    material["log"] = "\n".join(broker.lines)
    assert "logged in" in str(material["log"])
    assert secrets.found(material) == []


URLS = (
    "tcp://alice:{}@127.0.0.1:1",
    "failover:(tcp://alice:{}@127.0.0.1:1,tcp://127.0.0.1:1)",
    "stomp://alice:{}@127.0.0.1:1?x=y",
    "tcp://127.0.0.1:1?password={}",
    "tcp://127.0.0.1:1?jms.password={}&jms.userName=alice",
    "failover:(tcp://127.0.0.1:1?passcode={})?maxReconnectAttempts=0",
    "failover:(tcp://127.0.0.1:1)?nested.password={}&maxReconnectAttempts=0",
)


@pytest.mark.parametrize("url", URLS)
def test_a_password_in_a_url(url: str, secrets: Secrets, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = secrets.add("in a URL", secrets.new("x").replace("+", "-").replace("&", "_"))
    text = url.format(secret)
    with pytest.raises(ClientError) as raised:
        pybroker.connect(text, timeout=5)
    material: Material = {"error": shown(raised.value), "log": caplog.text}
    material |= command("produce", "A", "m", f"--url={text}", "--timeout=5s")
    assert secrets.found(material) == []


@pytest.mark.parametrize(
    "text",
    [
        '[users.alice]\npassword = "{}"\n', "[users.alice]\npassword = {}\n", '[users]\nalice = "{}"\n',
        '[users.alice]\npassword = "{}\n', 'alice = "{}"\n', '[users.alice]\npassword = ["{}"]\n',
        '[users.alice]\npasswd = "{}"\n', '[users.alice]\npassword = "$argon2id${}"\n', "alice={}\n",
    ],
)  # fmt: skip
def test_a_password_in_a_malformed_users_toml(text: str, secrets: Secrets, tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    path.write_text(text.format(secrets.new("clear")))
    with pytest.raises(BrokerError) as raised:
        users_toml.read(files.read(path, setting="users_file", has_passwords=False))
    assert secrets.found({"error": shown(raised.value)}) == []


@pytest.mark.parametrize("text", ["a={}\\u00zz\n", "a={}\\\n\\u1\n", "a=ENC({})\n", "a={}\nb=\n"])
def test_a_password_in_a_malformed_users_properties(text: str, secrets: Secrets, tmp_path: Path) -> None:
    path = tmp_path / "users.properties"
    path.write_text(text.format(secrets.new("clear")))
    path.chmod(0o600)
    with pytest.raises(BrokerError) as raised:
        security_files.read_users(Config(users_file=path))
    assert secrets.found({"error": shown(raised.value)}) == []


def test_objects_with_a_password(secrets: Secrets) -> None:
    clear = secrets.new("clear")
    head = f"CONNECT\nlogin:alice\npasscode:{clear}\n\n\0".encode()
    account = Account(User("alice"), clear)
    objects: list[Any] = [
        Credentials("alice", clear),
        wire.ConnectionInfo(user_name="alice", password=clear),
        next(FrameDecoder(StompLimits()).feed(head)),
        account,
        Accounts({"alice": account}),
        files.Content(Path("users.properties"), f"alice={clear}\n".encode()),
        Config(store=f"postgresql://alice:{clear}@127.0.0.1/x"),
    ]
    assert secrets.found({type(each).__name__: f"{each!r} {each} {[each]}" for each in objects}) == []
    with pytest.raises(ValueError, match="bytes") as raised:
        hashes.hashed(clear * 100)
    assert secrets.found({"error": shown(raised.value)}) == []
