"""The two machines of a pair that moves from ActiveMQ to pybroker, the commands of the page, and clients at work.

A machine is a directory with an ActiveMQ's installation in it; `systemctl` starts and stops processes, and what else
the page says is run by a shell. The paths of the page stand for those of the machine.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from getpass import getuser
from itertools import pairwise
from pathlib import Path

from pybroker.client.errors import Timeout
from pybroker.client.sync import Connection, connect
from tests.client.kills import PATIENCE_SECONDS, Ledger, Worker, consuming, stop, wait_for_the_rest, wait_until
from tests.conftest import JAR_DIRECTORY, JDBC_JARS
from tests.integration.cluster import free_port
from tests.integration.migration_settings import DATABASE, KAHADB, PASSWORD, SOURCE, USER, configuration
from tests.pace import in_time
from tests.pages import block
from tests.postgres_cluster import PASSWORD as DATABASE_PASSWORD
from tests.postgres_cluster import USER as DATABASE_USER
from tests.postgres_cluster import PostgresDatabase

PAGE = "docs/migrate-from-activemq.md"
SHARE, INSTALLATION, SETTINGS = "/mnt/shared/activemq", "/opt/activemq", "/etc/pybroker"
"""The paths that the page uses."""

_HOME = Path("/usr/share/activemq")
_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_LOG4J = """log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%p | %m%n
"""
_PAUSE_SECONDS = 0.01
"""Between two messages of a producer: the machine has brokers to start meanwhile."""
# A slave on a database waits for its master while it makes tables that are there: a row of its lock is in the way.
_IS_UP: Mapping[str, str] = {
    "activemq": r"now in slave mode|\"activemq_lock\" already exists|\) started",
    "pybroker": "listening on|waiting for the lock",
}
_PYTHON = f'pybroker() {{ {shlex.quote(sys.executable)} -m pybroker.broker.app.cli "$@"; }}\n'


class Unit:
    """A running service, and its log."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self.log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                command, cwd=log.parent, stdout=file, stderr=subprocess.STDOUT, env={**os.environ, **environment}
            )

    def wait_for(self, pattern: str) -> None:
        """Wait until its log has a line."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not re.search(pattern, self.log.read_text()):
            assert self.process.poll() is None, f"it ended:\n{self.log.read_text()}"
            assert time.monotonic() < deadline, f"it never logged {pattern!r}:\n{self.log.read_text()}"
            threading.Event().wait(0.01)

    def stop(self) -> None:
        """Stop it in order."""
        self.process.terminate()
        self.process.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        """Leave nothing running."""
        self.process.kill()
        self.process.wait()


class Machine:
    """One of the two.

    Args:
        name: of the machine.
        directory: its disk.
        share: the directory that both mount.
        configuration: the files of ActiveMQ's `conf`, by name, which both have.
        paths: what else of the page stands for something here.
        environment: more variables of all commands.
        extensions: a directory with more of Java's libraries for ActiveMQ.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        share: Path,
        configuration: Mapping[str, str],
        *,
        paths: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        extensions: Path | None = None,
    ) -> None:
        self.name, self.directory = name, directory
        self.openwire, self.stomp = free_port(), free_port()
        self._extensions = extensions
        self._units: dict[str, Unit] = {}
        self._count = 0
        self._paths = {
            SHARE: str(share),
            INSTALLATION: f"{directory}{INSTALLATION}",
            SETTINGS: f"{directory}{SETTINGS}",
            "/var/backups": f"{directory}/var/backups",
            "chown -R activemq:": f"chown -R {getuser()}:",
            "--user activemq": f"--user {getuser()}",
            **(paths or {}),
        }
        self._environment = {"PYBROKER_NAME": name, "PYBROKER_DISK_RESERVE": "0", **(environment or {})}
        self._properties = {"openwire.port": str(self.openwire), "stomp.port": str(self.stomp)}
        self._install(configuration, share)

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the page; returns its output and exit code."""
        words = shlex.split(line, comments=True)
        if words[0] == "systemctl":
            for each in line.split(" && "):
                _, *verb, unit = shlex.split(each)
                self._systemctl(verb, unit)
            return subprocess.CompletedProcess(words, 0, "", "")
        return subprocess.run(
            ["bash", "-c", _PYTHON + self.here(line)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            cwd=self.directory,
            env={**os.environ, **self._environment},
            check=False,
        )

    def wait_for(self, unit: str, pattern: str) -> None:
        """Wait until the log of a service has a line."""
        self._units[unit].wait_for(pattern)

    def kill(self, unit: str) -> None:
        """Kill -9: it stays a service that does not run, until `systemctl` stops it or starts another."""
        self._units[unit].close()

    def here(self, text: str) -> str:
        """Return a text of the page with the names that things have here."""
        for page, path in self._paths.items():
            text = text.replace(page, path)
        return text

    def close(self) -> None:
        """Leave nothing running."""
        for unit in self._units.values():
            unit.close()

    def _install(self, configuration: Mapping[str, str], share: Path) -> None:
        base = Path(self._paths[INSTALLATION])
        for each in (base / "conf", base / "bin", self.directory / "log", self.directory / "var" / "backups"):
            each.mkdir(parents=True)
        for name, text in {"log4j.properties": _LOG4J, **configuration}.items():
            (base / "conf" / name).write_text(text)
            (base / "conf" / name).chmod(0o600)
        options = " ".join(f"-D{name}={value}" for name, value in self._properties.items())
        (base / "bin" / "env").write_text(f'ACTIVEMQ_DATA="{share}"\nACTIVEMQ_OPTS="{options}"\n')
        self._data = share

    def _systemctl(self, verb: Sequence[str], unit: str) -> None:
        assert unit in _IS_UP, f"systemctl {unit}"
        if verb in (["stop"], ["disable", "--now"]):
            if unit in self._units:  # as systemd: one that does not run is stopped
                self._units.pop(unit).stop()
            return
        assert verb in (["start"], ["enable", "--now"]), verb
        assert not self._units, f"{self.name} runs {self._units.keys()}"
        self._count += 1
        log = self.directory / "log" / f"{unit}-{self._count}.log"
        command = self._activemq() if unit == "activemq" else self._pybroker()
        self._units[unit] = Unit(command, log, self._environment)
        self.wait_for(unit, _IS_UP[unit])

    def _activemq(self) -> list[str]:
        """Return what `bin/activemq console` runs."""
        base = Path(self._paths[INSTALLATION])
        properties = {
            "activemq.home": _HOME,
            "activemq.base": base,
            "activemq.conf": base / "conf",
            "activemq.data": self._data,
            "log4j.configuration": f"file:{base}/conf/log4j.properties",
            **self._properties,
        }
        command = ["java", *_JVM, *(f"-D{name}={value}" for name, value in properties.items())]
        command += ["-jar", str(_HOME / "bin" / "activemq.jar")]
        if self._extensions is not None:
            command += ["--extdir", str(self._extensions)]
        return [*command, "start", f"xbean:file:{base}/conf/activemq.xml"]

    def _pybroker(self) -> list[str]:
        """Return what the page's unit runs."""
        unit = block(PAGE, "ini", "ExecStart=")
        _program, *arguments = shlex.split(re.findall("^ExecStart=(.+)$", unit, re.MULTILINE)[-1])
        return [sys.executable, "-m", "pybroker.broker.app.cli", *map(self.here, arguments)]


