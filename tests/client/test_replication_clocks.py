"""The wall clocks of a replicated cluster's members are set by a day, forth and back, and nothing comes of it.

`PYBROKER_CLOCK_STEPS=20` sets a clock so often.

Source: specification of replication, section 14, check 18.
"""

import os
import time
from pathlib import Path

import pytest

from tests.client.replicated_load import SETTINGS, ReplicatedLoad
from tests.etcd_cluster import EtcdCluster, own_etcd
from tests.integration.cluster import BrokerProcess
from tests.integration.replicated import LEASE
from tests.integration.replicated_register import ObservedCluster
from tests.moved_clock import MovedClock

__all__ = ["own_etcd"]

STEPS = int(os.environ.get("PYBROKER_CLOCK_STEPS", "4"))
DAY_SECONDS = 86_400

pytestmark = [
    pytest.mark.component("etcd"),
    pytest.mark.component("gcc"),
    pytest.mark.timeout(120 + 10 * STEPS),
]


class SteppingBroker(BrokerProcess):
    """A broker whose wall clock is what a file says; the monotonic ones are the machine's."""

    module = "pybroker.broker.app.cli"

    def __init__(self, store: str, *, clock: MovedClock, name: str, port: int, extra: tuple[str, ...]) -> None:
        self.prefix = ("env", *(f"{name}={value}" for name, value in clock.environment.items()))
        super().__init__(store, name=name, port=port, extra=extra)


class SteppedCluster(ObservedCluster):
    """Members whose clocks can be set."""

    def __init__(self, etcd: EtcdCluster, directory: Path, names: str, *extra: str) -> None:
        self._clocks = {name: MovedClock(directory / f"{name}.clock") for name in names}
        super().__init__(etcd, directory, names, *extra)

    def set_clock(self, name: str, seconds: int) -> None:
        """Set a member's clock to so many seconds after the right time."""
        self._clocks[name].move(seconds)

    def launch(self, name: str, port: int, extra: tuple[str, ...]) -> BrokerProcess:
        return SteppingBroker(str(self.store(name)), clock=self._clocks[name], name=name, port=port, extra=extra)


def test_clock_steps_of_a_day_have_no_effect(own_etcd: EtcdCluster, tmp_path: Path) -> None:
    with (
        SteppedCluster(own_etcd, tmp_path, "ab", *SETTINGS) as cluster,
        ReplicatedLoad(cluster, has_scheduled=False) as load,
    ):
        load.wait_received()
        epoch = cluster.record()["epoch"]
        for number in range(STEPS):
            name, sign = "ab"[number % 2], 1 - 2 * (number // 2 % 2)
            cluster.set_clock(name, sign * DAY_SECONDS)
            end = time.monotonic() + 2 * LEASE
            while time.monotonic() < end:
                load.wait_received(20)
            assert set(cluster.record()["insync"]) == {cluster.store_id(each) for each in "ab"}, cluster.describe()
        assert load.interruptions == 0, cluster.describe()
        assert cluster.record()["epoch"] == epoch, cluster.describe()
        logs = dict(cluster.members)
        load.finish("clock steps", STEPS)
        for member in logs.values():  # else the test would show nothing
            dates = {line.split()[0] for line in member.lines}
            assert len(dates) > 1, f"the clock of {member.name} was never set"
