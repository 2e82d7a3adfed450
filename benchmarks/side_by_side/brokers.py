"""The brokers to compare, each a process with an empty store, and a port for each protocol that is measured.

ActiveMQ runs as Debian's launcher runs it (`/usr/bin/activemq`, `/usr/share/activemq/activemq-options`): same jar, same
memory, same opened packages, and Debian's instance file with a STOMP connector added (`../java/activemq.xml`). pybroker
runs as `pybroker start` with its defaults. Both sync to disk before they answer a persistent send.

Where MQTT is measured, ActiveMQ has a connector for it, with the codec of Debian's libmqtt-client-java, and Debian's
mosquitto is measured, too. That one keeps messages in memory, and answers a publish before it is on disk.

Where AMQP is measured, the other broker is Debian's RabbitMQ. It accepts a durable message when it is on disk, or was
consumed before, as pybroker does.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.driver import PASSWORD, USER
from benchmarks.side_by_side.rows import Protocol

PYBROKER = "pybroker"
WITH_LOGINS = "with logins"
"""pybroker with users and rules."""
OBSERVED = "observed"
"""pybroker with management, statistics and every advisory of the policies."""
ACTIVEMQ = "activemq"
MOSQUITTO = "mosquitto"
"""Debian's; it speaks MQTT only, and is compared with nothing."""

MOSQUITTO_COMMAND = "/usr/sbin/mosquitto"

RABBITMQ = "rabbitmq"
"""Debian's, with its plug-in for AMQP 1.0: Debian's ActiveMQ has no AMQP."""
RABBITMQ_COMMAND = "/usr/lib/rabbitmq/bin/rabbitmq-server"

MQTT_JARS = ("mqtt-client.jar", "hawtbuf.jar", "hawtdispatch.jar", "hawtdispatch-transport.jar")
"""What ActiveMQ's MQTT connector needs besides, in Debian's libmqtt-client-java and its dependencies."""

_ADVISORIES = (
    "send_advisory_if_no_consumers", "advisory_for_slow_consumers", "advisory_for_discarding_messages",
    "advisory_for_fast_producers", "advisory_when_full", "advisory_for_delivery", "advisory_for_consumed",
)  # fmt: skip
"""Flags of a policy."""

ACTIVEMQ_HOME = Path("/usr/share/activemq")
ACTIVEMQ_OPTIONS = ("-Xms512M", "-Xmx512M", "-Dorg.apache.activemq.UseDedicatedTaskRunner=true")
"""Of Debian's `activemq-options`."""

CONFIGURATION = Path(__file__).parents[1] / "java" / "activemq.xml"

_OPENED = (
    "java.base/java.security", "java.base/java.net", "java.base/java.lang", "java.base/java.util",
    "java.naming/javax.naming.spi", "java.rmi/sun.rmi.transport.tcp", "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
)  # fmt: skip
"""Packages the launcher opens to ActiveMQ on Java 9 and later."""

_CONNECTORS_END = "</transportConnectors>"
_STORE = "<persistenceAdapter>"

_START_SECONDS = 60.0
_LOG_TAIL = 3_000
"""Characters of a broker's log that are shown when a run fails."""

_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_RESET_PEAK = "5"
"""For /proc/PID/clear_refs: forget the peak of resident memory (Linux, proc(5))."""


class Broker:
    """A running broker.

    Attributes:
        name: `pybroker`, `activemq`, `mosquitto`, `rabbitmq`, `with logins` or `observed`.
        ports: by protocol.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        ports: Mapping[Protocol, int],
        *,
        log: Path,
        environment: dict[str, str],
    ) -> None:
        """Start it; `wait_until_listening` returns once it serves."""
        self.name = name
        self.ports = ports
        self._log = log
        with log.open("wb") as stream:
            self._process = subprocess.Popen(command, stdout=stream, stderr=stream, env=environment)

    def __enter__(self) -> "Broker":
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._process.kill()
        self._process.wait()
        if error is not None:
            error.add_note(f"the log of {self.name} ends:\n{self._log.read_text()[-_LOG_TAIL:]}")

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    def wait_until_listening(self) -> None:
        """Wait until every port is open. Raises `RuntimeError` if it ends or takes too long."""
        deadline = time.monotonic() + _START_SECONDS
        closed = list(self.ports.values())
        while closed:
            if _is_open(closed[-1]):
                closed.pop()
            elif self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} does not serve")
            else:
                time.sleep(0.05)

    def cpu_seconds(self) -> float:
        """Return user and system time it has used so far, in steps of a clock tick (10 ms)."""
        return cpu_seconds(self._process.pid)

    def forget_peak(self) -> None:
        """Reset `peak_bytes`."""
        Path(f"/proc/{self._process.pid}/clear_refs").write_text(_RESET_PEAK)

    def peak_bytes(self) -> int:
        """Return the most memory it had resident since `forget_peak`."""
        match = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self._process.pid}/status").read_text())
        assert match is not None, "Linux shows it for every process"
        return int(match[1]) << 10

    def stop(self) -> None:
        """Request its end, and wait for it."""
        self._process.terminate()
        self._process.wait(_START_SECONDS)

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)


class BridgedBrokers:
    """Two brokers of a kind, of which the near one bridges to the far one. The figures are those of both.

    Attributes:
        name: that of either.
        ports: of the near one, by protocol.
        remote_ports: of the far one.
    """

    def __init__(self, near: Broker, far: Broker) -> None:
        """Take over two brokers that have been started."""
        self.name = near.name
        self.ports = near.ports
        self.remote_ports = far.ports
        self._both = near, far

    def __enter__(self) -> "BridgedBrokers":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        for each in self._both:
            each.__exit__(kind, error, trace)

    @property
    def pid(self) -> int:
        """Of the near one's process."""
        return self._both[0].pid

    def wait_until_listening(self) -> None:
        """Wait until every port is open. Raises `RuntimeError` if one ends or takes too long."""
        for each in self._both:
            each.wait_until_listening()

    def cpu_seconds(self) -> float:
        """Return user and system time of both so far."""
        return sum(each.cpu_seconds() for each in self._both)

    def forget_peak(self) -> None:
        """Reset `peak_bytes`."""
        for each in self._both:
            each.forget_peak()

    def peak_bytes(self) -> int:
        """Return the sum of their peaks since `forget_peak`."""
        return sum(each.peak_bytes() for each in self._both)

    def send_signal(self, number: signal.Signals) -> None:
        """Send the near one a signal."""
        self._both[0].send_signal(number)


