"""A register in etcd when nodes are frozen, killed, compacted, demand users or certificates, or are no etcd at all."""

import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from pybroker.broker.domain.errors import ConfigError
from pybroker.locks.election.etcd import PREFIX, EtcdRegister
from pybroker.locks.election.etcd_gateway import EtcdUser
from pybroker.locks.election.register import ABSENT, RegisterState, RegisterUnavailable
from tests.etcd_cluster import EtcdCluster, encoded, etcd_cluster, own_etcd, three_etcds
from tests.integration.cluster import free_port
from tests.integration.register_engines import PATIENT_SECONDS, RECORD, record
from tests.integration.test_registers import Seen, created, read_patiently
from tests.pace import in_time

__all__ = ["etcd_cluster", "own_etcd", "three_etcds"]

pytestmark = pytest.mark.component("etcd")

SHORT_SECONDS = 0.5

NewEtcd = Callable[..., EtcdRegister]


@pytest.fixture
def new_etcd() -> Iterator[NewEtcd]:
    made: list[EtcdRegister] = []

    def new(url: str, *, seconds: float = PATIENT_SECONDS, **options: object) -> EtcdRegister:
        made.append(EtcdRegister(url, timeout_seconds=seconds, **options))  # type: ignore[arg-type]
        return made[-1]

    yield new
    for register in made:
        register.close()


def swapped(register: EtcdRegister, state: RegisterState, nonce: str) -> RegisterState:
    """Change the record until the change is certain, as a member does."""
    deadline = time.monotonic() + PATIENT_SECONDS
    while True:
        try:
            found = register.swap(state.revision, record(nonce)).present
        except RegisterUnavailable:
            found = read_patiently(register)
        if found.record is not None and found.record.nonce == nonce:
            return found
        state = found  # a request that was late has changed it
        assert time.monotonic() < deadline


# ---------------------------------------------------------------- one node


def test_frozen_node_leaves_the_outcome_unknown(own_etcd: EtcdCluster, new_etcd: NewEtcd) -> None:
    (node,), url = own_etcd.nodes, own_etcd.url()
    register = new_etcd(url, seconds=SHORT_SECONDS)
    before = created(new_etcd(url))
    assert read_patiently(register) == before
    node.signal(signal.SIGSTOP)
    for _ in range(3):
        began = time.monotonic()
        with pytest.raises(RegisterUnavailable, match="no answer in time"):
            register.swap(before.revision, record("frozen"))
        with pytest.raises(RegisterUnavailable, match="no answer in time"):
            register.read()
        assert in_time(time.monotonic() - began, 2 * SHORT_SECONDS + 0.3)
    node.signal(signal.SIGCONT)
    state = read_patiently(register)
    assert state == before or (state.record == record("frozen") and state.revision > before.revision)
    assert swapped(register, state, "thawed").record == record("thawed")


def test_watch_outlives_a_frozen_node(own_etcd: EtcdCluster, new_etcd: NewEtcd) -> None:
    (node,), url, seen = own_etcd.nodes, own_etcd.url(), Seen()
    register = new_etcd(url, seconds=0.2)
    before = swapped(register, ABSENT, "before")
    register.watch(seen.states.put)
    seen.wait_for_nonce("before")
    node.signal(signal.SIGSTOP)
    with pytest.raises(RegisterUnavailable):
        register.read()
    node.signal(signal.SIGCONT)
    swapped(register, before, "after")
    seen.wait_for_nonce("after")


def test_killed_node_keeps_the_record(own_etcd: EtcdCluster, new_etcd: NewEtcd) -> None:
    (node,), url, seen = own_etcd.nodes, own_etcd.url(), Seen()
    register = new_etcd(url, seconds=1.0)
    before = created(new_etcd(url))
    register.watch(seen.states.put)
    seen.wait_for_nonce(RECORD.nonce)
    node.kill()
    with pytest.raises(RegisterUnavailable):
        register.read()
    own_etcd.start(node)
    own_etcd.wait()
    assert read_patiently(register) == before, "a restart is no change"
    swapped(register, before, "after")
    seen.wait_for_nonce("after")


def test_connection_is_kept_between_calls(etcd_cluster: EtcdCluster, new_etcd: NewEtcd) -> None:
    register = new_etcd(etcd_cluster.url())
    state = created(register)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "socket", None)
        for _ in range(5):
            assert register.read() == state


