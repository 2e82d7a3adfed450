"""Debian's Prometheus with the configuration and the alert rules of the examples, for benchmarks and for tests.

Only the targets, the login and, where asked for, the times differ from the files in `examples/prometheus`.
"""

import contextlib
import copy
import json
import os
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

EXAMPLES: Final = Path(__file__).parents[1] / "examples/prometheus"
RULES: Final = EXAMPLES / "pybroker.rules.yml"
CONFIGURATION: Final = EXAMPLES / "prometheus.yml"

CLUSTER: Final = "orders"
"""The pair of the example."""

PAIR_GROUP: Final = "pybroker.pair"
"""The rules about the pair; the others are about its broker."""

_READY_SECONDS: Final = 30.0
_ANSWER_SECONDS: Final = 30.0
_UNITS: Final = {"s": 1, "m": 60, "h": 3600}


class MonitoringLogin(NamedTuple):
    """The user with which Prometheus scrapes, and the file with its password."""

    user: str
    password_file: Path


class Samples(NamedTuple):
    """The samples of one series: its labels, and times in seconds since 1970 with values."""

    labels: Mapping[str, str]
    values: Sequence[tuple[float, float]]


def shipped_rules() -> dict[str, Any]:
    """Return the rules of the examples."""
    found: dict[str, Any] = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    return found


def shipped_configuration(targets: Sequence[str], login: MonitoringLogin | None = None) -> dict[str, Any]:
    """Return the configuration of the examples with the members of one pair, and with a login if there is one."""
    found: dict[str, Any] = yaml.safe_load(CONFIGURATION.read_text(encoding="utf-8"))
    (scrape,) = found["scrape_configs"]
    if login is None:
        del scrape["basic_auth"]
    else:
        assert scrape["basic_auth"].keys() == {"username", "password_file"}
        scrape["basic_auth"] = {"username": login.user, "password_file": str(login.password_file)}
    (pair,) = scrape["static_configs"]
    assert pair["labels"] == {"cluster": CLUSTER}
    pair["targets"] = list(targets)
    return found


def with_interval(configuration: Mapping[str, Any], interval: str) -> dict[str, Any]:
    """Return a configuration that scrapes and evaluates at another interval."""
    return {
        **configuration,
        "global": dict.fromkeys(("scrape_interval", "scrape_timeout", "evaluation_interval"), interval),
    }


def hurried(rules: Mapping[str, Any], pending: str) -> dict[str, Any]:
    """Return rules with alerts of the pair that are pending for that time.

    Those of a broker keep their times: on a busy machine its event loop does lag for a moment.
    """
    found: dict[str, Any] = copy.deepcopy(dict(rules))
    for group in found["groups"]:
        for rule in group["rules"]:
            if "for" in rule and group["name"] == PAIR_GROUP:
                rule["for"] = pending
    return found


def pending_seconds(rules: Mapping[str, Any]) -> dict[str, float]:
    """Return for how many seconds each alert is pending before it fires, by name."""
    alerts = [rule for group in rules["groups"] for rule in group["rules"] if "alert" in rule]
    return {rule["alert"]: seconds_of(rule.get("for", "0s")) for rule in alerts}


def seconds_of(duration: str) -> float:
    """Return a duration such as `5m` in seconds."""
    match = re.fullmatch(r"(\d+)([smh])", duration)
    assert match is not None, duration
    return float(int(match[1]) * _UNITS[match[2]])


class Prometheus:
    """A Prometheus server, as a process of its own."""

    def __init__(
        self, directory: Path, *, port: int, configuration: Mapping[str, Any], rules: Mapping[str, Any]
    ) -> None:
        """Start it, and wait until it serves.

        Args:
            directory: for its files; it is made.
            port: a free one of this host.
            configuration: the content of its configuration, which names the file of the rules.
            rules: the content of that file.
        """
        self._url = f"http://127.0.0.1:{port}"
        directory.mkdir()
        self._log = (directory / "log").open("w")
        (directory / CONFIGURATION.name).write_text(yaml.safe_dump(dict(configuration)))
        (directory / RULES.name).write_text(yaml.safe_dump(dict(rules)))
        program = shutil.which("prometheus")
        assert program is not None, "Debian's package `prometheus` is installed"
        self._process = subprocess.Popen(
            [
                program,
                f"--config.file={directory / CONFIGURATION.name}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=warn",
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env={**os.environ, "GOMAXPROCS": "1"},
        )
        self._wait_until_ready()

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        self._log.close()

    def ask(self, path: str, **arguments: str) -> Any:
        """Return the data of an answer of its API."""
        url = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
        with urllib.request.urlopen(url, timeout=_ANSWER_SECONDS) as answer:
            found = json.load(answer)
        assert found["status"] == "success", found
        return found["data"]

    def samples(self, selector: str, since: float) -> list[Samples]:
        """Return the samples since a time, in seconds since 1970, as they are stored."""
        seconds = max(1, int(time.time() - since) + 1)
        found = self.ask("query", query=f"{selector}[{seconds}s]")["result"]
        return [Samples(each["metric"], [(at, float(value)) for at, value in each["values"]]) for each in found]

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self._url}/-/ready", timeout=_READY_SECONDS):
                return
            assert self._process.poll() is None, Path(self._log.name).read_text()
            assert time.monotonic() < deadline, "Prometheus does not become ready"
            time.sleep(0.02)
