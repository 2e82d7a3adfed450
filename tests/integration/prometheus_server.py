"""Debian's Prometheus, with the configuration and the rules of the examples, at intervals of a test."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.prometheus import (
    CONFIGURATION,
    RULES,
    Prometheus,
    hurried,
    shipped_configuration,
    shipped_rules,
    with_interval,
)
from tests.integration.cluster import free_port
from tests.pace import in_time

ROOT: Final = Path(__file__).parents[2]

INTERVAL: Final = "1s"
FOR: Final = "3s"
"""The time for which an alert is pending here: still longer than a scrape."""

__all__ = ["CONFIGURATION", "ROOT", "RULES", "PrometheusServer", "alert_expressions", "rules"]


def rules() -> list[dict[str, Any]]:
    """Return the rules, of all groups."""
    return [rule for group in shipped_rules()["groups"] for rule in group["rules"]]


def alert_expressions() -> dict[str, str]:
    """Return the expressions of the alerts by name."""
    return {rule["alert"]: rule["expr"] for rule in rules() if "alert" in rule}


class PrometheusServer(Prometheus):
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
        super().__init__(
            directory,
            port=free_port(),
            configuration=with_interval(shipped_configuration(list(self.instances.values())), INTERVAL),
            rules=hurried(shipped_rules(), FOR),
        )

    def query(self, expression: str) -> dict[str, float]:
        """Return the values of an expression now, by instance; by all other labels for what has no instance."""
        found: dict[str, float] = {}
        for each in self.ask("query", query=expression)["result"]:
            labels = each["metric"]
            shown = labels.get("instance") or json.dumps({k: v for k, v in labels.items() if k != "__name__"})
            found[shown] = float(each["value"][1])
        return found

    def wait_for(self, expression: str, is_reached: Callable[[dict[str, float]], bool], seconds: float) -> float:
        """Wait until the values of an expression satisfy a condition; return the seconds that it took.

        The machine's pace may widen the bound.
        """
        began_at = time.monotonic()
        while not is_reached(found := self.query(expression)):
            assert in_time(time.monotonic() - began_at, seconds), (expression, found)
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
