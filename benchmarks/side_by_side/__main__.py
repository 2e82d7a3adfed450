"""pybroker beside a stock ActiveMQ 5.17: the same clients, machine and file system, turn about.

Rows of MQTT have Debian's mosquitto as a third broker, if it is installed, whose figures are compared with nothing.
Rows of AMQP have Debian's RabbitMQ in place of ActiveMQ, which has no AMQP there; without it there is pybroker alone.

Run from the root of the checkout: `python -m benchmarks.side_by_side [--quick] [--rows KEY,…] [--json FILE]`.

For each row both brokers are started on empty stores and stay up; they are measured alternately (pybroker, ActiveMQ,
pybroker, …), so that what else happens on the machine hits both alike, and while one is measured the other is idle. The
first repetition of each is preceded by enough messages to warm the Java machine's compiler, the others by a tenth. The
medians give the ratios; the spread is that of neighbouring runs. CPU is the broker's user and system time over the
measured part, until its clients have closed; peak memory is its resident set's within the measured part.

pybroker is measured as its wheels are built, the message path compiled (`benchmarks.compiled`), or with `--pure` as it
is in the checkout.

A full run writes `benchmarks/results/DATE-side_by_side.json`. `--profile KEY` shows where pybroker spends a row, and
`--instructions` counts what it executes for a message.

With `--logins` pybroker is measured beside pybroker with users and 100 rules instead, under the same clients; with
`--observed` beside pybroker with management, statistics and every advisory. `--before DIRECTORY` takes the one without
from a directory with an earlier version of the package.
"""

import argparse
import json
import os
import pstats
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from benchmarks import compiled, report
from benchmarks.accounts import security_arguments
from benchmarks.driver import PASSWORD, USER
from benchmarks.side_by_side import brokers, verdict
from benchmarks.side_by_side.amqp import AmqpClient
from benchmarks.side_by_side.brokers import (
    ACTIVEMQ,
    MOSQUITTO,
    MOSQUITTO_COMMAND,
    OBSERVED,
    PYBROKER,
    RABBITMQ,
    RABBITMQ_COMMAND,
    WITH_LOGINS,
    BridgedBrokers,
    Broker,
)
from benchmarks.side_by_side.instructions import SCALE, Callgrind
from benchmarks.side_by_side.mqtt import MqttClient
from benchmarks.side_by_side.openwire import JAVA_OPTIONS, JavaClient
from benchmarks.side_by_side.rows import QUICK_FACTOR, QUICK_ROWS, Protocol, Row, chosen
from benchmarks.side_by_side.stomp import StompClient, ceiling
from benchmarks.side_by_side.verdict import MEBIBYTE, Run

RESULTS = Path(__file__).parents[1] / "results"
REPETITIONS = 5
LATER_WARM_SHARE = 0.1
PROFILE_LINES = 40
_PROFILE_SECONDS = 30.0

ADDITIONS: dict[str, Callable[[Path], list[str]]] = {
    WITH_LOGINS: lambda directory: security_arguments(directory, {USER: PASSWORD}),
    OBSERVED: brokers.observed_arguments,
}
"""Arguments of `pybroker start` for what is measured beside pybroker without it."""

_BUILD_FACTS = """
import json, platform, sysconfig
print(json.dumps({
    "python": f"{platform.python_implementation()} {platform.python_version()} ({platform.python_compiler()})",
    "configured with": sysconfig.get_config_var("CONFIG_ARGS"),
    "compiled with": sysconfig.get_config_var("PY_CFLAGS"),
}))
"""


def main() -> None:
    """Measure, print and write."""
    command_line = _command_line()
    options = command_line.parse_args()
    keys = [key for key in options.rows.split(",") if key] or ([*QUICK_ROWS] if options.quick else [])
    try:
        rows = chosen([options.profile] if options.profile else keys, QUICK_FACTOR if options.quick else options.scale)
    except ValueError as error:
        command_line.error(str(error))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # and stop the brokers on the way
    with tempfile.TemporaryDirectory(dir=options.directory, prefix="side-by-side-") as folder, ExitStack() as stack:
        bench = Bench(Path(folder), options, stack)
        if options.profile:
            bench.profile(rows[0])
            return
        if options.instructions:
            made = report.Report(options)
            counted: list[report.Row] = []
            for row in rows:
                counted.append(bench.instructions(row))
                print(counted[-1], file=sys.stderr, flush=True)
            made.table("Instructions", counted)
            made.finish()
            return
        document = _measure_all(bench, rows, options)
    file = options.json
    if file is None and not (options.quick or options.rows or options.only):
        kind = f"{options.addition.split()[-1]}-" if options.addition else ""
        file = RESULTS / f"{datetime.now(UTC):%Y-%m-%d}-{kind}side_by_side.json"
    if file is not None:
        file.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        print(f"\nwritten to {file}")