def machines_on_a_share(directory: Path) -> dict[str, Machine]:
    """Return two machines that mount a directory."""
    share = directory / "share"
    share.mkdir()
    return {name: Machine(name, directory / name, share, configuration(KAHADB)) for name in "ab"}


def machines_on_postgresql(directory: Path, database: PostgresDatabase) -> dict[str, Machine]:
    """Return two machines whose store is in a database."""
    extensions, password = directory / "lib", directory / "pgpass"
    extensions.mkdir()
    for each in JDBC_JARS:
        (extensions / each).symlink_to(JAR_DIRECTORY / each)
    password.write_text(f"*:*:*:*:{DATABASE_PASSWORD}\n")
    password.chmod(0o600)
    port, name = database.cluster.port, database.name
    url = f"postgresql://{DATABASE_USER}@127.0.0.1:{port}/{name}"
    source = SOURCE.format(port=port, name=name, user=DATABASE_USER, password=DATABASE_PASSWORD)
    files = configuration(DATABASE, source)

    def machine(of: str) -> Machine:
        return Machine(
            of,
            directory / of,
            directory / of / "opt" / "activemq" / "data",
            files,
            paths={
                "postgresql://activemq@db.example/activemq": url,
                "postgresql://db.example:5432/activemq": f"postgresql://127.0.0.1:{port}/{name}",
            },
            environment={"PGPASSFILE": str(password)},
            extensions=extensions,
        )

    return {name: machine(name) for name in "ab"}


