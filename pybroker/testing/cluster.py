"""`Broker`, one broker in memory, and `Cluster`, several on one store."""

import contextlib
import tempfile
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from pybroker.testing.disk import used_bytes
from pybroker.testing.member import SCHEMES, Member, Settings, Site, options
from pybroker.testing.process import ClusterError, State, tail
from pybroker.testing.proxy import HOST, ListenerProxy

TIMEOUT_SECONDS = 30.0
"""How long a broker may take for what takes it milliseconds, on a machine that is busy with other tests."""

NAMES = "abcdefghijklmnopqrstuvwxyz"
"""A member's name is its letter."""

_CLUSTER_DEFAULTS: Settings = {"disk_reserve": "8mb", "journal_file_max": "8mb"}
"""A quarter of the broker's own: the stores of many tests share a machine's disk."""

Which = str | Member
"""A member, or what `Cluster.member` finds one by."""

_open: "weakref.WeakSet[Broker | Cluster]" = weakref.WeakSet()


def open_logs() -> Iterator[tuple[str, str]]:
    """Yield name and log of each broker that this process has at the moment, for the report of a failed test."""
    for each in list(_open):
        for member in (each,) if isinstance(each, Broker) else each.members:
            yield f"broker {member.name} ({member.condition})", tail(member.log)


