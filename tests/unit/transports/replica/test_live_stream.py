"""The replication stream over loopback: a master's operations, and a follower's directory."""

import asyncio
from pathlib import Path

from pybroker.broker.domain.replica.operations import Journal
from tests.replicas import MasterNode, assert_equal_stores, closed, follower


def test_live_operations_reach_the_follower(tmp_path: Path) -> None:
    async def main() -> None:
        master = MasterNode(tmp_path / "a")
        await master.start()
        copy = follower(tmp_path / "b", master.port)
        copy.start()
        await master.events.until(lambda: master.events.joined_count == 1)
        writer = master.journals
        first = writer.begin(Journal.MESSAGES)
        for number in range(50):
            writer.write(Journal.MESSAGES, b"m%d" % number, b"n" * number)
        writer.begin(Journal.SCHEDULER)
        writer.write(Journal.SCHEDULER, b"job")
        second = writer.begin(Journal.MESSAGES)
        writer.write(Journal.MESSAGES, b"ack")
        writer.replace(Journal.MESSAGES, first, b"small")
        third = writer.begin(Journal.MESSAGES)
        writer.write(Journal.MESSAGES, b"last")
        writer.remove(Journal.MESSAGES, second)
        assert third == 3
        await master.events.until_confirmed(writer.sequence)
        await closed(copy)
        await master.close()
        assert_equal_stores(tmp_path / "a", tmp_path / "b")

    asyncio.run(main())
