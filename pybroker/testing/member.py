"""`Member`: one broker, what it is, where its clients connect, and what can be done to it."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pybroker.testing.launcher import NurseryFailed, nursery
from pybroker.testing.process import BrokerProcess, ClusterError, State, Watcher, note, tail
from pybroker.testing.proxy import HOST, ListenerProxy

Settings = Mapping[str, str | int | float | bool]
"""Values by the names that `docs/settings.md` has."""

SCHEMES = {"stomp": "stomp", "openwire": "tcp"}
"""Per setting that is a listener's port: the scheme of its URL."""

_OWN_SETTINGS = frozenset({*SCHEMES, "store", "name", "bind", "openwire_url", "openwire_brokers"})
"""What follows from where a broker under test is, and is nobody's to choose."""

_LOG_LEVELS = ("debug", "info")
"""At the others a broker does not say that it listens."""


def options(settings: Settings, config: Path | None = None) -> list[str]:
    """Return settings, and a TOML file with more, as `pybroker start` takes them.

    Raises:
        ValueError: one is not for a test to choose. Unknown ones are the broker's to refuse.
    """
    if taken := sorted(_OWN_SETTINGS & settings.keys()):
        raise ValueError(f"{', '.join(taken)}: chosen by the cluster, see its uri and members")
    if settings.get("log_level", "info") not in _LOG_LEVELS:
        raise ValueError("log_level: the log at `info` is how a cluster knows what its members do")
    arguments = [] if config is None else [f"--config={config.resolve()}"]  # it may start elsewhere
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            arguments.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            arguments.append(f"--{flag}={value}")
    return arguments


class Site:
    """What the brokers of one installation share: nursery, watcher, and what is wrong with their disk."""

    def __init__(
        self,
        arguments: Sequence[str],
        timeout_seconds: float,
        disk: tuple[Path, Path] | None = None,
        scratch: Path | None = None,
    ) -> None:
        """Take what is needed to start brokers; `close` gives it back.

        Args:
            arguments: of `pybroker start`, for every broker.
            timeout_seconds: how long anything here may take.
            disk: directory of the store, and the file that says that its disk is full.
            scratch: a directory that is removed also when this process is killed.
        """
        self._scratch = scratch
        self.timeout_seconds = timeout_seconds
        self._arguments = ["start", *arguments]
        self._disk = disk
        self._held = contextlib.ExitStack()
        self._nursery = self._held.enter_context(nursery())
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
        try:
            process.start(self._nursery, [*self._arguments, *arguments], self._disk, self._scratch)
        except NurseryFailed as error:
            raise ClusterError(str(error)) from error
        return process

    def close(self) -> None:
        """Give back nursery and thread. The brokers are gone by now, and the gates closed."""
        self._held.close()