def follow(part: str, machines: Mapping[str, Machine]) -> None:
    """Run the block of the page that contains a part: each command, on the machine that the line above it names."""
    where: list[Machine] = []
    for line in block(PAGE, "sh", part).splitlines():
        if line.startswith("# on "):
            where = [machines[name] for name in re.findall(r"\b[ab]\b", line)]
            continue
        assert where, "the block names no machine"
        for machine in where:
            if line.startswith("scp "):
                source, (host, _, target) = shlex.split(line)[-2], shlex.split(line)[-1].partition(".example:")
                shutil.copy2(machine.here(source), machines[host].here(target))
                continue
            done = machine.run(line)
            assert done.returncode == 0, f"{line} on {machine.name}: {done.returncode}\n{done.stdout}{done.stderr}"


def compare(part: str, machine: Machine) -> None:
    """Require that the command of a block prints what the page shows, but for numbers and hosts."""
    first, *shown = block(PAGE, "console", part).splitlines()
    wanted = [_plain(machine.here(line)) for line in shown]
    found: list[str] = []

    def is_as_shown() -> bool:  # in the end: members write their entries after they log
        found[:] = map(_plain, machine.run(first.removeprefix("$ ")).stdout.splitlines())
        return found[: len(wanted)] == wanted

    wait_until(is_as_shown, lambda: "\n".join(["printed:", *found, "shown:", *wanted]))


def _plain(line: str) -> str:
    """Leave out what differs from run to run: hosts, numbers, and the blanks that align them."""
    line = re.sub(r"\bon [\w.-]+(?=,|$)", "on HOST", line)
    return re.sub(r" +", " ", re.sub(r"\d[\d,.:-]*", "0", line))


# ------------------------------------------------------------ clients


class Pulse:
    """When a producer's messages were confirmed."""

    def __init__(self) -> None:
        self.times = [time.monotonic()]

    def beat(self) -> None:
        self.times.append(time.monotonic())

    def longest(self, since: float) -> float:
        """Return the longest time without a confirmation since then, in seconds."""
        before = [each for each in self.times if each < since]
        times = [*before[-1:], *(each for each in self.times if each >= since)]
        return max((late - early for early, late in pairwise(times)), default=0.0)


