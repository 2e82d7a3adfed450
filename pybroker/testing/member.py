"""`Member`, one broker: its state, its addresses, and its faults."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pybroker.testing.launcher import ClusterError, fork_server
from pybroker.testing.process import BrokerProcess, State, Watcher, log_action, tail
from pybroker.testing.proxy import HOST, ListenerProxy

Settings = Mapping[str, str | int | float | bool]
"""Settings by the names in `docs/settings.md`."""

SCHEMES = {"stomp": "stomp", "openwire": "tcp"}
"""The scheme of the listener's URL, by the setting of its port."""

_OWN_SETTINGS = frozenset({*SCHEMES, "store", "name", "bind", "openwire_url", "openwire_brokers"})
"""Settings that the cluster sets, and tests may not."""

_LOG_LEVELS = ("debug", "info")
"""The levels at which a broker logs that it listens."""


def options(settings: Settings, config: Path | None = None) -> list[str]:
    """Return settings, and a TOML file with more, as arguments of `pybroker start`.

    Raises:
        ValueError: a test may not set one. The broker refuses unknown ones.
    """
    if taken := sorted(_OWN_SETTINGS & settings.keys()):
        raise ValueError(f"{', '.join(taken)}: chosen by the cluster, see its uri and members")
    if "replicate" in settings:
        raise ValueError(
            "replicate: the members of a Cluster share one store; docs/testing.md, A replicated cluster, has a fixture"
        )
    if settings.get("log_level", "info") not in _LOG_LEVELS:
        raise ValueError("log_level: a cluster reads the state of its members from their logs at `info`")
    arguments = [] if config is None else [f"--config={config.resolve()}"]  # absolute: it may start elsewhere
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            arguments.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            arguments.append(f"--{flag}={value}")
    return arguments


class ClusterResources:
    """The resources that the brokers of one cluster share: fork server, watcher, and simulated disk."""

    def __init__(
        self,
        arguments: Sequence[str],
        timeout_seconds: float,
        disk: tuple[Path, Path] | None = None,
        scratch: Path | None = None,
    ) -> None:
        """Acquire the resources, which `close` releases.

        Args:
            arguments: the arguments of `pybroker start` for every broker.
            timeout_seconds: the time limit of each step.
            disk: directory of the store, and the marker file of a full disk.
            scratch: a directory that is removed even if this process is killed.
        """
        self._scratch = scratch
        self.timeout_seconds = timeout_seconds
        self._arguments = ["start", *arguments]
        self._disk = disk
        self._held = contextlib.ExitStack()
        self._fork_server = self._held.enter_context(fork_server())
        self.watcher = Watcher()
        self._held.callback(self.watcher.close)

    def spawn(
        self, log: list[str], arguments: Sequence[str], on_change: Callable[[BrokerProcess, State], None]
    ) -> BrokerProcess:
        """Start a broker's process.

        Raises:
            ClusterError: no process can be started.
        """
        process = BrokerProcess(self.watcher, log, on_change)
        process.start(self._fork_server, [*self._arguments, *arguments], self._disk, self._scratch)
        return process

    def close(self) -> None:
        """Release fork server and thread, after the brokers have ended and the proxies were closed."""
        self._held.close()