def cpu_seconds(pid: int) -> float:
    """Return user and system time of a process, all its threads, in steps of a clock tick (10 ms)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS


def activemq_version() -> str:
    """Return the version in the installed broker's jar."""
    with zipfile.ZipFile(ACTIVEMQ_HOME / "lib" / "activemq-broker.jar") as jar:
        manifest = jar.read("META-INF/MANIFEST.MF").decode()
    return manifest.partition("Implementation-Version: ")[2].splitlines()[0]


def start_activemq(
    directory: Path,
    *,
    file: Path = CONFIGURATION,
    options: Sequence[str] = ACTIVEMQ_OPTIONS,
    ports: Mapping[Protocol, int] | None = None,
    protocol: Protocol = Protocol.OPENWIRE,
    remote: Broker | None = None,
    is_duplex: bool = False,
) -> Broker:
    """Start a stock ActiveMQ with its data in a directory: an empty one, or where one has run before.

    Args:
        directory: for data and log.
        file: its activemq.xml, whose properties `openwire.port` and `stomp.port` are the ports.
        options: of the JVM.
        ports: by protocol; by default any that are free.
        protocol: what is measured; MQTT has a connector only then.
        remote: the broker to bridge to.
        is_duplex: that bridge carries messages both ways.
    """
    ports = ports or _free_ports(Protocol.OPENWIRE, Protocol.STOMP, protocol)
    configuration, data = directory / "conf", directory / "data"
    configuration.mkdir(parents=True, exist_ok=True)
    data.mkdir(exist_ok=True)
    settings, jars = file.read_text(), configuration / "jars"
    if remote is not None:
        duplex = str(is_duplex).lower()
        connector = f'<networkConnector name="bench" duplex="{duplex}" uri="{_bridge_uri(remote)}"/>'
        settings = settings.replace(_STORE, f"<networkConnectors>{connector}</networkConnectors>{_STORE}")
    if protocol is Protocol.MQTT:
        settings = settings.replace(_CONNECTORS_END, f"{_mqtt_connector(ports[protocol])}{_CONNECTORS_END}")
        jars.mkdir(exist_ok=True)
        for name in MQTT_JARS:
            shutil.copyfile(Path("/usr/share/java") / name, jars / name)
    (configuration / "activemq.xml").write_text(settings)
    properties = {
        "activemq.classpath": f"{configuration}:",
        "activemq.home": ACTIVEMQ_HOME,
        "activemq.base": directory,
        "activemq.conf": configuration,
        "activemq.data": data,
        "openwire.port": ports[Protocol.OPENWIRE],
        "stomp.port": ports[Protocol.STOMP],
    }
    command = ["java", *options, "--add-reads=java.xml=java.logging"]
    command += [f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED]
    command += [f"-D{name}={value}" for name, value in properties.items()]
    command += ["-jar", str(ACTIVEMQ_HOME / "bin" / "activemq.jar")]
    command += ["start", *(["--extdir", str(jars)] if protocol is Protocol.MQTT else [])]
    command += [f"xbean:file:{configuration / 'activemq.xml'}"]
    return Broker(ACTIVEMQ, command, ports, log=directory / "log", environment=dict(os.environ))


