"""`Broker`, one broker in memory, and `Cluster`, several on one store."""

import contextlib
import tempfile
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from pybroker.testing.disk import used_bytes
from pybroker.testing.launcher import ClusterError
from pybroker.testing.member import SCHEMES, ClusterResources, Member, Settings, options
from pybroker.testing.process import State, tail
from pybroker.testing.proxy import HOST, ListenerProxy

TIMEOUT_SECONDS = 30.0
"""The time limit of each step; it takes milliseconds on an idle machine."""

NAMES = "abcdefghijklmnopqrstuvwxyz"
"""The members' names."""

_CLUSTER_DEFAULTS: Settings = {"disk_reserve": "8mb", "journal_file_max": "8mb"}
"""A quarter of the broker's defaults, because the stores of many tests share a disk."""

Which = str | Member
"""A member, its name, `"master"` or `"standby"`."""

_open: "weakref.WeakSet[Broker | Cluster]" = weakref.WeakSet()


def open_logs() -> Iterator[tuple[str, str]]:
    """Yield name and log of each open broker, for the report of a failed test."""
    for each in list(_open):
        for member in (each,) if isinstance(each, Broker) else each.members:
            yield f"broker {member.name} ({member.condition})", tail(member.log)


class Broker(Member):
    """One broker with its store in memory, in a separate process.

    A context manager: on entry clients can connect, on exit it is killed.
    """

    def __init__(
        self, *, settings: Settings | None = None, config: Path | None = None, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        """Prepare.

        Args:
            settings: settings of `pybroker start`, such as `{"memory_limit": "8mb"}`.
            config: TOML file with more settings, such as policies.
            timeout_seconds: the time limit of each step.
        """
        super().__init__("memory", None, ["--store=memory:", "--name=memory"], {})
        self._options = options(settings or {}, config)
        self._timeout_seconds = timeout_seconds

    def __enter__(self) -> Self:
        self._resources = ClusterResources(self._options, self._timeout_seconds)
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        _open.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill the broker if it runs. Its log can still be read."""
        _open.discard(self)
        if self._resources is not None:
            with contextlib.closing(self._resources):
                super().close()
            self._resources = None


class Cluster:
    """Several brokers on one store: the first is master, the others wait to take over.

    A context manager: on entry the master serves and the others wait, on exit they are killed.

    Clients connect through a loopback proxy in this process, so that `partition` can interrupt them; its ports are open
    exactly as long as the broker's, and stay the same after a restart.

    Attributes:
        members: the brokers, by name.
        store: the directory they share.
    """

    def __init__(
        self,
        members: int = 2,
        *,
        store: Path | None = None,
        database: str | None = None,
        settings: Settings | None = None,
        config: Path | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        """Prepare.

        Args:
            members: the number of brokers.
            store: their directory, which is kept; by default a new one, which is removed at the end.
            database: URL of a PostgreSQL database in which they keep messages and lock, instead of a directory.
            settings: settings of `pybroker start`, such as `{"memory_limit": "8mb"}`.
            config: TOML file with more settings, such as policies.
            timeout_seconds: the time limit of each step.
        """
        if not 1 <= members <= len(NAMES):
            raise ValueError(f"members: 1 to {len(NAMES)}, not {members}")
        self._names = NAMES[:members]
        self._options = options({**_CLUSTER_DEFAULTS, **(settings or {})}, config)
        self._timeout_seconds = timeout_seconds
        self._given_store = store
        self._database = database
        self._held = contextlib.ExitStack()
        self._resources: ClusterResources | None = None
        self._mark = Path()
        self.members: tuple[Member, ...] = ()
        self.store = store or Path()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as held:
            directory = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="pybroker-"))).resolve()
            self._mark = directory / "disk-full"
            self.store = (self._given_store or directory / "store").resolve()
            self._resources = ClusterResources(
                self._options, self._timeout_seconds, (self.store, self._mark), directory
            )
            held.callback(self._resources.close)
            self.members = tuple(self._make(name, self._resources, held) for name in self._names)
            for member in self.members:
                member.start()
            self._held = held.pop_all()
        _open.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill all running members, and remove a temporary store. Logs can still be read."""
        _open.discard(self)
        self._resources = None
        self._held.close()

    # ------------------------------------------------------------ addresses

    @property
    def uri(self) -> str:
        """The failover URI of OpenWire clients: `failover:(tcp://127.0.0.1:…,tcp://127.0.0.1:…)`."""
        return f"failover:({','.join(member.uri for member in self.members)})"

    @property
    def stomp_uri(self) -> str:
        """The failover URI of STOMP clients."""
        return f"failover:({','.join(member.stomp_uri for member in self.members)})"

    @property
    def stomp_addresses(self) -> list[tuple[str, int]]:
        """Hosts and ports, for `stomp.Connection`."""
        return [member.stomp_address for member in self.members]

    # ------------------------------------------------------------ roles

    def wait_master(self) -> Member:
        """Wait for a member that serves, neither frozen nor partitioned, and return it.

        Raises:
            ClusterError: there was none in time.
        """
        return self._wait(lambda member: member.is_serving, "no member serves")

    def wait_standby(self) -> Member:
        """Wait for a member that waits for the lock, and return it.

        Raises:
            ClusterError: there was none in time.
        """
        return self._wait(lambda member: member.state is State.STANDBY, "no member waits for the lock")

    def member(self, which: Which) -> Member:
        """Return a member.

        Args:
            which: its name; `"master"` to wait for the one that has the lock and open listeners; `"standby"` to wait
                for the first that waits for the lock.

        Raises:
            ClusterError: there is none.
        """
        if isinstance(which, Member):
            return which
        if which == "master":
            return self._wait(lambda member: member.state is State.MASTER, "no member is master")
        if which == "standby":
            return self.wait_standby()
        for member in self.members:
            if member.name == which:
                return member
        raise ClusterError(f"no member is called {which!r}: there are {', '.join(self._names)}, master and standby")

    # ------------------------------------------------------------ faults

    def kill9(self, which: Which = "master") -> Member:
        """Kill a member with SIGKILL, and wait for its end. A standby takes over from a master: see `wait_master`."""
        return self._do(which, Member.kill9)

    def stop(self, which: Which = "master") -> Member:
        """Stop a member with SIGTERM, and wait for its end."""
        return self._do(which, Member.stop)

    def restart(self, which: Which) -> Member:
        """Start a member again, and wait until it serves or waits for the lock; one that still runs is killed first."""
        return self._do(which, Member.restart)

    def freeze(self, which: Which = "master") -> Member:
        """Freeze a member with SIGSTOP, like a long pause of its machine.

        A master keeps the lock, so no standby takes over before it is killed.
        """
        return self._do(which, Member.freeze)

    def thaw(self) -> None:
        """Resume every frozen member."""
        for member in self.members:
            member.thaw()

    def partition(self, which: Which = "master") -> Member:
        """Hold back all bytes between a member and its clients, until `heal`.

        The member still has its store, so a master stays master, and no standby takes over.
        """
        return self._do(which, Member.partition)

    def heal(self) -> None:
        """End every partition."""
        for member in self.members:
            member.heal()

    def fill_disk(self) -> None:
        """Make the brokers' writes to the store fail with ENOSPC. Other processes are not affected."""
        self._open_resources()
        scratch = self._mark.with_suffix(".new")
        scratch.write_text(str(used_bytes(self.store)))
        scratch.replace(self._mark)  # in one step: a broker never reads half a number

    def free_disk(self) -> None:
        """End `fill_disk`."""
        self._mark.unlink(missing_ok=True)

    # ------------------------------------------------------------ private

    def _make(self, name: str, resources: ClusterResources, held: contextlib.ExitStack) -> Member:
        proxies = {setting: ListenerProxy(resources.watcher.loop) for setting in SCHEMES}
        url = f"{SCHEMES['openwire']}://{HOST}:{proxies['openwire'].port}"
        store = self._database or self.store
        member = Member(name, resources, [f"--store={store}", f"--name={name}", f"--openwire-url={url}"], proxies)
        held.callback(resources.watcher.run, member.close_proxies)
        held.callback(member.close)
        return member

    def _do(self, which: Which, action: Callable[[Member], object]) -> Member:
        member = self.member(which)
        action(member)
        return member

    def _wait(self, predicate: Callable[[Member], bool], problem: str) -> Member:
        resources = self._open_resources()
        found = resources.watcher.wait(lambda: next(filter(predicate, self.members), None), resources.timeout_seconds)
        if found is not None:
            return found
        conditions = ", ".join(f"{member.name} is {member.condition}" for member in self.members)
        logs = "\n".join(member.log_excerpt() for member in self.members)
        raise ClusterError(f"{problem} within {resources.timeout_seconds:g} s: {conditions}\n{logs}")

    def _open_resources(self) -> ClusterResources:
        if self._resources is None:
            raise ClusterError("it is not open: use it in a `with` statement")
        return self._resources