class Member:
    """One broker.

    Attributes:
        name: its name in status and logs.
    """

    def __init__(
        self,
        name: str,
        resources: ClusterResources | None,
        arguments: Sequence[str],
        proxies: Mapping[str, ListenerProxy],
    ) -> None:
        """Create a member; called by `Broker` and `Cluster` only."""
        self.name = name
        self._resources = resources
        self._arguments = arguments
        self._proxies = proxies
        self._ports = {setting: proxy.port for setting, proxy in proxies.items()}
        self._log: list[str] = []
        self._process: BrokerProcess | None = None
        self._is_partitioned = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}, {self.condition}>"

    @property
    def state(self) -> State:
        """The present state, read from its log."""
        return self._process.state if self._process else State.GONE

    @property
    def is_frozen(self) -> bool:
        """True from `freeze` to `thaw`."""
        return self._process is not None and self._process.is_frozen

    @property
    def is_serving(self) -> bool:
        """True for a master that is neither frozen nor partitioned."""
        return self.state is State.MASTER and not self.is_frozen and not self._is_partitioned

    @property
    def condition(self) -> str:
        """The state and the present faults, as text."""
        faults = [*(["frozen"] * self.is_frozen), *(["partitioned from its clients"] * self._is_partitioned)]
        return ", ".join([self.state.value, *faults])

    @property
    def pid(self) -> int:
        """The process id of the last process; 0 before the first."""
        return self._process.pid if self._process else 0

    @property
    def exit_code(self) -> int | None:
        """The exit code of the last process; negative for a signal; None while it runs."""
        return self._process.exit_code if self._process else None

    @property
    def stomp_port(self) -> int:
        """The port of STOMP clients, on 127.0.0.1."""
        return self._ports["stomp"]

    @property
    def openwire_port(self) -> int:
        """The port of OpenWire clients, on 127.0.0.1."""
        return self._ports["openwire"]

    @property
    def stomp_address(self) -> tuple[str, int]:
        """Host and port, for stomp.py."""
        return HOST, self.stomp_port

    @property
    def uri(self) -> str:
        """The URI of OpenWire clients."""
        return f"tcp://{HOST}:{self.openwire_port}"

    @property
    def stomp_uri(self) -> str:
        """The URI of STOMP clients."""
        return f"stomp://{HOST}:{self.stomp_port}"

    @property
    def log(self) -> list[str]:
        """The log of its processes, with the faults that were injected."""
        return list(self._log)

    # ------------------------------------------------------------ faults

    def kill9(self) -> None:
        """Kill it with SIGKILL, and wait for its end."""
        self._running().kill9(self._open_resources().timeout_seconds)

    def stop(self) -> int:
        """Stop it with SIGTERM, and return its exit code."""
        return self._running().stop(self._open_resources().timeout_seconds)

    def freeze(self) -> None:
        """Freeze it with SIGSTOP, like a long pause of its machine. It keeps its connections, ports and lock."""
        self._running().freeze()

    def thaw(self) -> None:
        """Resume it; no effect if it is not frozen."""
        if self.is_frozen:
            self._running().thaw()

    def start(self) -> None:
        """Start it on its former ports, and wait until it serves or waits for the lock.

        Raises:
            ClusterError: it runs, or ended instead, or did neither in time.
        """
        resources = self._open_resources()
        if self.state is not State.GONE:
            raise ClusterError(f"{self.name} is running")
        if self._process is not None:
            self._process.close()
        process = resources.spawn(self._log, [*self._arguments, *self._port_arguments()], self._follow)
        self._process = process
        began = (State.MASTER, State.STANDBY, State.GONE)
        if not resources.watcher.wait(lambda: process.state in began, resources.timeout_seconds):
            raise ClusterError(
                f"{self.name} did not start within {resources.timeout_seconds:g} s; {self.log_excerpt()}"
            )
        if process.state is State.GONE:
            raise ClusterError(f"{self.name} ended with exit code {process.exit_code}; {self.log_excerpt()}")
        if not self._proxies:
            self._ports = {setting: process.ports[scheme] for setting, scheme in SCHEMES.items()}

    def restart(self) -> None:
        """Start it again on the same ports; if it still runs, it is killed first."""
        if self.state is not State.GONE:
            self.kill9()
        self.start()

    def close(self) -> None:
        """Kill it if it runs, and release its process."""
        if self.state is not State.GONE:
            self.kill9()
        if self._process is not None:
            self._process.close()

    def log_excerpt(self) -> str:
        """Return the end of the log, for an error's message."""
        return f"the log of {self.name}:\n{tail(self._log)}"

    # ------------------------------------------------------------ proxies

    def partition(self) -> None:
        """Hold back all bytes between it and its clients."""
        log_action(self._log, "partitioned from its clients")
        self._is_partitioned = True
        self._for_proxies(ListenerProxy.partition)

    def heal(self) -> None:
        """End a partition; no effect without one."""
        if self._is_partitioned:
            log_action(self._log, "its clients can reach it again")
            self._is_partitioned = False
            self._for_proxies(ListenerProxy.heal)

    async def close_proxies(self) -> None:
        """Release the ports. In the watcher's thread."""
        await asyncio.gather(*(proxy.close() for proxy in self._proxies.values()))

    # ------------------------------------------------------------ private

    def _open_resources(self) -> ClusterResources:
        if self._resources is None:
            raise ClusterError("it is not open: use it in a `with` statement")
        return self._resources

    def _for_proxies(self, act: Callable[[ListenerProxy], None]) -> None:
        for proxy in self._proxies.values():
            self._open_resources().watcher.call(act, proxy)

    def _running(self) -> BrokerProcess:
        if self._process is None or self.state is State.GONE:
            raise ClusterError(f"{self.name} is not running")
        return self._process

    def _port_arguments(self) -> list[str]:
        """Return the arguments for ports: any free ones behind proxies, otherwise the former ones after a restart."""
        ports = {} if self._proxies else self._ports
        return [f"--{setting}={ports.get(setting, 0)}" for setting in SCHEMES]

    def _follow(self, process: BrokerProcess, state: State) -> None:
        """Open the proxies exactly as long as the broker listens. In the watcher's thread."""
        for setting, proxy in self._proxies.items():
            if state is State.MASTER:
                proxy.open(process.ports[SCHEMES[setting]])
            else:
                proxy.shut()