def _command_line() -> argparse.ArgumentParser:
    made = report.parser(__doc__)
    made.add_argument("--rows", default="", metavar="KEY,…", help="measure these rows only; empty for all")
    made.add_argument(
        "--only", choices=(PYBROKER, ACTIVEMQ, MOSQUITTO, RABBITMQ), help="measure one broker, for no ratios"
    )
    additions = made.add_mutually_exclusive_group()
    for name, text in ((WITH_LOGINS, "logins and rules"), (OBSERVED, "management, statistics and advisories")):
        additions.add_argument(
            f"--{name.split()[-1]}",
            dest="addition",
            action="store_const",
            const=name,
            help=f"compare pybroker with {text}, not ActiveMQ, with pybroker",
        )
    made.add_argument("--before", metavar="DIRECTORY", help="the pybroker without the addition, if it is another one")
    made.add_argument("--repeat", type=int, default=REPETITIONS, metavar="N", help="repetitions; 1 with --quick")
    made.add_argument("--scale", type=float, default=1.0, metavar="F", help="multiplies all counts of messages")
    made.add_argument("--profile", metavar="KEY", help="profile pybroker in a row instead of comparing")
    made.add_argument("--instructions", action="store_true", help="count pybroker's instructions for a message instead")
    made.add_argument("--pure", action="store_true", help="measure pybroker without its compiled modules")
    made.add_argument("--python", help="an interpreter, to measure the pybroker that is installed there")
    made.add_argument("--pybroker", default="", metavar="ARGUMENTS", help="further arguments of `pybroker start`")
    return made


