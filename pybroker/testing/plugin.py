"""The pytest plug-in: fixtures `broker` and `ha_cluster`, with the brokers' logs in the report of a failed test.

```python
def test_orders_survive_their_broker(ha_cluster):
    place_order(ha_cluster.stomp_addresses)
    ha_cluster.kill9("master")
    assert take_order(ha_cluster.stomp_addresses)


@pytest.mark.pybroker(members=3, settings={"memory_limit": "8mb"})
def test_with_other_brokers(ha_cluster): ...
```

pytest loads this module wherever pybroker is installed, so it imports nothing else until a test needs a broker.
"""

import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pybroker.testing.cluster import Broker, Cluster

_FORK_SERVER_FIXTURE = "_pybroker_fork_server"
_MARKER = (
    "pybroker(*, members=2, settings={}, config=None): the arguments of the brokers in the fixtures `broker` and "
    "`ha_cluster` (pybroker)"
)
_OPTIONS = {"broker": {"settings", "config"}, "ha_cluster": {"settings", "config", "members"}}

_held = pytest.StashKey[ExitStack]()


# ---------------------------------------------------------------- fixtures


@pytest.fixture
def broker(request: pytest.FixtureRequest, _pybroker_fork_server: None) -> "Iterator[Broker]":
    """One message broker with its store in memory, in a separate process: a `pybroker.testing.Broker`."""
    from pybroker.testing.cluster import Broker

    with Broker(**_options(request, "broker")) as broker:
        yield broker


@pytest.fixture
def ha_cluster(request: pytest.FixtureRequest, _pybroker_fork_server: None) -> "Iterator[Cluster]":
    """Several message brokers on one temporary store, the first of them master: a `pybroker.testing.Cluster`."""
    from pybroker.testing.cluster import Cluster

    with Cluster(**_options(request, "ha_cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="session", name=_FORK_SERVER_FIXTURE)
def _fork_server(pytestconfig: pytest.Config) -> None:
    """Start the fork server, until the session ends."""
    _hold_fork_server(pytestconfig)


def _options(request: pytest.FixtureRequest, fixture: str) -> dict[str, Any]:
    """Return the arguments of the test's marker for one of the fixtures."""
    marker = request.node.get_closest_marker("pybroker")
    if marker is None:
        return {}
    unknown = sorted(marker.kwargs.keys() - _OPTIONS["ha_cluster"])
    if marker.args or unknown:
        raise pytest.UsageError(f"{request.node.nodeid}: wrong {', '.join(unknown) or 'arguments'}; it is {_MARKER}")
    chosen = {name: value for name, value in marker.kwargs.items() if name in _OPTIONS[fixture]}
    if isinstance(chosen.get("config"), str):
        chosen["config"] = Path(chosen["config"])
    return chosen


# ---------------------------------------------------------------- hooks


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", _MARKER)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Start the fork server while other tests are still being collected."""
    if _FORK_SERVER_FIXTURE in getattr(item, "fixturenames", ()) and not item.config.option.collectonly:
        _hold_fork_server(item.config)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the brokers' logs to the report of a failure: those of the fixtures, and any others that are open."""
    report = yield
    if report.failed:
        cluster = sys.modules.get("pybroker.testing.cluster")
        if cluster is not None:  # otherwise no broker was started
            report.sections += cluster.open_logs()
    return report


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the fork server."""
    held = config.stash.get(_held, None)
    if held is not None:
        held.close()
        del config.stash[_held]


def _hold_fork_server(config: pytest.Config) -> None:
    if _held not in config.stash:
        from pybroker.testing.launcher import fork_server

        held = config.stash[_held] = ExitStack()
        held.enter_context(fork_server())
