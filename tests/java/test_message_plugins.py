"""What plugins change in each message: ActiveMQ with the plugins, and pybroker with the settings, do the same.

The clients are STOMP clients, which may give a message any times.
"""

import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.integration.activemq_broker import ActiveMQProcess
from tests.integration.stomp_client import StompClient
from tests.java.checks import Programs
from tests.java.installations import FollowedBroker

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(300)]

HOUR = 3_600_000

INSTALLATIONS = {
    "limited": (
        'force_persistency_mode = "persistent"\n'
        'time_stamping = { zero_expiration_override = "1min", ttl_ceiling = "30s" }\n'
        "discarding_dead_letters = { drop_all = false, drop_only = 'nothing plugins\\.drop.*' }\n",
        ["timeStamping=60000:30000:false", "forcePersistency=true", "dropOnly=nothing plugins\\.drop.*"],
    ),
    "future only": (
        'force_persistency_mode = "non_persistent"\ntime_stamping = { future_only = true }\n',
        ["timeStamping=0:0:true", "forcePersistency=false"],
    ),
}
"""The settings of pybroker, and the plugins of `StockBroker`."""

CASES = {
    "no expiration": (-HOUR, 0),
    "clock behind": (-HOUR, -HOUR + 10_000),
    "long life": (-HOUR, HOUR),
    "clock ahead": (HOUR, HOUR + 10_000),
}
"""The timestamp and expiration of a message, from now on, in milliseconds; 0: it does not expire."""

EXPECTED: dict[str, dict[str, tuple[str, int]]] = {
    "limited": {
        "no expiration": ("now", 30_000),
        "clock behind": ("now", 10_000),
        "long life": ("now", 30_000),
        "clock ahead": ("now", 10_000),
    },
    "future only": {
        "no expiration": ("now", 0),
        "clock behind": ("now", 10_000),
        "long life": ("now", 2 * HOUR),
        "clock ahead": ("as sent", 10_000),
    },
}
"""If the timestamp is the broker's, and for how many milliseconds from then on the message lives."""


@pytest.fixture(scope="module", params=INSTALLATIONS)
def installation(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=["pybroker", "activemq"])
def port(
    request: pytest.FixtureRequest, installation: str, programs: Programs, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[int]:
    """The port for STOMP of a broker with these plugins."""
    directory = tmp_path_factory.mktemp(request.param)
    settings, plugins = INSTALLATIONS[installation]
    if request.param == "activemq":
        with closing(ActiveMQProcess(programs.class_path, directory / "data", policies=plugins)) as other:
            yield other.wait().stomp
        return
    file = directory / "pybroker.toml"
    file.write_text(settings)
    broker = FollowedBroker("memory:", name="a", port=0, extra=("--config", str(file), "--openwire", "off"))
    try:
        yield int(broker.wait_for(r"listening on .*:(\d+)")[1])
    finally:
        broker.close()


@pytest.mark.parametrize("case", CASES)
def test_times_of_a_message(port: int, installation: str, case: str) -> None:
    sent_at = round(time.time() * 1000)
    timestamp, expiration = (sent_at + each if each else 0 for each in CASES[case])
    place = f"/queue/plugins.{case.replace(' ', '.')}"
    with closing(StompClient(port)) as client:
        client.send("SUBSCRIBE", id="1", destination=place)
        client.send("SEND", b"m", destination=place, timestamp=str(timestamp), expires=str(expiration))
        headers = client.read().headers
    found, expires = int(headers["timestamp"]), int(headers["expires"])
    stamp = "as sent" if found == timestamp else "now" if sent_at <= found <= sent_at + 60_000 else str(found)
    assert (stamp, expires - found if expires else 0) == EXPECTED[installation][case]


@pytest.mark.parametrize("persistent", [True, False])
def test_delivery_mode_of_a_message(port: int, installation: str, persistent: bool) -> None:
    place = f"/queue/plugins.mode.{persistent}"
    with closing(StompClient(port)) as client:
        client.send("SUBSCRIBE", id="1", destination=place)
        client.send("SEND", b"m", destination=place, **({"persistent": "true"} if persistent else {}))
        assert client.read().headers.get("persistent") == ("true" if installation == "limited" else None)


def test_dead_letters_are_dropped_by_name(port: int, installation: str) -> None:
    names = ["plugins.kept", "plugins.dropped", "Xplugins.dropped"]
    with closing(StompClient(port)) as client:
        for number, name in enumerate(names):
            client.send("SUBSCRIBE", id=str(number), destination=f"/queue/{name}", ack="client-individual")
            client.send("SEND", b"m", destination=f"/queue/{name}", persistent="true", name=name)
            client.send("NACK", id=client.read().headers["ack"])
        client.send("SUBSCRIBE", id="dead", destination="/queue/ActiveMQ.DLQ")
        if installation == "limited":
            names.remove("plugins.dropped")
            assert [client.read().headers["name"] for _ in names] == names
        client.send("SEND", b"end", destination="/queue/ActiveMQ.DLQ", name="end")
        assert client.read().headers["name"] == "end"