class Bench:
    """Brokers and clients of one run, and what happens to them."""

    def __init__(self, directory: Path, options: argparse.Namespace, stack: ExitStack) -> None:
        self._directory = directory
        self._python: str = options.python or sys.executable
        is_compiled = not (options.python or options.pure or options.profile)
        self._variables = compiled.environment(compiled.unpacked()) if is_compiled else {}
        self._before = compiled.environment(Path(options.before).resolve()) if options.before else self._variables
        self._extra: list[str] = shlex.split(options.pybroker)
        self._stack = stack
        self._java: JavaClient | None = None
        self._store_count = 0
        self.names: Sequence[str] = (PYBROKER, options.addition or ACTIVEMQ)
        if options.only:
            self.names = (options.only,)
        self.repetitions: int = 1 if options.quick else options.repeat

    def measure(self, row: Row) -> dict[str, list[Run]]:
        """Return the runs of a row by broker, made alternately."""
        runs: dict[str, list[Run]] = {name: [] for name in self._names_of(row)}
        with ExitStack() as stack:
            started = [stack.enter_context(self._broker(name, row)) for name in self._names_of(row)]
            for broker in started:
                broker.wait_until_listening()
            for repetition in range(self.repetitions):
                warm = row.warm if repetition == 0 else row.scaled(LATER_WARM_SHARE).warm
                for broker in started:
                    runs[broker.name].append(self._run(replace(row, warm=warm), broker))
        return runs

    def _names_of(self, row: Row) -> Sequence[str]:
        """Return the brokers that are measured with a row."""
        if row.protocol is Protocol.AMQP and ACTIVEMQ in self.names and len(self.names) > 1:
            return [PYBROKER, RABBITMQ] if Path(RABBITMQ_COMMAND).exists() else [PYBROKER]
        is_third = row.protocol is Protocol.MQTT and ACTIVEMQ in self.names and Path(MOSQUITTO_COMMAND).exists()
        return [*self.names, MOSQUITTO] if is_third and len(self.names) > 1 else self.names

    def profile(self, row: Row) -> None:
        """Print where the event loop of pybroker spends the measured part of a row."""
        file = self._directory / "profile"
        module = ["benchmarks.side_by_side.profiled", str(file)]
        with self._broker(PYBROKER, row, module) as broker:
            broker.wait_until_listening()
            client = self._client(row)
            _prepare(client, row, broker)
            broker.send_signal(signal.SIGRTMIN)
            client.run()
            broker.send_signal(signal.SIGRTMAX)
            _wait_for(file)
            client.finish()
        pstats.Stats(str(file)).sort_stats("tottime").print_stats(PROFILE_LINES)

    def instructions(self, row: Row) -> report.Row:
        """Count the instructions of the measured part of a row, with fewer messages."""
        row = row.scaled(SCALE)
        counts = {name: self._instructions(row, name) for name in self.names if name != ACTIVEMQ}
        line: dict[str, report.Cell] = {"row": row.key, "messages": row.count}
        line["instructions for a message"] = counts[PYBROKER]
        return line | (verdict.instructions(counts) if len(counts) > 1 else {})

    def _instructions(self, row: Row, name: str) -> int:
        callgrind = Callgrind(self._directory / f"{row.key}-{name.replace(' ', '-')}.callgrind")
        with self._broker(name, row, prefix=callgrind.prefix) as broker:
            broker.wait_until_listening()
            client = self._client(row)
            _prepare(client, row, broker)
            callgrind.begin(broker.pid)
            client.run()
            total = callgrind.end(broker.pid)
            client.finish()
        return total // row.count

    @contextmanager
    def _broker(
        self,
        name: str,
        row: Row,
        module: Sequence[str] = ("pybroker.broker.app.cli",),
        prefix: Sequence[str] = (),
    ) -> Generator[Broker | BridgedBrokers]:
        """A broker on an empty store, which goes with it; or two of a kind with a bridge, each on its own."""
        with tempfile.TemporaryDirectory(dir=self._directory, prefix=f"{name}-") as folder, ExitStack() as stack:
            if row.bridged:
                (Path(folder) / "far").mkdir()
                far = stack.enter_context(self._started(name, row, Path(folder) / "far"))
                near = self._started(name, row, Path(folder), module, prefix, far)
                yield stack.enter_context(BridgedBrokers(near, far))
            else:
                yield stack.enter_context(self._started(name, row, Path(folder), module, prefix))

    def _started(
        self,
        name: str,
        row: Row,
        directory: Path,
        module: Sequence[str] = ("pybroker.broker.app.cli",),
        prefix: Sequence[str] = (),
        remote: Broker | None = None,
    ) -> Broker:
        if name == ACTIVEMQ:
            return brokers.start_activemq(directory, protocol=row.protocol, remote=remote, is_duplex=row.duplex)
        if name == MOSQUITTO:
            return brokers.start_mosquitto(directory)
        if name == RABBITMQ:
            return brokers.start_rabbitmq(directory)
        addition = ADDITIONS[name](directory) if name in ADDITIONS else []
        return brokers.start_pybroker(
            directory,
            row.protocol,
            name=name,
            python=self._python,
            module=module,
            prefix=prefix,
            extra=[*self._extra, *addition],
            variables=self._before if name == PYBROKER else self._variables,
            remote=remote,
            is_duplex=row.duplex,
        )

    def _client(self, row: Row) -> JavaClient | StompClient | MqttClient | AmqpClient:
        """The client that speaks the row's protocol; the Java one is started when it is needed first."""
        if row.protocol is Protocol.STOMP:
            return StompClient()
        if row.protocol is Protocol.MQTT:
            return MqttClient()
        if row.protocol is Protocol.AMQP:
            return AmqpClient()
        if self._java is None:
            directory = self._directory / "client"
            directory.mkdir()
            self._java = self._stack.enter_context(JavaClient(directory))
        return self._java

    def _run(self, row: Row, broker: Broker | BridgedBrokers) -> Run:
        client = self._client(row)
        _prepare(client, row, broker)
        broker.forget_peak()
        cpu_before, client_cpu_before = broker.cpu_seconds(), brokers.cpu_seconds(client.pid)
        timing = client.run()
        cpu_after, client_cpu_after = broker.cpu_seconds(), brokers.cpu_seconds(client.pid)
        peak = broker.peak_bytes()
        client.finish()
        return Run(
            messages_per_second=row.count / timing.seconds,
            p50_ms=timing.p50_ms,
            p99_ms=timing.p99_ms,
            cpu_seconds_per_1000=(cpu_after - cpu_before) / row.count * 1000,
            client_cpu_seconds_per_1000=(client_cpu_after - client_cpu_before) / row.count * 1000,
            peak_mib=peak / MEBIBYTE,
        )


