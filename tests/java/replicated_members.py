# mypy: disable-error-code="union-attr"
"""Replicated members for Java programs: each has a directory of its own, and ports for OpenWire and management."""

from click.testing import CliRunner

from pybroker.broker.app.cli import commands
from tests.integration.cluster import START_SECONDS, BrokerProcess
from tests.integration.replicated_register import ObservedCluster
from tests.java.installations import FollowedBroker

SETTINGS = (
    *("--journal-file-max", "1mb", "--journal-batch-max", "256kb", "--cleanup-interval", "300ms"),
    *("--management", "127.0.0.1:0"),
)


class FollowedMember(FollowedBroker):
    """A member whose log a thread of its own reads, so that no other one may."""

    def drain(self, seconds: float) -> None:
        """Leave the log to its thread."""
        self._follower.join(seconds)

    def join(self, seconds: float = START_SECONDS) -> int:
        """Wait for the end, and return the exit code."""
        code = self.process.wait(timeout=seconds)
        self._follower.join()
        self.process.stderr.close()
        return code


class FollowedCluster(ObservedCluster):
    """Members whose logs are read all the time."""

    def launch(self, name: str, port: int, extra: tuple[str, ...]) -> BrokerProcess:
        return FollowedMember(str(self.store(name)), name=name, port=port, extra=extra)

    @property
    def openwire_ports(self) -> list[int]:
        return [openwire for _, openwire, _ in self._ports.values()]

    def openwire_of(self, name: str) -> int:
        return self._ports[name][1]

    def is_serving(self, name: str) -> bool:
        """Return True if the last role that a member has logged is that of a master with open ports."""
        return name in self.members and super().is_serving(name)

    def kill_master(self) -> str:
        """Kill the master once another member can take over, start it again when that serves, and return who serves."""
        self.wait_recorded(*self._ports)
        killed = self.wait_serving()
        self.kill_together(killed)
        serving = self.wait_serving(*(name for name in self._ports if name != killed))
        self.start(killed)
        return serving

    def switch_over(self) -> str:
        """Have the master hand over, and return who serves."""
        self.wait_recorded(*self._ports)
        former = self.wait_serving()
        chosen = next(name for name in self._ports if name != former)
        urls = [each.wait_for(r"management at (http://127.0.0.1:\d+)")[1] for each in self.members.values()]
        arguments = ("switchover", "--to", chosen, "--yes", "--url", ",".join(urls))
        found = CliRunner().invoke(commands, arguments)
        assert found.exit_code == 0, f"{found.output}\n{self.describe()}"
        return self.wait_serving(chosen)