def test_compaction_during_a_watch_loses_no_change(own_etcd: EtcdCluster, new_etcd: NewEtcd) -> None:
    """A watch that comes back with a revision that was compacted is cancelled, reads, and goes on."""
    url, seen = own_etcd.url(), Seen()
    register, writer = new_etcd(url, seconds=1.0), new_etcd(url)
    before = created(writer)
    register.watch(seen.states.put)
    seen.wait_for_nonce(RECORD.nonce)
    state = before
    for nonce in ("one", "two", "three"):
        state = swapped(writer, state, nonce)
    seen.wait_for_nonce("three")
    own_etcd.call("/v3/kv/compaction", {"revision": str(state.revision), "physical": True})
    after = swapped(writer, state, "after")
    assert seen.wait_for_nonce("after") == after

    # A stream that begins behind the compaction, as one does that was cut off for long.
    late, seen = new_etcd(url, seconds=1.0), Seen()
    reads = iter([lambda: (before, before.revision)])
    read_at = late.read_at
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EtcdRegister, "read_at", lambda self: next(reads, read_at)())
        late.watch(seen.states.put)
        assert seen.wait_for_nonce(RECORD.nonce) == before
        assert seen.wait_for_nonce("after") == after, "read after the stream was cancelled"
    last = swapped(writer, after, "last")
    assert seen.wait_for_nonce("last") == last


# ---------------------------------------------------------------- several addresses


def test_address_that_refuses_is_passed_over_at_once(etcd_cluster: EtcdCluster, new_etcd: NewEtcd) -> None:
    port = etcd_cluster.nodes[0].port
    name = etcd_cluster.url().rpartition("/")[2]
    register = new_etcd(f"etcd://127.0.0.1:{free_port()},127.0.0.1:{free_port()},localhost:{port}/{name}")
    began = time.monotonic()
    state = created(register)
    assert register.read() == state
    assert in_time(time.monotonic() - began, 2.0)


def test_read_without_answer_is_repeated_elsewhere(etcd_cluster: EtcdCluster, new_etcd: NewEtcd) -> None:
    """A frozen node's kernel accepts connections; a swap to it is sent, and is not repeated."""
    port = etcd_cluster.nodes[0].port
    name = etcd_cluster.url().rpartition("/")[2]
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        url = f"etcd://127.0.0.1:{frozen.getsockname()[1]},127.0.0.1:{port}/{name}"
        register = new_etcd(url, seconds=2.0)
        began = time.monotonic()
        assert register.read() == ABSENT
        assert in_time(time.monotonic() - began, 1.5), "half of the time is the second address'"
        assert register.swap(0, RECORD).is_swapped, "the address that answered is asked first from here on"
        other = new_etcd(url, seconds=SHORT_SECONDS)
        with pytest.raises(RegisterUnavailable, match="no answer in time"):
            other.swap(0, record("never"))
        assert new_etcd(etcd_cluster.url(name)).read().record == RECORD


def test_three_members_go_on_without_one(three_etcds: EtcdCluster, new_etcd: NewEtcd) -> None:
    register, seen = new_etcd(three_etcds.url(), seconds=1.0), Seen()
    state = swapped(register, ABSENT, "first")
    register.watch(seen.states.put)
    seen.wait_for_nonce("first")
    leader = three_etcds.leader()
    leader.kill()
    began = time.monotonic()
    state = swapped(register, state, "without the leader")
    print(f"\nswapped {time.monotonic() - began:.1f} s after the leader was killed")
    seen.wait_for_nonce("without the leader")
    three_etcds.start(leader)
    three_etcds.wait()
    follower = next(node for node in three_etcds.nodes if node is not three_etcds.leader())
    follower.signal(signal.SIGSTOP)
    state = swapped(register, state, "a follower is frozen")
    follower.signal(signal.SIGCONT)
    assert read_patiently(register) == state
    seen.wait_for_nonce("a follower is frozen")


