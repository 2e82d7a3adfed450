"""Members of a replicated cluster for tests, each with a directory of its own."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from pybroker.broker.app.config import Config
from pybroker.broker.app.replica_wiring import make_register
from pybroker.broker.domain.replica.operations import Journal
from pybroker.locks.election.register import Register, RegisterUnavailable
from pybroker.store.replica.manifest_files import ManifestFiles
from tests.integration.cluster import BrokerProcess, free_port

LEASE = 1.0
PATIENCE_SECONDS = 60.0
READS_MAX = 20


class ReplicatedCluster:
    """Some members; a killed one can be started again.

    Attributes:
        members: the running processes by name.
    """

    def __init__(self, directory: Path, register: str, names: str = "ab", *extra: str) -> None:
        """Start all members, the first one first.

        Args:
            directory: for the stores.
            register: the URL of the election store.
            names: of the members, a character each.
            extra: more arguments for all.
        """
        self.directory = directory
        self._register = register
        self._extra = extra
        self._own: dict[str, tuple[str, ...]] = {}
        """The settings of members that were added."""
        self._registers: dict[str, str] = {}
        self._of_file: set[str] = set()
        """Members whose file of settings names the election store."""
        self._ports = {name: (free_port(), free_port(), free_port()) for name in names}
        self.members: dict[str, BrokerProcess] = {}
        for name in names:
            self.start(name)
            self.wait_in_sync(*self.members)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name, member in self.members.items():
            if not member.process.stderr.closed:  # type: ignore[union-attr]
                member.drain(0.0)
            print(f"-- {name}", *member.lines, sep="\n")  # shown where a test fails
            member.close()

    @property
    def uri(self) -> str:
        ports = [(self.host(name), openwire) for name, (_, openwire, _) in self._ports.items()]
        return f"failover:({','.join(f'tcp://{host}:{port}' for host, port in ports)})?maxReconnectDelay=100"

    def host(self, name: str) -> str:
        """Return the address that clients reach a member at."""
        return "127.0.0.1"

    def stream(self, name: str) -> str:
        """Return the host and port that other members reach a member at."""
        return f"127.0.0.1:{self._ports[name][2]}"

    def election(self, name: str) -> str:
        """Return the URL of the election store that a member is given."""
        return self._registers.get(name, self._register)

    def stomp_addresses(self) -> dict[str, tuple[str, int]]:
        """Return host and port of each member for STOMP."""
        return {name: (self.host(name), stomp) for name, (stomp, _, _) in self._ports.items()}

    def launch(self, name: str, port: int, extra: tuple[str, ...]) -> BrokerProcess:
        """Start the process of a member, whose port for STOMP this is."""
        return BrokerProcess(str(self.store(name)), name=name, port=port, extra=extra)

    def store(self, name: str) -> Path:
        return self.directory / name

    def start(self, name: str, *extra: str) -> BrokerProcess:
        stomp, openwire, replica = self._ports[name]
        arguments: tuple[str, ...] = (
            *("--openwire", str(openwire), "--replicate-port", str(replica)),
            *("--replicate-url", self.stream(name)),
        )
        if name not in self._of_file:
            arguments += ("--replicate", self.election(name))
        timing = ("--replicate-lease", f"{LEASE}s", "--replicate-timeout", "400ms")
        member = self.launch(name, stomp, (*arguments, *timing, *self._own.get(name, self._extra), *extra))
        self.members[name] = member
        return member

    def address(self, name: str) -> str:
        """Return the address of a member for the stream, as its standby names it."""
        return f"tcp://127.0.0.1:{self._ports[name][2]}"

    def add(
        self, name: str, *settings: str, is_alone: bool = False, register: str = "", has_file: bool = False
    ) -> BrokerProcess:
        """Start another member, whose settings differ from the others'.

        Args:
            name: of the member, a character.
            settings: arguments, also of later starts.
            is_alone: it has only these, and none of the settings for all.
            register: what it is given instead of the election store.
            has_file: its settings name that in a file.
        """
        self._registers[name] = register or self._register
        if has_file:
            self._of_file.add(name)
        self._ports[name] = free_port(), free_port(), free_port()
        self._own[name] = settings if is_alone else (*self._extra, *settings)
        return self.start(name)

    def kill(self, name: str) -> None:
        """kill -9."""
        member = self.members.pop(name)
        member.kill()
        member.close()

    def status(self, name: str) -> dict[str, Any]:
        """Return what a member's store tells."""
        command = [
            sys.executable,
            "-m",
            "pybroker.broker.app.cli",
            "status",
            "--json",
            "--store",
            str(self.store(name)),
        ]
        found: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, check=False).stdout)
        return found

    def report(self, name: str) -> dict[str, Any]:
        """Return the part of a member in the cluster, as it has published it; empty before the first time."""
        path = self.store(name) / "members" / f"{name}.json"
        for _ in range(READS_MAX):
            try:
                member: dict[str, Any] = json.loads(path.read_text(encoding="utf-8").rstrip("\0\n "))
            except FileNotFoundError:
                return {}
            except ValueError:  # it is empty, or was read while it was written
                continue
            return member | (member.get("replica") or {})
        return {}

    def master(self) -> str:
        """Wait until a member serves, and return its name."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            for name in list(self.members):
                if self.report(name).get("role") == "MASTER":
                    return name
            self._pause(deadline, "nobody serves")

    def wait_report(self, name: str, condition: Callable[[dict[str, Any]], bool]) -> None:
        """Wait until what a member has published fulfils a condition."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition(self.report(name)):
            self._pause(deadline, f"{self.report(name)}")

    def wait_problem(self, name: str, words: str) -> None:
        """Wait until `status` tells, with these words, what keeps a member from being in sync."""
        self.wait_report(name, lambda found: words in found.get("problem", ""))
        assert words in self.status(name)["members"][0]["replica"]["problem"]

    def wait_in_sync(self, *names: str) -> None:
        """Wait until the stores of these members are in sync, and no other."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not all(
            (found := self.report(name)).get("is_in_sync") and found["in_sync"] == len(names) for name in names
        ):
            self._pause(deadline, f"not in sync: {[self.report(name) for name in names]}")

    def wait_durable(self, name: str) -> None:
        """Wait until a renewal has told the register how far the journals of an idle master reach."""
        register = make_register(Config(replicate=self.election(name)))
        deadline = time.monotonic() + PATIENCE_SECONDS
        with contextlib.closing(register):
            while (recorded := self._recorded(register)) != (ends := self._ends(name)):
                self._pause(deadline, f"recorded are {recorded}, and {name} has {ends}")

    def _recorded(self, register: Register) -> dict[str, tuple[int, int]]:
        """Return the number of each journal's last file and its end by the register; empty if it does not answer."""
        try:
            record = register.read().record
        except RegisterUnavailable:
            return {}
        return {} if record is None else {journal: (*end,) for journal, end in record.durable.items()}

    def _ends(self, name: str) -> dict[str, tuple[int, int]]:
        """Return the same by a member's files."""
        found: dict[str, tuple[int, int]] = {}
        for (journal, number), content in sorted(self.contents(name).items()):
            found[journal.register_name] = number, len(content)
        return found

    def _pause(self, deadline: float, text: str) -> None:
        logs = {name: member.lines[-20:] for name, member in self.members.items()}
        assert time.monotonic() < deadline, f"{text}; {logs}"
        for member in self.members.values():
            member.drain(0.02)

    def contents(self, name: str) -> dict[tuple[Journal, int], bytes]:
        """Return the logical contents of a store's data files."""
        root = self.store(name)
        journals = {Journal.MESSAGES: root / "kahadb", Journal.SCHEDULER: root / "scheduler"}
        found = [each.entry for each in ManifestFiles(root, journals).read(sync=False)]
        paths = {each: journals[each.journal] / f"db-{each.file_id}.log" for each in found}
        return {(each.journal, each.file_id): path.read_bytes()[: each.length] for each, path in paths.items()}

    def wait_equal(self, *names: str) -> dict[tuple[Journal, int], bytes]:
        """Wait until the stores of idle members are equal, and return their contents."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while any(self.contents(name) != self.contents(names[0]) for name in names[1:]):
            self._pause(deadline, "the stores differ")
        return self.contents(names[0])
