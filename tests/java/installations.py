"""Brokers that can be killed: pybroker as a pair, ActiveMQ as one that is started again; with the same methods."""

import re
import threading
from pathlib import Path
from typing import Any, Protocol

from tests.integration.activemq_broker import ActiveMQProcess
from tests.integration.cluster import START_SECONDS, BrokerProcess, Pair, free_port
from tests.java.proxy import Proxy

RECONNECT = "initialReconnectDelay=10&maxReconnectDelay=50"


class Installation(Protocol):
    """Requests of a program about its brokers."""

    ports: list[int]
    """Ports of the OpenWire listeners."""

    def master_port(self) -> int:
        """Return the port on which OpenWire is served, once it is."""
        ...

    def kill(self) -> None:
        """Kill the master and return once another one serves."""
        ...

    def close(self) -> None: ...


class FollowedBroker(BrokerProcess):
    """A pybroker whose log is read all the time: a full pipe would stop it, and Java clients make it log much."""

    def __init__(self, store: str, *, name: str, port: int, extra: tuple[str, ...] = ()) -> None:
        super().__init__(store, name=name, port=port, extra=extra)
        self.follow()

    def follow(self) -> None:
        """Begin to read the log."""
        self._grown = threading.Condition()
        self._follower = threading.Thread(target=self._follow, daemon=True)
        self._follower.start()

    def wait_for(self, pattern: str, seconds: float = START_SECONDS) -> re.Match[str]:
        """Return the first match in the log, once there is one."""
        with self._grown:
            self._grown.wait_for(lambda: self._found(pattern) or not self._follower.is_alive(), seconds)
            match = self._found(pattern)
            assert match, f"{self.name} never logged {pattern!r}; its log:\n" + "\n".join(self.lines)
            return match

    def kill(self) -> None:
        """kill -9, and read the log to its end."""
        super().kill()
        self._follower.join()

    def _found(self, pattern: str) -> re.Match[str] | None:
        return next(filter(None, (re.search(pattern, line) for line in self.lines)), None)

    def _follow(self) -> None:
        while self._read(1.0) or self.process.poll() is None:
            with self._grown:
                self._grown.notify_all()


class PybrokerPair(Pair):
    """A master and a standby, each with an OpenWire listener."""

    def __init__(self, store: Path, *extra: str) -> None:
        self._openwire = {"a": free_port(), "b": free_port()}
        super().__init__(store, *extra)

    @property
    def openwire_ports(self) -> list[int]:
        return list(self._openwire.values())

    def openwire_of(self, node: BrokerProcess) -> int:
        return self._openwire[node.name]

    def _start(self, name: str) -> BrokerProcess:
        extra = (*self._extra, "--openwire", str(self._openwire[name]))
        return FollowedBroker(self.store, name=name, port=self._ports[name], extra=extra)


class Pybroker:
    """The pair as an installation."""

    def __init__(self, store: Path, *extra: str) -> None:
        self.pair = PybrokerPair(store, *extra)
        self.ports = self.pair.openwire_ports

    def master_port(self) -> int:
        return self.pair.openwire_of(self.pair.wait_for_master())

    def kill(self) -> None:
        standby, master = self.pair.wait_for_standby(), self.pair.wait_for_master()
        master.kill()
        standby.wait_for("listening on")
        self.pair.restart(master)

    def close(self) -> None:
        for node in self.pair.nodes.values():
            node.close()


class ActiveMQ:
    """One broker, started again after a kill."""

    def __init__(self, directory: Path, class_path: str) -> None:
        self.ports = [free_port()]
        self._directory = directory
        self._class_path = class_path
        self._broker = self._start()

    def master_port(self) -> int:
        return self._broker.openwire

    def kill(self) -> None:
        self._broker.close()
        self._broker = self._start()

    def close(self) -> None:
        self._broker.close()

    def _start(self) -> ActiveMQProcess:
        return ActiveMQProcess(self._class_path, self._directory, openwire=self.ports[0]).wait()


class Answers:
    """Runs the requests of programs: "kill", "master", "proxy", "mute", "cut"."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._proxy = Proxy(installation.master_port)

    @property
    def uri(self) -> str:
        addresses = ",".join(f"tcp://127.0.0.1:{port}" for port in self._installation.ports)
        return f"failover:({addresses})?{RECONNECT}"

    @property
    def master(self) -> str:
        return f"tcp://127.0.0.1:{self._installation.master_port()}"

    def __call__(self, check: str, question: str) -> Any:
        if question == "master":
            return self.master
        if question == "proxy":
            return f"failover:(tcp://127.0.0.1:{self._proxy.port})?{RECONNECT}"
        {"kill": self._installation.kill, "mute": self._proxy.mute, "cut": self._proxy.cut}[question]()
        return "done"

    def close(self) -> None:
        self._proxy.close()
        self._installation.close()
