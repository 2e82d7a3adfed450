"""The replication stream over TLS: certificates of one authority on both sides."""

import asyncio
from pathlib import Path

import pytest
import uvloop

from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.replica.operations import Journal
from pybroker.transports.replica.follower import ReplicaFollower
from pybroker.transports.replica.peer_certificates import follower_context, master_context
from tests.replicas import MasterNode, assert_equal_stores, closed, follower, trace
from tests.unit.transports.certificates import Certificates


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_only_certificates_of_the_authority_are_followed(
    tmp_path: Path, certificates: Certificates, loop: object
) -> None:
    pems = certificates

    async def main() -> None:
        master = MasterNode(tmp_path / "a", tls=master_context(pems.both, None, pems.authority))
        await master.start()
        master.journals.begin(Journal.MESSAGES)
        master.journals.write(Journal.MESSAGES, trace("x" * 100_000))
        contexts = {
            "strange client": follower_context(pems.strange_client, None, pems.authority),
            "strange authority": follower_context(pems.client, None, pems.strange_authority),
        }
        for name, tls in contexts.items():
            copy = follower(tmp_path / name, master.port, tls=tls)
            copy.start()
            await _refused(copy)
            await closed(copy)
        plain = follower(tmp_path / "plain", master.port)
        plain.start()
        await _refused(plain)
        await closed(plain)
        assert master.events.log == []
        copy = follower(tmp_path / "b", master.port, tls=follower_context(pems.client, None, pems.authority))
        copy.start()
        await master.events.until_confirmed(master.journals.sequence)
        master.journals.write(Journal.MESSAGES, trace("live"))
        await master.events.until_confirmed(master.journals.sequence)
        await closed(copy)
        await master.close()
        assert_equal_stores(tmp_path / "a", tmp_path / "b")

    with asyncio.Runner(loop_factory=loop) as runner:  # type: ignore[arg-type]
        runner.run(main())


async def _refused(copy: ReplicaFollower) -> None:
    async with asyncio.timeout(30):
        while not copy.progress.refusal:  # noqa: ASYNC110 - it dials anew each time
            await asyncio.sleep(0)


def test_unusable_files_are_named(tmp_path: Path, certificates: Certificates) -> None:
    with pytest.raises(ConfigError, match="replicate_tls_certificate: "):
        master_context(tmp_path / "none", None, certificates.authority)
    with pytest.raises(ConfigError, match="replicate_tls_ca: "):
        follower_context(certificates.client, None, tmp_path / "none")
