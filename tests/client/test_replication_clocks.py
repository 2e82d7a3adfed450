"""The wall clocks of a replicated cluster's members are set by a day, forth and back, and nothing comes of it.

`PYBROKER_CLOCK_STEPS=20` sets a clock so often.

Source: specification of replication, section 14, check 18.
"""

import os
import time
from pathlib import Path

import pytest

from tests.client.replicated_load import SETTINGS, ReplicatedLoad
from tests.conftest import FAKETIME
from tests.etcd_cluster import EtcdCluster, own_etcd
from tests.integration.cluster import BrokerProcess
from tests.integration.replicated import LEASE
from tests.integration.replicated_register import ObservedCluster

__all__ = ["own_etcd"]

STEPS = int(os.environ.get("PYBROKER_CLOCK_STEPS", "4"))
DAY_SECONDS = 86_400

pytestmark = [
    pytest.mark.component("etcd"),
    pytest.mark.component("faketime"),
    pytest.mark.timeout(120 + 10 * STEPS),
]


class SteppingBroker(BrokerProcess):
    """A broker whose wall clock is what a file says; the monotonic ones are the machine's."""

    module = "pybroker.broker.app.cli"

    def __init__(self, store: str, *, clock: Path, name: str, port: int, extra: tuple[str, ...]) -> None:
        self.prefix = (
            "env",
            f"LD_PRELOAD={FAKETIME}",
            f"FAKETIME_TIMESTAMP_FILE={clock}",
            "FAKETIME_NO_CACHE=1",
            "FAKETIME_DONT_FAKE_MONOTONIC=1",
        )
        super().__init__(store, name=name, port=port, extra=extra)


class SteppedCluster(ObservedCluster):
    """Members whose clocks can be set."""

    def set_clock(self, name: str, seconds: int) -> None:
        """Set a member's clock to so many seconds after the right time."""
        clock = self._clock(name)
        later = clock.with_suffix(".new")
        later.write_text(f"{seconds:+d}\n")
        later.rename(clock)

    def launch(self, name: str, port: int, extra: tuple[str, ...]) -> BrokerProcess:
        self.set_clock(name, 0)
        return SteppingBroker(str(self.store(name)), clock=self._clock(name), name=name, port=port, extra=extra)

    def _clock(self, name: str) -> Path:
        return self.directory / f"{name}.clock"


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
