# mypy: disable-error-code="arg-type"
"""Settings become flags of `pybroker start`; what a test cannot choose is refused before anything is started."""

from pathlib import Path

import pytest

from pybroker.broker.app import cli
from pybroker.broker.app.config import SETTINGS
from pybroker.testing import Broker, Cluster
from pybroker.testing.member import options


def test_settings_are_flags_that_start_takes() -> None:
    settings = {"memory_limit": "8mb", "scheduler": False, "journal_preallocate": True, "max_redeliveries": -1}
    command = cli.commands.commands["start"]
    params = command.make_context("start", options(settings)).params
    assert {name: value for name, value in params.items() if name in SETTINGS and value is not None} == {
        "memory_limit": "8mb",
        "scheduler": False,
        "journal_preallocate": True,
        "max_redeliveries": "-1",
    }


def test_a_configuration_comes_first_so_that_settings_win() -> None:
    assert options({"sync": "never"}, Path("/etc/broker.toml")) == ["--config=/etc/broker.toml", "--sync=never"]


def test_a_configuration_is_found_from_wherever_a_broker_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert options({}, Path("broker.toml")) == [f"--config={tmp_path.resolve() / 'broker.toml'}"]


@pytest.mark.parametrize("name", ["store", "name", "bind", "stomp", "openwire", "openwire_url", "openwire_brokers"])
def test_what_follows_from_the_place_is_refused(name: str) -> None:
    assert name in SETTINGS
    with pytest.raises(ValueError, match=f"^{name}: chosen by the cluster"):
        Cluster(settings={name: "x"})
    with pytest.raises(ValueError, match=f"^{name}: chosen by the cluster"):
        Broker(settings={name: "x"})


def test_replication_is_refused_with_the_place_of_a_fixture() -> None:
    """The second member would end, as each needs a store of its own."""
    with pytest.raises(ValueError, match=r"^replicate: .*share one store; docs/testing.md, A replicated cluster"):
        Cluster(settings={"replicate": "etcd://h/orders"})


def test_a_log_level_without_the_needed_lines_is_refused() -> None:
    assert options({"log_level": "debug"}) == ["--log-level=debug"]
    with pytest.raises(ValueError, match="log_level"):
        options({"log_level": "warning"})


@pytest.mark.parametrize("count", [0, -1, 27])
def test_a_number_of_members_that_cannot_be(count: int) -> None:
    with pytest.raises(ValueError, match="members: 1 to 26"):
        Cluster(count)