class Load:
    """Clients that send and consume all the time, over OpenWire and STOMP, through the `failover:` URI of the pair."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self.ledger = Ledger()
        self.pulses = {"OpenWire": Pulse(), "STOMP": Pulse()}
        ports = {"OpenWire": ("tcp", "openwire"), "STOMP": ("stomp", "stomp")}
        self.news: list[str] = []
        self.jobs: list[str] = []
        self._jobs_done: set[str] = set()
        self.connections: dict[str, Connection] = {}
        self._producers: list[Worker] = []
        self._consumers: list[Worker] = []
        for name, pulse in self.pulses.items():
            scheme, attribute = ports[name]
            addresses = ",".join(f"{scheme}://127.0.0.1:{getattr(each, attribute)}" for each in machines)
            uri = f"failover:({addresses})?initialReconnectDelay=10&maxReconnectDelay=100"
            connection = connect(uri, user=USER, password=PASSWORD, client_id=name)
            self.connections[name] = connection
            self._producers.append(Worker(name, _producing(connection, name, self.ledger, pulse)))
            self._consumers.append(Worker(f"c-{name}", consuming(connection, name, "individual", self.ledger)))
        self.connections["OpenWire"].consumer("topic://NEWS", durable="desk").close()
        self._consumers.append(Worker("jobs", self._do_jobs))

    def go_on(self) -> None:
        """Wait until each producer has had something confirmed from now on."""
        now = time.monotonic()
        workers = [*self._producers, *self._consumers]
        wait_until(
            lambda: all(each.times[-1] > now for each in self.pulses.values()), lambda: "nothing is confirmed", workers
        )

    def publish(self, text: str) -> None:
        """Publish to a topic whose durable subscriber is away."""
        self.connections["OpenWire"].send("topic://NEWS", text, timeout=PATIENCE_SECONDS)
        self.news.append(text)

    def schedule(self, text: str, seconds: float) -> None:
        """Send a message that is delivered later."""
        properties = {"AMQ_SCHEDULED_DELAY": round(seconds * 1000)}
        self.connections["OpenWire"].send("JOBS", text, properties=properties, timeout=PATIENCE_SECONDS)
        self.jobs.append(text)

    @contextmanager
    def step(self, name: str, seconds: float, pause_seconds: float) -> Generator[None]:
        """Measure a step until clients work again. Both bounds are for a machine that has nothing else to do."""
        began = time.monotonic()
        yield
        took = time.monotonic() - began
        self.go_on()
        pause = max(each.longest(began) for each in self.pulses.values())
        print(f"{name}: {took:.1f} s; clients waited {pause:.2f} s at most")
        assert in_time(took, seconds), f"{name}: {took:.1f} s"
        assert in_time(pause, pause_seconds), f"{name}: clients waited {pause:.2f} s"

    def end(self) -> None:
        """Wait for everything that was confirmed, and require that duplicates are marked."""
        stop(self._producers)
        wait_for_the_rest(self.ledger, self._consumers)
        wait_until(lambda: self._jobs_done == set(self.jobs), lambda: f"{self._jobs_done} of {self.jobs}")
        stop(self._consumers)
        with self.connections["OpenWire"].consumer("topic://NEWS", durable="desk") as news:
            assert [news.receive(timeout=PATIENCE_SECONDS).body for _ in self.news] == self.news
        print(f"{len(self.ledger.accepted)} messages confirmed, none lost, {self.ledger.duplicates} came twice")
        assert not self.ledger.unflagged, self.ledger.stories()

    def close(self) -> None:
        """Leave no client behind, whatever has happened."""
        for worker in (*self._producers, *self._consumers):
            worker.stop()
        for connection in self.connections.values():
            connection.close()

    def _do_jobs(self, stopping: threading.Event) -> None:
        with self.connections["STOMP"].consumer("JOBS") as jobs:
            while not stopping.is_set():
                with suppress(Timeout):
                    self._jobs_done.add(str(jobs.receive(timeout=0.2).body))


def _producing(connection: Connection, name: str, ledger: Ledger, pulse: Pulse) -> Callable[[threading.Event], None]:
    def work(stopping: threading.Event) -> None:
        number = 0
        while not stopping.wait(_PAUSE_SECONDS):
            number += 1
            connection.send(name, json.dumps([name, number]), timeout=PATIENCE_SECONDS)
            ledger.accept((name, number))
            pulse.beat()

    return work