def test_three_members_without_quorum_answer_nothing(three_etcds: EtcdCluster, new_etcd: NewEtcd) -> None:
    """The node that is left, a leader too, neither confirms nor reads alone."""
    register = new_etcd(three_etcds.url(), seconds=SHORT_SECONDS)
    before = swapped(register, ABSENT, "before")
    leader = three_etcds.leader()
    others = [node for node in three_etcds.nodes if node is not leader]
    for node in others:
        node.signal(signal.SIGSTOP)
    alone = new_etcd(f"etcd://127.0.0.1:{leader.port}/{register.key.removeprefix(PREFIX)}", seconds=SHORT_SECONDS)
    for _ in range(3):
        with pytest.raises(RegisterUnavailable):
            alone.read()
        with pytest.raises(RegisterUnavailable):
            alone.swap(before.revision, record("alone"))
    for node in others:
        node.signal(signal.SIGCONT)
    state = read_patiently(register)
    assert swapped(register, state, "together").record == record("together")


# ---------------------------------------------------------------- users and certificates


@pytest.fixture
def guarded_etcd() -> Iterator[EtcdCluster]:
    """A node that demands a user, whose tokens end after two seconds without a call."""
    cluster = EtcdCluster(options=("--auth-token", "simple"))
    for name, password in (("root", "root's"), ("member", "a s3cret"), ("guest", "s3cret too")):
        cluster.call("/v3/auth/user/add", {"name": name, "password": password})
    cluster.call("/v3/auth/user/grant", {"user": "root", "role": "root"})
    cluster.call("/v3/auth/role/add", {"name": "member"})
    permission = {"permType": "READWRITE", "key": encoded(PREFIX), "range_end": encoded("/pybroker0")}
    cluster.call("/v3/auth/role/grant", {"name": "member", "perm": permission})
    cluster.call("/v3/auth/user/grant", {"user": "member", "role": "member"})
    cluster.call("/v3/auth/enable", {})
    yield cluster
    cluster.remove()


def test_user_logs_in_and_again_when_the_token_ends(guarded_etcd: EtcdCluster, new_etcd: NewEtcd) -> None:
    url, user, seen = guarded_etcd.url(), EtcdUser(name="member", password="a s3cret"), Seen()
    register = new_etcd(url, user=user, seconds=5.0)
    state = created(register)
    register.watch(seen.states.put)
    seen.wait_for_nonce(RECORD.nonce)
    state = swapped(register, state, "one")
    seen.wait_for_nonce("one")
    (node,) = guarded_etcd.nodes
    node.kill()  # simple tokens end with their node
    guarded_etcd.start(node)
    while True:
        try:
            guarded_etcd.call("/v3/auth/authenticate", {"name": "member", "password": "a s3cret"})
        except OSError:
            assert node.process is not None
            assert node.process.poll() is None
        else:
            break
    assert read_patiently(register) == state
    swapped(register, state, "two")
    seen.wait_for_nonce("two")


@pytest.mark.parametrize(
    ("user", "reason"),
    [
        (None, "demands a user"),
        (EtcdUser(name="member", password="wrong s3cret"), "authentication failed"),
        (EtcdUser(name="guest", password="s3cret too"), "permission denied"),
    ],
)
def test_user_without_rights_is_an_error_of_configuration(
    guarded_etcd: EtcdCluster, new_etcd: NewEtcd, user: EtcdUser | None, reason: str
) -> None:
    register = new_etcd(guarded_etcd.url(), user=user)
    for call in (register.read, lambda: register.swap(0, RECORD)):
        with pytest.raises(ConfigError, match=reason) as caught:
            call()
        assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(user)


def test_certificates_are_demanded_on_both_sides(tmp_path: Path, new_etcd: NewEtcd) -> None:
    authority, server, key = trustme.CA(), tmp_path / "server.pem", tmp_path / "key.pem"
    issued = authority.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(server)
    issued.private_key_pem.write_to_path(key)
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    options = ["--cert-file", str(server), "--key-file", str(key)]
    options += ["--trusted-ca-file", str(tmp_path / "authority.pem"), "--client-cert-auth"]
    trusting, member = ssl.create_default_context(), ssl.create_default_context()
    for context in (trusting, member):
        authority.configure_trust(context)
    authority.issue_cert("member").configure_cert(member)
    cluster = EtcdCluster(options=options, tls=member)
    try:
        url = cluster.url()
        register = new_etcd(url, tls=member)
        state = created(register)
        assert register.read() == state
        seen = Seen()
        register.watch(seen.states.put)
        seen.wait_for_nonce(RECORD.nonce)
        for tls in (trusting, ssl.create_default_context(), None):
            with pytest.raises(RegisterUnavailable):
                new_etcd(url, tls=tls, seconds=2.0).read()
        with pytest.raises(RegisterUnavailable):
            new_etcd(url.replace("etcd+https://", "etcd://"), seconds=2.0).read()
    finally:
        cluster.remove()


