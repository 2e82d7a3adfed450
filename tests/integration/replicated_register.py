"""A replicated cluster whose register a test reads by other code than what is tested, also while members are frozen."""

import json
import threading
import time
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pybroker.locks.election.etcd import PREFIX
from pybroker.locks.election.kubernetes_lease import ANNOTATION
from tests.etcd_cluster import EtcdCluster, encoded
from tests.integration.cluster import START_SECONDS
from tests.integration.replicated import ReplicatedCluster
from tests.kubernetes_cluster import KubernetesCluster
from tests.replicas import logical

NAME = "orders"


class ObservedCluster(ReplicatedCluster):
    """Members, and their register in an etcd that no other test uses.

    Attributes:
        logs: the lines of processes that have ended.
    """

    def __init__(self, etcd: EtcdCluster, directory: Path, names: str = "ab", *extra: str) -> None:
        """Start all members, the first one first; see `ReplicatedCluster`."""
        self._etcd = etcd
        self.logs: list[str] = []
        super().__init__(directory, etcd.url(NAME), names, *extra)

    def kill_together(self, *names: str) -> None:
        """kill -9, all of them at once."""
        for name in names:
            self.members[name].process.kill()
        for name in names:
            member = self.members.pop(name)
            member.join()
            self.logs += member.lines

    def record(self) -> dict[str, Any]:
        """Return the register; waits for an etcd that has no leader for the moment."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                return self._record()
            except OSError:
                if time.monotonic() > deadline:
                    raise

    def _record(self) -> dict[str, Any]:
        found = self._etcd.call("/v3/kv/range", {"key": encoded(PREFIX + NAME)})
        record: dict[str, Any] = json.loads(b64decode(found["kvs"][0]["value"]))
        return record

    def recorded_master(self) -> str:
        """Return the name of the master by the register; empty when it has released the cluster."""
        record = self.record()
        return str(record["master"]["name"]) if record["state"] == "serving" else ""

    def store_id(self, name: str) -> str:
        """Return the id of a member's store."""
        return str(json.loads((self.store(name) / "replica" / "store.json").read_bytes())["store"])

    def wait_serving(self, *names: str) -> str:
        """Wait until one of these members is the master by the register and by its own word; return its name."""
        chosen = names or tuple(self._ports)
        self.wait(lambda: (name := self.recorded_master()) in chosen and self.is_serving(name))
        return self.recorded_master()

    def is_serving(self, name: str) -> bool:
        """Return True if the last role that a member has logged is that of a master with open ports."""
        if (member := self.members.get(name)) is None:
            return False
        self.drain()
        words = ("master: clients are served", "standby", "lost the lock")
        roles = [line for line in member.lines if any(each in line for each in words)]
        return bool(roles) and words[0] in roles[-1]

    def wait_recorded(self, *names: str) -> None:
        """Wait until the stores of these members, and no others, are in sync by the register."""
        self.wait(lambda: set(self.record()["insync"]) == {self.store_id(name) for name in names})

    def wait_logically_equal(self, one: str, other: str) -> None:
        """Wait until two stores that no client changes any more are logically equal."""

        def are_equal() -> bool:
            try:
                return logical(self.store(one), may_be_torn=True) == logical(self.store(other), may_be_torn=True)
            except FileNotFoundError:  # removed meanwhile
                return False

        self.wait(are_equal)

    def wait(self, condition: Callable[[], bool], seconds: float = START_SECONDS) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + seconds
        while not condition():
            self.drain()
            assert time.monotonic() < deadline, self.describe()
            threading.Event().wait(0.02)

    def drain(self) -> None:
        """Read what all logs have: a full pipe would stop a broker."""
        for member in self.members.values():
            member.drain(0.0)

    def describe(self) -> str:
        """Return the register and all logs, for a failure."""
        try:
            register = json.dumps(self._record())
        except OSError as error:
            register = f"the register is not there: {error}"
        lines = [register, "--- ended", *self.logs]
        self.drain()
        for name, member in self.members.items():
            lines += [f"--- {name} (exit {member.process.poll()})", *member.lines]
        return "\n".join(lines)


class LeaseCluster(ObservedCluster):
    """Members whose register is a Lease of Kubernetes."""

    def __init__(self, api: KubernetesCluster, directory: Path, names: str = "ab", *extra: str) -> None:
        """Start all members, the first one first; see `ReplicatedCluster`."""
        self._api = api
        self._lease = api.new_name()
        self.logs = []
        ReplicatedCluster.__init__(self, directory, f"kubernetes://{self._lease}", names, *extra)

    def _record(self) -> dict[str, Any]:
        record: dict[str, Any] = json.loads(self._api.get(self._lease)["metadata"]["annotations"][ANNOTATION])
        return record