def _prepare(
    client: JavaClient | StompClient | MqttClient | AmqpClient, row: Row, broker: Broker | BridgedBrokers
) -> None:
    """Connect a client, whose consumers are at the far broker of two."""
    if isinstance(broker, BridgedBrokers):
        assert isinstance(client, JavaClient), "bridges are measured with OpenWire"
        client.prepare(row, broker.ports[row.protocol], broker.remote_ports[row.protocol])
    else:
        client.prepare(row, broker.ports[row.protocol])


def _measure_all(bench: Bench, rows: Sequence[Row], options: argparse.Namespace) -> dict[str, object]:
    """Measure and print row by row, then all together; return what goes into the file."""
    circumstances = _circumstances(options)
    figures: list[report.Row] = []
    ratios: dict[str, list[report.Row]] = {}
    details: dict[str, object] = {}
    for number, row in enumerate(rows, 1):
        print(f"{number}/{len(rows)} {row.key}: {row.title}, {row.count:,} messages", flush=True)
        runs = bench.measure(row)
        lists = {name: [asdict(run) for run in each] for name, each in runs.items()}
        details[row.key] = {"title": row.title, "messages": row.count, "runs": lists}
        figures += verdict.figures(row, runs)
        if len(runs) > 1:
            line = (verdict.cost if options.addition else verdict.comparison)(row, runs)
            ratios.setdefault(_ratios_title(runs), []).append(line)
            print(f"    {', '.join(f'{name} {cell}' for name, cell in _rounded(line).items())}", flush=True)
    ceilings: list[report.Row] = [
        {"row": row.key, "messages/s": ceiling(row)} for row in rows if row.protocol is Protocol.STOMP
    ]
    tables = {
        "Medians of each broker": [_rounded(line) for line in figures],
        **{title: [_rounded(line) for line in lines] for title, lines in ratios.items()},
        "What the STOMP client reaches where receipts cost nothing": [_rounded(line) for line in ceilings],
    }
    for title, table in tables.items():
        if table:
            print(f"\n{title}\n{report.render(table)}", flush=True)
    if ratios:
        print(f"\n{verdict.score(list(chain.from_iterable(ratios.values())))}")
    return circumstances | {"tables": tables, "rows": details}


def _ratios_title(runs: verdict.Runs) -> str:
    """Return the title of the table for rows that compare the same two brokers."""
    one, other = verdict.compared([*runs])
    names = {ACTIVEMQ: "ActiveMQ", RABBITMQ: "RabbitMQ"}
    return f"Ratios {one} / {names[other]}" if other in names else f"Ratios {one} / without"


def _rounded(line: report.Row) -> report.Row:
    return {name: float(f"{cell:.4g}") if isinstance(cell, float) else cell for name, cell in line.items()}


def _circumstances(options: argparse.Namespace) -> dict[str, object]:
    """Conditions that the figures depend on."""
    python = options.python or sys.executable
    build = subprocess.run([python, "-c", _BUILD_FACTS], capture_output=True, text=True, check=True).stdout
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
    return {
        "benchmark": "side_by_side",
        "command": shlex.join(["python", "-m", "benchmarks.side_by_side", *sys.argv[1:]]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": report.commit(),
        "machine": report.machine(options.directory) | {"load at start": round(os.getloadavg()[0], 2)},
        **json.loads(build),
        "pybroker": "as installed there" if options.python else "interpreted" if options.pure else "compiled",
        "java": " / ".join(java.splitlines()),
        "activemq": brokers.activemq_version(),
        "activemq options": " ".join(brokers.ACTIVEMQ_OPTIONS),
        "java client options": " ".join(JAVA_OPTIONS),
        "repetitions": 1 if options.quick else options.repeat,
    }


def _wait_for(file: Path) -> None:
    deadline = time.monotonic() + _PROFILE_SECONDS
    while not file.exists():
        if time.monotonic() > deadline:
            raise RuntimeError("the profiled broker wrote nothing")
        time.sleep(0.05)


if __name__ == "__main__":
    main()