def start_pybroker(
    directory: Path,
    *protocols: Protocol,
    name: str = PYBROKER,
    python: str = sys.executable,
    module: Sequence[str] = ("pybroker.broker.app.cli",),
    prefix: Sequence[str] = (),
    extra: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
    remote: Broker | None = None,
    is_duplex: bool = False,
) -> Broker:
    """Start pybroker on an empty store, with the protocols that are measured; with OpenWire there is STOMP, too.

    Args:
        directory: for store and log; must exist.
        protocols: what is measured.
        name: what the figures call it.
        python: the interpreter.
        module: what runs the command line interface, with its own arguments.
        prefix: a command that runs the interpreter.
        extra: further arguments of `pybroker start`.
        variables: what its environment has besides.
        remote: the broker to bridge to.
        is_duplex: that bridge carries messages both ways.
    """
    ports = _free_ports(*protocols, *((Protocol.STOMP,) if Protocol.OPENWIRE in protocols else ()))
    command = [*prefix, python, "-m", *module, "start", "--store", str(directory / "store"), "--name", "bench"]
    for each in Protocol:
        command += [f"--{each.value}", str(ports.get(each, "off"))]
    if remote is not None:
        network = directory / "network.toml"
        duplex = str(is_duplex).lower()
        network.write_text(f'[[network]]\nname = "bench"\nduplex = {duplex}\nuri = "{_bridge_uri(remote)}"\n')
        command += ["--config", str(network)]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYBROKER_")}
    environment |= variables or {}
    return Broker(name, [*command, *extra], ports, log=directory / "log", environment=environment)


def start_mosquitto(directory: Path) -> Broker:
    """Start Debian's mosquitto with its data in a directory, which must exist.

    It persists as Debian configures it: it writes everything to a file every half an hour. By default it would drop
    what is more than 1,000 messages ahead of a subscriber, and send 20 that are not acknowledged, ActiveMQ 100.
    """
    ports = _free_ports(Protocol.MQTT)
    file = directory / "mosquitto.conf"
    file.write_text(
        f"listener {ports[Protocol.MQTT]} 127.0.0.1\nallow_anonymous true\npersistence true\n"
        f"persistence_location {directory}/\nmax_queued_messages 0\nmax_inflight_messages 100\n"
    )
    command = [MOSQUITTO_COMMAND, "-c", str(file)]
    return Broker(MOSQUITTO, command, ports, log=directory / "log", environment=dict(os.environ))


class RabbitMq(Broker):
    """A running RabbitMQ, and the port mapper that its Erlang starts beside it."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        super().__exit__(kind, error, trace)
        subprocess.run(["epmd", "-kill"], check=False, stdout=subprocess.DEVNULL)  # it refuses if another node is left


def start_rabbitmq(directory: Path) -> Broker:
    """Start Debian's RabbitMQ with its data in a directory, which must exist, as root or its own user."""
    ports = _free_ports(Protocol.AMQP)
    nodes = _free_ports(Protocol.OPENWIRE)[Protocol.OPENWIRE]  # the port for other nodes of its cluster
    (directory / "rabbitmq.conf").write_text(
        f"listeners.tcp.default = 127.0.0.1:{ports[Protocol.AMQP]}\ndefault_user = {USER}\ndefault_pass = {PASSWORD}\n"
    )
    plugins = directory / "enabled_plugins"
    plugins.write_text("[rabbitmq_amqp1_0].\n")
    variables = {
        "HOME": directory,
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"bench{nodes}@localhost",
        "RABBITMQ_MNESIA_BASE": directory / "data",
        "RABBITMQ_LOG_BASE": directory / "logs",
        "RABBITMQ_CONFIG_FILE": directory / "rabbitmq",
        "RABBITMQ_CONF_ENV_FILE": directory / "none",
        "RABBITMQ_ENABLED_PLUGINS_FILE": plugins,
        "RABBITMQ_PID_FILE": directory / "pid",
        "RABBITMQ_DIST_PORT": nodes,
        "ERL_CRASH_DUMP": directory / "crash",
        "RUNNING_UNDER_SYSTEMD": "true",  # no shell stays in front of it
    }
    environment = dict(os.environ) | {name: str(value) for name, value in variables.items()}
    return RabbitMq(RABBITMQ, [RABBITMQ_COMMAND], ports, log=directory / "log", environment=environment)


def observed_arguments(directory: Path) -> list[str]:
    """Write the settings for everything that observes messages into a directory; return the arguments for them."""
    flags = "".join(f"{flag} = true\n" for flag in _ADVISORIES)
    policies = "".join(f'[[policies]]\n{kind} = ">"\n{flags}' for kind in ("queue", "topic"))
    settings = directory / "observed.toml"
    settings.write_text(f'management = "127.0.0.1:0"\nstatistics = true\n{policies}')
    return ["--config", str(settings)]


def _bridge_uri(remote: Broker) -> str:
    return f"static:(tcp://127.0.0.1:{remote.ports[Protocol.OPENWIRE]})"


def _mqtt_connector(port: int) -> str:
    return f'<transportConnector name="mqtt" uri="mqtt://127.0.0.1:{port}"/>'


def _free_ports(*protocols: Protocol) -> dict[Protocol, int]:
    """Return ports no one listens on at the moment."""
    with ExitStack() as stack:
        sockets = {protocol: stack.enter_context(socket.socket()) for protocol in protocols}
        for each in sockets.values():
            each.bind(("127.0.0.1", 0))
        return {protocol: each.getsockname()[1] for protocol, each in sockets.items()}


def _is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