# ---------------------------------------------------------------- peers that are no etcd


class BadServer:
    """Answers each connection with the same bytes, and then keeps it open or sends a byte now and then."""

    def __init__(self, answer: bytes, *, trickle: bytes = b"") -> None:
        self._answer, self._trickle = answer, trickle
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._is_closed = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self) -> "BadServer":
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._is_closed.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                connection.recv(65536)
                connection.sendall(self._answer)
                while not self._is_closed.wait(0.02):
                    connection.sendall(self._trickle)
            except OSError:
                return  # the client has hung up


def http(body: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n" % (status.encode(), len(body)) + body


BAD_ANSWERS = {
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "no JSON": http(b"<html>"),
    "no object": http(b"[1]"),
    "nested": http(b"[" * 60_000),
    "no fields": http(b"{}"),
    "keys of a wrong type": http(b'{"header":{},"kvs":{"mod_revision":"1"}}'),
    "key of a wrong type": http(b'{"header":{},"kvs":["x"]}'),
    "no revision": http(b'{"header":{},"kvs":[{"value":""}]}'),
    "revision of a wrong type": http(b'{"header":{},"kvs":[{"mod_revision":7}]}'),
    "revision that is too great": http(b'{"header":{},"kvs":[{"mod_revision":"9223372036854775808"}]}'),
    "long answer": http(b"x" * 100_000),
    "short answer": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}",
    "error of the server": http(b'{"error":"etcdserver: no leader","code":14}', "503 Service Unavailable"),
    "redirection": http(b"", "301 Moved Permanently"),
    "many headers": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000 + b"\r\n",
    "long header": b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000,
}


@pytest.mark.parametrize("answer", BAD_ANSWERS.values(), ids=BAD_ANSWERS)
def test_answer_that_is_none_of_etcds_is_unavailable(new_etcd: NewEtcd, answer: bytes) -> None:
    with BadServer(answer) as server:
        register = new_etcd(f"etcd://127.0.0.1:{server.port}/x", seconds=SHORT_SECONDS)
        for call in (register.read, lambda: register.swap(0, RECORD)):
            with pytest.raises(RegisterUnavailable):
                call()


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"])
def test_answer_that_trickles_ends_with_the_call(new_etcd: NewEtcd, answer: bytes) -> None:
    """Each byte comes in time, all together do not."""
    with BadServer(answer, trickle=b"x") as server:
        register = new_etcd(f"etcd://127.0.0.1:{server.port}/x", seconds=SHORT_SECONDS)
        for call in (register.read, lambda: register.swap(0, RECORD)):
            began = time.monotonic()
            with pytest.raises(RegisterUnavailable, match="in time"):
                call()
            assert in_time(time.monotonic() - began, SHORT_SECONDS + 0.3)


def test_name_that_is_not_resolved_in_time_is_unavailable(
    etcd_cluster: EtcdCluster, new_etcd: NewEtcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resolver takes its own time when the network is away; what it knew before is used meanwhile."""
    release, resolve = threading.Event(), socket.getaddrinfo
    port = etcd_cluster.nodes[0].port
    known = new_etcd(f"etcd://localhost:{port}/{etcd_cluster.url().rpartition('/')[2]}", seconds=2.0)
    state = created(known)
    known.close()

    def hang(host: str, *arguments: object, **options: object) -> object:
        if not host[0].isdigit():
            release.wait(PATIENT_SECONDS)
        return resolve(host, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    try:
        unknown = new_etcd(f"etcd://localhost:{port}/x", seconds=SHORT_SECONDS)
        began = time.monotonic()
        with pytest.raises(RegisterUnavailable, match="not resolved"):
            unknown.read()
        assert in_time(time.monotonic() - began, SHORT_SECONDS + 0.3)
        known._timeout_seconds = 4.0
        assert known.read() == state
    finally:
        release.set()
