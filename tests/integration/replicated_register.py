"""A replicated cluster whose register a test reads by other code than what is tested, also while members are frozen."""

import json
import threading
import time
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pybroker.locks.election.etcd import PREFIX
from tests.etcd_cluster import EtcdCluster, encoded
from tests.integration.cluster import START_SECONDS
from tests.integration.replicated import ReplicatedCluster
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
        """Return the register."""
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
        member.drain(0.0)
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
            assert time.monotonic() < deadline, self.describe()
            threading.Event().wait(0.02)

    def describe(self) -> str:
        """Return the register and all logs, for a failure."""
        lines = [json.dumps(self.record()), "--- ended", *self.logs]
        for name, member in self.members.items():
            member.drain(0.0)
            lines += [f"--- {name} (exit {member.process.poll()})", *member.lines]
        return "\n".join(lines)
