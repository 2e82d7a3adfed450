"""The replication stream over TLS: certificates of one authority on both sides, and names of members in them."""

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme
import uvloop

from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.replica.operations import Journal
from pybroker.store.journal.reader import data_files
from pybroker.transports.replica.follower import ReplicaFollower
from pybroker.transports.replica.peer_certificates import PeerCertificates, PeerFiles, peer_certificates
from pybroker.transports.replica.server import StreamPolicy
from tests.replicas import MasterNode, assert_equal_stores, closed, follower, trace
from tests.unit.transports.certificates import Certificates

LOGGER = "pybroker.transports.replica"


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Run a scenario on an event loop."""

    def run_scenario(scenario: Callable[[], object]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(scenario())  # type: ignore[arg-type]

    return run_scenario


async def _master(root: Path, tls: PeerCertificates | None, policy: StreamPolicy | None = None) -> MasterNode:
    master = MasterNode(root, policy, tls=tls)
    await master.start()
    master.journals.begin(Journal.MESSAGES)
    master.journals.write(Journal.MESSAGES, trace("x" * 100_000))
    return master


async def _refused(copy: ReplicaFollower) -> str:
    """Return the reason for which a follower ends its first connection."""
    copy.start()
    async with asyncio.timeout(30):
        while not copy.progress.refusal:  # noqa: ASYNC110 - it dials anew each time
            await asyncio.sleep(0)
    refusal = copy.progress.refusal
    await closed(copy)
    return refusal


def test_follower_of_the_authority_gets_everything(
    run: Callable[..., None], tmp_path: Path, certificates: Certificates
) -> None:
    pems = certificates

    async def scenario() -> None:
        both = frozenset({"client", "localhost"})
        master = await _master(tmp_path / "a", peer_certificates(pems.both, None, pems.authority, both))
        tls = peer_certificates(pems.client, None, pems.authority, both)
        copy = follower(tmp_path / "b", master.port, tls=tls)
        copy.start()
        await master.events.until_confirmed(master.journals.sequence)
        master.journals.write(Journal.MESSAGES, trace("live"))
        await master.events.until_confirmed(master.journals.sequence)
        await closed(copy)
        await master.close()
        assert_equal_stores(tmp_path / "a", tmp_path / "b")

    run(scenario)


REFUSALS = {
    "a client of another authority": ("this member's certificate", "certificate is refused"),
    "a master of another authority": ("certificate is refused", "refuses this member's certificate"),
    "a client that is no member": ("this member's certificate", "is for client, which is not in"),
    "a master that is no member": ("is for localhost, 127.0.0.1", "the follower closed the connection|ended"),
    "a plain client": ("or TLS, and this member has not|the master speaks TLS", "does not speak TLS"),
    "a plain master": (
        "does it have replicate_tls_certificate?|does not speak TLS",
        "speaks TLS, and this member has no",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_strangers_are_refused_with_a_line_on_both_sides(
    run: Callable[..., None], tmp_path: Path, certificates: Certificates, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    pems = certificates
    caplog.set_level(logging.INFO, LOGGER)
    ours = peer_certificates(pems.both, None, pems.authority)
    theirs: PeerCertificates | None = peer_certificates(pems.client, None, pems.authority)
    tls: PeerCertificates | None = ours
    match case:
        case "a client of another authority":
            theirs = peer_certificates(pems.strange_client, None, pems.authority)
        case "a master of another authority":
            theirs = peer_certificates(pems.client, None, pems.strange_authority)
        case "a client that is no member":
            tls = peer_certificates(pems.both, None, pems.authority, frozenset({"b.example"}))
        case "a master that is no member":
            theirs = peer_certificates(pems.client, None, pems.authority, frozenset({"b.example"}))
        case "a plain client":
            theirs = None
        case _:
            tls = None

    async def scenario() -> None:
        master = await _master(tmp_path / "a", tls)
        refusal = await _refused(follower(tmp_path / "b", master.port, tls=theirs))
        async with asyncio.timeout(30):
            while not _lines(caplog):  # noqa: ASYNC110 - the log has no event
                await asyncio.sleep(0)
        await master.close()
        assert any(each in refusal for each in REFUSALS[case][0].split("|")), refusal
        assert master.events.log == [], "it was not admitted"
        assert not data_files(tmp_path / "b" / "kahadb")

    run(scenario)
    line = _lines(caplog)[0]
    assert any(each in line for each in REFUSALS[case][1].split("|")), line


def _lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the lines with which a master refuses followers."""
    return [record.getMessage() for record in caplog.records if "refused as a follower" in record.getMessage()]


def test_silent_connections_do_not_keep_followers_out(
    run: Callable[..., None], tmp_path: Path, certificates: Certificates
) -> None:
    """They are in the handshake of TLS, for which a stranger has ten seconds."""
    pems = certificates

    async def scenario() -> None:
        tls = peer_certificates(pems.both, None, pems.authority)
        master = await _master(tmp_path / "a", tls, StreamPolicy(connections_max=3))
        strangers = [await asyncio.open_connection("127.0.0.1", master.port) for _ in range(9)]
        copy = follower(tmp_path / "b", master.port, tls=peer_certificates(pems.client, None, pems.authority))
        copy.start()
        await master.events.until_confirmed(master.journals.sequence)
        async with asyncio.timeout(30):
            for reader, _ in strangers[:6]:
                assert await reader.read() == b""
        await closed(copy)
        await master.close()
        for _, writer in strangers:
            writer.close()

    run(scenario)


def test_renewed_certificate_is_used_for_the_next_connection(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    path = tmp_path / "both.pem"
    authority.issue_cert("a.example").private_key_and_cert_chain_pem.write_to_path(path)
    found = peer_certificates(path, None, tmp_path / "ca.pem")
    first = found.of_master()
    assert found.of_master() is first
    path.write_text("half of a file")
    assert found.of_master() is first
    assert found.of_follower() is not first
    assert "the former one stays in use" in caplog.text
    authority.issue_cert("a.example").private_key_and_cert_chain_pem.write_to_path(path)
    assert found.of_master() is not first


def test_unusable_files_are_named(tmp_path: Path, certificates: Certificates) -> None:
    with pytest.raises(ConfigError, match="replicate_tls_certificate: "):
        peer_certificates(tmp_path / "none", None, certificates.authority)
    with pytest.raises(ConfigError, match="replicate_tls_ca: "):
        peer_certificates(certificates.client, None, tmp_path / "none")
    with pytest.raises(ConfigError, match=r"replicate_tls_key: .* is encrypted"):
        peer_certificates(certificates.certificate, certificates.encrypted_key, certificates.authority)
    opened = PeerFiles(
        certificate=certificates.certificate,
        key=certificates.encrypted_key,
        authority=certificates.authority,
        key_password_file=certificates.password_file,
    )
    assert PeerCertificates(opened).of_follower()


def test_close_does_not_wait_for_a_master_that_hangs_in_the_handshake(
    tmp_path: Path, certificates: Certificates
) -> None:
    """Its machine accepts connections, and its process is frozen: a standby that is promoted ends the copy first."""
    tls = peer_certificates(certificates.client, None, certificates.authority)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        copy = follower(tmp_path / "b", listener.getsockname()[1], tls=tls, timeout=30.0)
        copy.start()
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(1), "the handshake has begun"
            began = time.monotonic()
            copy.close()
            assert time.monotonic() - began < 20.0