class Broker(Member):
    """One broker with its store in memory, in a process of its own.

    A context manager: on entry clients can connect, on exit it is killed.
    """

    def __init__(
        self, *, settings: Settings | None = None, config: Path | None = None, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        """Prepare.

        Args:
            settings: of `pybroker start`, such as `{"memory_limit": "8mb"}`.
            config: TOML file with more of them, policies for example.
            timeout_seconds: how long anything here may take.
        """
        super().__init__("memory", None, ["--store=memory:", "--name=memory"], {})
        self._options = options(settings or {}, config)
        self._timeout_seconds = timeout_seconds

    def __enter__(self) -> Self:
        self._site = Site(self._options, self._timeout_seconds)
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
        """Kill it if it runs. Its log can still be read."""
        _open.discard(self)
        if self._site is not None:
            with contextlib.closing(self._site):
                super().close()
            self._site = None


class Cluster:
    """Several brokers on one store: the first is master, the others wait to take over.

    A context manager: on entry the master serves and the others wait, on exit they are killed.

    Clients connect through a loopback proxy in this process, so that `partition` can cut them off; its ports are open
    exactly as long as the broker's own, and stay the same whatever happens to the broker.

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
            members: how many brokers.
            store: their directory, which is kept; by default a new one, which is removed at the end.
            database: URL of a PostgreSQL database in which they keep messages and lock, instead of a directory.
            settings: of `pybroker start`, such as `{"memory_limit": "8mb"}`.
            config: TOML file with more of them, policies for example.
            timeout_seconds: how long anything here may take.
        """
        if not 1 <= members <= len(NAMES):
            raise ValueError(f"members: 1 to {len(NAMES)}, not {members}")
        self._names = NAMES[:members]
        self._options = options({**_CLUSTER_DEFAULTS, **(settings or {})}, config)
        self._timeout_seconds = timeout_seconds
        self._given_store = store
        self._database = database
        self._held = contextlib.ExitStack()
        self._site: Site | None = None
        self._mark = Path()
        self.members: tuple[Member, ...] = ()
        self.store = store or Path()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as held:
            directory = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="pybroker-"))).resolve()
            self._mark = directory / "disk-full"
            self.store = (self._given_store or directory / "store").resolve()
            self._site = Site(self._options, self._timeout_seconds, (self.store, self._mark), directory)
            held.callback(self._site.close)
            self.members = tuple(self._make(name, self._site, held) for name in self._names)
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
        """Kill who runs, and remove a store that was made here. Logs can still be read."""
        _open.discard(self)
        self._site = None
        self._held.close()

    # ------------------------------------------------------------ where clients connect

    @property
    def uri(self) -> str:
        """The failover URI of OpenWire clients: `failover:(tcp://127.0.0.1:…,tcp://127.0.0.1:…)`."""
        return f"failover:({','.join(member.uri for member in self.members)})"

    @property
    def stomp_uri(self) -> str:
        """The same for STOMP clients that take a URI."""
        return f"failover:({','.join(member.stomp_uri for member in self.members)})"

    @property
    def stomp_addresses(self) -> list[tuple[str, int]]:
        """Hosts and ports as `stomp.Connection` takes them."""
        return [member.stomp_address for member in self.members]

    # ------------------------------------------------------------ who is what

    def wait_master(self) -> Member:
        """Return the member that serves, once one does: not a frozen one, nor one that is cut off.

        Raises:
            ClusterError: nobody did in time.
        """
        return self._wait(lambda member: member.is_serving, "no member serves")

    def wait_standby(self) -> Member:
        """Return the first member that waits for the lock, once one does.

        Raises:
            ClusterError: nobody did in time.
        """
        return self._wait(lambda member: member.state is State.STANDBY, "no member waits for the lock")

    def member(self, which: Which) -> Member:
        """Return a member.

        Args:
            which: its name, or `"master"` for the one that has the lock and its listeners open, waited for if there is
                none yet; or `"standby"` for the first that waits.

        Raises:
            ClusterError: there is none such.
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

    # ------------------------------------------------------------ what can happen

    def kill9(self, which: Which = "master") -> Member:
        """Kill a member with SIGKILL; it is gone on return. A standby takes over from a master: see `wait_master`."""
        return self._do(which, Member.kill9)

    def stop(self, which: Which = "master") -> Member:
        """End a member in order with SIGTERM; it is gone on return."""
        return self._do(which, Member.stop)

    def restart(self, which: Which) -> Member:
        """Start a member again; one that still runs is killed first. On return it serves, or waits for the lock."""
        return self._do(which, Member.restart)

    def freeze(self, which: Which = "master") -> Member:
        """Stop a member with SIGSTOP, as a long pause of its machine would.

        A master keeps the lock meanwhile, so nobody takes over before it is killed.
        """
        return self._do(which, Member.freeze)

    def thaw(self) -> None:
        """Let every frozen member go on."""
        for member in self.members:
            member.thaw()

    def partition(self, which: Which = "master") -> Member:
        """Cut a member off from its clients: nothing gets through either way, and nobody is told.

        It still has its store, so a master stays master and nobody takes over. What is under way arrives after `heal`.
        """
        return self._do(which, Member.cut)

    def heal(self) -> None:
        """End every partition."""
        for member in self.members:
            member.heal()

    def fill_disk(self) -> None:
        """Have no room left on the brokers' disk: what they write into the store fails with ENOSPC.

        The disk itself is as it was, and nobody else is affected.
        """
        self._open_site()
        scratch = self._mark.with_suffix(".new")
        scratch.write_text(str(used_bytes(self.store)))
        scratch.replace(self._mark)  # in one step: a broker never reads half a number

    def free_disk(self) -> None:
        """Have room again."""
        self._mark.unlink(missing_ok=True)

    # ------------------------------------------------------------ private

    def _make(self, name: str, site: Site, held: contextlib.ExitStack) -> Member:
        gates = {setting: ListenerProxy(site.watcher.loop) for setting in SCHEMES}
        url = f"{SCHEMES['openwire']}://{HOST}:{gates['openwire'].port}"
        store = self._database or self.store
        member = Member(name, site, [f"--store={store}", f"--name={name}", f"--openwire-url={url}"], gates)
        held.callback(site.watcher.run, member.close_gates)
        held.callback(member.close)
        return member

    def _do(self, which: Which, what: Callable[[Member], object]) -> Member:
        member = self.member(which)
        what(member)
        return member

    def _wait(self, predicate: Callable[[Member], bool], complaint: str) -> Member:
        site = self._open_site()
        found = site.watcher.wait(lambda: next(filter(predicate, self.members), None), site.timeout_seconds)
        if found is not None:
            return found
        conditions = ", ".join(f"{member.name} is {member.condition}" for member in self.members)
        logs = "\n".join(member.told() for member in self.members)
        raise ClusterError(f"{complaint} within {site.timeout_seconds:g} s: {conditions}\n{logs}")

    def _open_site(self) -> Site:
        if self._site is None:
            raise ClusterError("it is not open: use it in a `with` statement")
        return self._site
