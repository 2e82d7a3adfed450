"""Who may copy a store, with real members: certificates on both sides, secrets, and what is refused (7, check 19)."""

import socket
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

import pybroker
from tests.etcd_cluster import EtcdCluster, etcd_cluster  # noqa: F401
from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.replicated import ReplicatedCluster

pytestmark = [pytest.mark.component("etcd"), pytest.mark.timeout(180)]


@dataclass(frozen=True)
class PeerPems:
    """Certificates of members, of an authority of their own, and of another one.

    Attributes:
        directory: of the files.
    """

    directory: Path

    def __post_init__(self) -> None:
        ours, strange = trustme.CA(), trustme.CA()
        ours.cert_pem.write_to_path(self.directory / "ca.pem")
        for authority, name in ((ours, "a"), (ours, "b"), (ours, "mallory"), (strange, "strange")):
            issued = authority.issue_cert("127.0.0.1", f"{name}.example")
            issued.private_key_and_cert_chain_pem.write_to_path(self.directory / f"{name}.pem")

    def arguments(self, name: str, members: str = "") -> tuple[str, ...]:
        """Return the arguments of a member with one of the certificates."""
        found: tuple[str, ...] = ("--replicate-tls-certificate", str(self.directory / f"{name}.pem"))
        found += ("--replicate-tls-ca", str(self.directory / "ca.pem"))
        return (*found, "--replicate-members", members) if members else found


@pytest.fixture
def pems(tmp_path: Path) -> PeerPems:
    """Certificates of a test."""
    directory = tmp_path / "pems"
    directory.mkdir()
    return PeerPems(directory)


def write_secret(path: Path, text: str) -> Path:
    path.touch(0o600)
    path.write_text(text)
    return path


def test_members_over_tls_replace_each_other(tmp_path: Path, etcd_cluster: EtcdCluster, pems: PeerPems) -> None:  # noqa: F811
    extra = pems.arguments("a", "a.example,b.example")
    with ReplicatedCluster(tmp_path, etcd_cluster.url(), "a", *extra) as cluster:
        cluster.members["a"].wait_for(r"followers are accepted on .* \(TLS\)")
        cluster.add("b", *pems.arguments("b", "a.example, b.example"))
        cluster.wait_in_sync("a", "b")
        with pybroker.connect(cluster.uri) as connection:
            connection.send("queue://Q", "first")
            cluster.kill("a")
            connection.send("queue://Q", "second", timeout=60)
            cluster.start("a")
            cluster.wait_in_sync("a", "b")
            with connection.consumer("queue://Q") as consumer:
                assert [consumer.receive(timeout=30).body for _ in range(2)] == ["first", "second"]


@pytest.mark.parametrize(
    ("certificate", "of_master", "of_follower"),
    [
        ("mallory", "mallory.example, which is not in replicate_members", "does it accept this member's certificate"),
        ("strange", "the other side's certificate is refused", "this member's certificate"),
        ("", "the other side does not speak TLS", "or TLS, and this member has not|the master speaks TLS"),
    ],
)
def test_stranger_gets_nothing(
    tmp_path: Path,
    etcd_cluster: EtcdCluster,  # noqa: F811
    pems: PeerPems,
    certificate: str,
    of_master: str,
    of_follower: str,
) -> None:
    extra = pems.arguments("a", "127.0.0.2,a.example,b.example")
    with ReplicatedCluster(tmp_path, etcd_cluster.url(), "a", *extra) as cluster:
        with pybroker.connect(cluster.uri) as connection:
            connection.send("queue://Q", "nobody else's")
        cluster.add("b", *(pems.arguments(certificate) if certificate else ()), is_alone=True)
        cluster.members["a"].wait_for(f"refused as a follower: .*{of_master}")
        cluster.members["b"].wait_for(f"following .*({of_follower})")
        assert not cluster.contents("b")
        cluster.wait_in_sync("a")


def test_member_with_another_secret_gets_nothing(tmp_path: Path, etcd_cluster: EtcdCluster) -> None:  # noqa: F811
    ours, theirs = (write_secret(tmp_path / name, name * 32) for name in ("x", "y"))
    with ReplicatedCluster(tmp_path, etcd_cluster.url(), "a", "--replicate-secret-file", str(ours)) as cluster:
        with pybroker.connect(cluster.uri) as connection:
            connection.send("queue://Q", "nobody else's")
        cluster.add("b", "--replicate-secret-file", str(theirs), is_alone=True)
        cluster.members["a"].wait_for("refused as a follower: the other side has another secret")
        cluster.members["b"].wait_for("following .*: does it have the same secret")
        assert not cluster.contents("b")
        cluster.add("c", is_alone=True)
        cluster.members["a"].wait_for("this member has a replicate_secret_file, and the other one has none")
        cluster.members["c"].wait_for("following .*: does it have a secret, or TLS, and this member has not")
        assert not cluster.contents("c")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (("--replicate-tls-ca", "ca.pem"), "replicate_tls_certificate: members know each other by certificates"),
        (("--replicate-tls-certificate", "a.pem"), "replicate_tls_ca: it is missing"),
        (("--replicate-members", "a.example"), "replicate_tls_certificate: members know each other"),
        (("--tls-certificate", "a.pem", "--tls-client-ca", "ca.pem", "--replicate-tls-key", "a.pem"), "every client"),
        (("--replicate-tls-certificate", "none.pem", "--replicate-tls-ca", "ca.pem"), "replicate_tls_certificate: "),
        (("--replicate-url", "a.example"), "replicate_url: .* HOST:PORT"),
        (("--replicate-url", "a.example:http"), "replicate_url: .* HOST:PORT"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(
    tmp_path: Path, pems: PeerPems, settings: tuple[str, ...], sentence: str
) -> None:
    extra = [str(pems.directory / each) if each.endswith(".pem") else each for each in settings]
    register = ("--replicate", f"etcd://127.0.0.1:{free_port()}/orders")
    member = BrokerProcess(str(tmp_path / "store"), name="a", port=free_port(), extra=(*register, *extra))
    try:
        assert member.join() == 2
        assert member.lines[-1].startswith("pybroker: ")
        member.wait_for(sentence)
    finally:
        member.close()


def test_without_secret_and_certificates_only_this_machine_can_connect(
    tmp_path: Path,
    etcd_cluster: EtcdCluster,  # noqa: F811
) -> None:
    with ReplicatedCluster(tmp_path, etcd_cluster.url(), "a", "--bind", "0.0.0.0") as cluster:
        port = int(cluster.members["a"].wait_for(r"followers are accepted on 127\.0\.0\.1:(\d+) \(loopback only\)")[1])
        for line in Path("/proc/net/tcp").read_text().splitlines():
            if f":{port:04X} 00000000:0000" in line:
                assert socket.ntohl(int(line.split()[1].split(":")[0], 16)) >> 24 == 127
