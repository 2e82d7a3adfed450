"""Debian's Prometheus, with the configuration and the rules of the examples, at intervals of a test."""

import contextlib
import json
import os
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tests.integration.cluster import START_SECONDS, free_port

ROOT: Final = Path(__file__).parents[2]
RULES: Final = ROOT / "examples/prometheus/pybroker.rules.yml"
CONFIGURATION: Final = ROOT / "examples/prometheus/prometheus.yml"

CLUSTER: Final = "orders"
"""The pair of the example."""

INTERVAL: Final = "1s"
FOR: Final = "3s"
"""The time for which an alert is pending here: still longer than a scrape."""


def rules() -> list[dict[str, Any]]:
    """Return the rules, of all groups."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alert_expressions() -> dict[str, str]:
    """Return the expressions of the alerts by name."""
    return {rule["alert"]: rule["expr"] for rule in rules() if "alert" in rule}


class PrometheusServer:
    """Prometheus, which scrapes the members of one pair.

    Attributes:
        instances: the members' addresses by name, as the label `instance` has them.
    """

    def __init__(self, directory: Path, ports: Mapping[str, int]) -> None:
        """Start it.

        Args:
            directory: for its files.
            ports: the ports of management by the names of the members.
        """
        self.instances = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
        self._url = f"http://127.0.0.1:{(port := free_port())}"
        directory.mkdir()
        self._log = (directory / "log").open("w")
        (directory / "prometheus.yml").write_text(yaml.safe_dump(self._configuration()))
        (directory / RULES.name).write_text(yaml.safe_dump(_hurried(yaml.safe_load(RULES.read_text()))))
        program = shutil.which("prometheus")
        assert program is not None
        self._process = subprocess.Popen(
            [
                program,
                f"--config.file={directory / 'prometheus.yml'}",
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

    def _configuration(self) -> dict[str, Any]:
        found: dict[str, Any] = yaml.safe_load(CONFIGURATION.read_text(encoding="utf-8"))
        found["global"] = dict.fromkeys(("scrape_interval", "scrape_timeout", "evaluation_interval"), INTERVAL)
        (scrape,) = found["scrape_configs"]
        del scrape["basic_auth"]
        (pair,) = scrape["static_configs"]
        assert pair["labels"] == {"cluster": CLUSTER}
        pair["targets"] = list(self.instances.values())
        return found

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self._url}/-/ready", timeout=START_SECONDS):
                return
            assert self._process.poll() is None, Path(self._log.name).read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        self._log.close()

    def ask(self, path: str, **arguments: str) -> Any:
        """Return the data of an answer of its API."""
        url = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
        with urllib.request.urlopen(url, timeout=START_SECONDS) as answer:
            found = json.load(answer)
        assert found["status"] == "success", found
        return found["data"]

    def query(self, expression: str) -> dict[str, float]:
        """Return the values of an expression now, by instance; by all other labels for what has no instance."""
        found: dict[str, float] = {}
        for each in self.ask("query", query=expression)["result"]:
            labels = each["metric"]
            shown = labels.get("instance") or json.dumps({k: v for k, v in labels.items() if k != "__name__"})
            found[shown] = float(each["value"][1])
        return found

    def wait_for(self, expression: str, is_reached: Callable[[dict[str, float]], bool], seconds: float) -> float:
        """Wait until the values of an expression satisfy a condition; return the seconds that it took."""
        began_at = time.monotonic()
        while not is_reached(found := self.query(expression)):
            assert time.monotonic() < began_at + seconds, (expression, found)
            time.sleep(0.05)
        return time.monotonic() - began_at

    def wait_for_alert(self, name: str, seconds: float) -> float:
        """Wait until the expression of an alert is true; return the seconds that it took."""
        return self.wait_for(alert_expressions()[name], bool, seconds)

    def alerts(self) -> dict[str, str]:
        """Return the states of the alerts that are pending or firing, by name."""
        alerts = sorted(self.ask("alerts")["alerts"], key=lambda each: each["state"] == "firing")
        return {each["labels"]["alertname"]: each["state"] for each in alerts}

    def firing(self) -> set[str]:
        """Return the names of the alerts that are firing now."""
        return {name for name, state in self.alerts().items() if state == "firing"}

    def fired(self, since: float) -> set[str]:
        """Return the names of the alerts that have fired since a time, in seconds since the epoch."""
        query = 'ALERTS{alertstate="firing"}'
        found = self.ask("query_range", query=query, start=str(since), end=str(time.time()), step=INTERVAL)
        return {each["metric"]["alertname"] for each in found["result"]}


def _hurried(rules: dict[str, Any]) -> dict[str, Any]:
    """Return the rules with alerts of the pair that are pending for `FOR` at most.

    Those of a broker keep their times: on a busy machine its event loop does lag for a moment.
    """
    for group in rules["groups"]:
        for rule in group["rules"]:
            if "for" in rule and group["name"] == "pybroker.pair":
                rule["for"] = FOR
    return rules