class Member:
    """One broker.

    Attributes:
        name: in status and logs.
    """

    def __init__(
        self, name: str, site: Site | None, arguments: Sequence[str], gates: Mapping[str, ListenerProxy]
    ) -> None:
        """Prepare; `Broker` and `Cluster` make their members themselves."""
        self.name = name
        self._site: Site | None = site
        self._arguments = arguments
        self._gates = gates
        self._ports = {setting: gate.port for setting, gate in gates.items()}
        self._log: list[str] = []
        self._process: BrokerProcess | None = None
        self._is_cut_off = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}, {self.condition}>"

    @property
    def state(self) -> State:
        """What it is at the moment, as its log says."""
        return self._process.state if self._process else State.GONE

    @property
    def is_frozen(self) -> bool:
        """True from `freeze` to `thaw`."""
        return self._process is not None and self._process.is_frozen

    @property
    def is_serving(self) -> bool:
        """True of a master whose clients can reach it: not frozen, and not cut off."""
        return self.state is State.MASTER and not self.is_frozen and not self._is_cut_off

    @property
    def condition(self) -> str:
        """State and troubles in words."""
        troubles = [*(["frozen"] * self.is_frozen), *(["cut off from its clients"] * self._is_cut_off)]
        return ", ".join([self.state.value, *troubles])

    @property
    def pid(self) -> int:
        """The process id of the last process; 0 before the first."""
        return self._process.pid if self._process else 0

    @property
    def exit_code(self) -> int | None:
        """Of the last process, once it has ended; negative for the signal that killed it."""
        return self._process.exit_code if self._process else None

    @property
    def stomp_port(self) -> int:
        """Where STOMP clients connect, on 127.0.0.1."""
        return self._ports["stomp"]

    @property
    def openwire_port(self) -> int:
        """Where OpenWire clients connect, on 127.0.0.1."""
        return self._ports["openwire"]

    @property
    def stomp_address(self) -> tuple[str, int]:
        """Host and port, as stomp.py takes them."""
        return HOST, self.stomp_port

    @property
    def uri(self) -> str:
        """The URI of OpenWire clients."""
        return f"tcp://{HOST}:{self.openwire_port}"

    @property
    def stomp_uri(self) -> str:
        """The URI of STOMP clients that take one."""
        return f"stomp://{HOST}:{self.stomp_port}"

    @property
    def log(self) -> list[str]:
        """The lines its processes have logged, and what was done to them."""
        return list(self._log)

    # ------------------------------------------------------------ what can happen to it

    def kill9(self) -> None:
        """Kill it with SIGKILL; it is gone on return."""
        self._running().kill9(self._at().timeout_seconds)

    def stop(self) -> int:
        """End it in order with SIGTERM, and return its exit code."""
        return self._running().stop(self._at().timeout_seconds)

    def freeze(self) -> None:
        """Stop it with SIGSTOP, as a long pause of its machine would. It keeps its connections, ports and lock."""
        self._running().freeze()

    def thaw(self) -> None:
        """Let it go on; nothing happens to one that is not frozen."""
        if self.is_frozen:
            self._running().thaw()

    def start(self) -> None:
        """Start it again after its end, on the same ports. On return it serves, or waits for the lock.

        Raises:
            ClusterError: it runs, or ended instead, or did neither in time.
        """
        site = self._at()
        if self.state is not State.GONE:
            raise ClusterError(f"{self.name} is running")
        if self._process is not None:
            self._process.close()
        process = site.spawn(self._log, [*self._arguments, *self._port_arguments()], self._follow)
        self._process = process
        began = (State.MASTER, State.STANDBY, State.GONE)
        if not site.watcher.wait(lambda: process.state in began, site.timeout_seconds):
            raise ClusterError(f"{self.name} did not start within {site.timeout_seconds:g} s; {self.told()}")
        if process.state is State.GONE:
            raise ClusterError(f"{self.name} ended with exit code {process.exit_code}; {self.told()}")
        if not self._gates:
            self._ports = {setting: process.ports[scheme] for setting, scheme in SCHEMES.items()}

    def restart(self) -> None:
        """Start it again, on the same ports; one that still runs is killed first."""
        if self.state is not State.GONE:
            self.kill9()
        self.start()

    def close(self) -> None:
        """Kill it if it runs, and forget its process."""
        if self.state is not State.GONE:
            self.kill9()
        if self._process is not None:
            self._process.close()

    def told(self) -> str:
        """Return the end of the log, to be added to an error's message."""
        return f"the log of {self.name}:\n{tail(self._log)}"

    # ------------------------------------------------------------ its connections, where it has gates

    def cut(self) -> None:
        """Let nothing through between it and its clients."""
        note(self._log, "cut off from its clients")
        self._is_cut_off = True
        self._at_gates(ListenerProxy.cut)

    def heal(self) -> None:
        """Let everything through again; nothing happens to one that is not cut off."""
        if self._is_cut_off:
            note(self._log, "its clients can reach it again")
            self._is_cut_off = False
            self._at_gates(ListenerProxy.heal)

    async def close_gates(self) -> None:
        """Give the ports back. In the watcher's thread."""
        await asyncio.gather(*(gate.close() for gate in self._gates.values()))

    # ------------------------------------------------------------ private

    def _at(self) -> Site:
        if self._site is None:
            raise ClusterError("it is not open: use it in a `with` statement")
        return self._site

    def _at_gates(self, act: Callable[[ListenerProxy], None]) -> None:
        for gate in self._gates.values():
            self._at().watcher.call(act, gate)

    def _running(self) -> BrokerProcess:
        if self._process is None or self.state is State.GONE:
            raise ClusterError(f"{self.name} is not running")
        return self._process

    def _port_arguments(self) -> list[str]:
        """A broker behind gates takes any ports; another one any at first, and the same again later."""
        ports = {} if self._gates else self._ports
        return [f"--{setting}={ports.get(setting, 0)}" for setting in SCHEMES]

    def _follow(self, process: BrokerProcess, state: State) -> None:
        """Have the gates open exactly as long as the broker listens. In the watcher's thread."""
        for setting, gate in self._gates.items():
            if state is State.MASTER:
                gate.open(process.ports[SCHEMES[setting]])
            else:
                gate.shut()
