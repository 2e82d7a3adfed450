"""Metrics of what happens, of a real broker: logins, denied acts, dead letters, connections, and syncs."""

import contextlib
import re
import time
from collections.abc import Callable
from pathlib import Path

from pybroker.security.throttle import USER_FAILURES
from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.stomp_client import Disconnected, StompClient
from tests.integration.test_management import OPTIONS, get, url_of, wait_for

Start = Callable[..., BrokerProcess]
Connect = Callable[..., StompClient]


def value(text: str, name: str) -> float:
    """Return the value of a series, with its labels as they are written."""
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    assert found is not None, name
    return float(found[1])


def test_what_clients_do_is_counted(start: Start, connect: Connect) -> None:
    broker = start(*OPTIONS, "--openwire", str(free_port()))
    broker.wait_for("listening on")
    client = connect(broker.port)
    for body in (b"1", b"2", b"3"):
        client.request("SEND", body, destination="/queue/Q", persistent="true")
    url = url_of(broker)
    text = wait_for(
        lambda: get(url, "/metrics")[1],
        lambda text: 'pybroker_queue_oldest_message_seconds{destination="Q"}' in text,
    )
    assert value(text, 'pybroker_connections{listener="stomp"}') == 1
    assert value(text, 'pybroker_connections{listener="tcp"}') == 0
    assert value(text, 'pybroker_logins_total{result="guest"}') == 0, "there are no users"
    assert value(text, "pybroker_journal_files") == 1
    assert value(text, "pybroker_journal_write_bytes_total") > 300
    assert value(text, "pybroker_journal_sync_seconds_count") >= 1
    assert value(text, 'pybroker_journal_sync_seconds_bucket{le="+Inf"}') >= 1
    assert 0 < value(text, "pybroker_journal_sync_seconds_sum") < 60
    first = time.monotonic()
    wait_for(
        lambda: value(get(url, "/metrics")[1], 'pybroker_queue_oldest_message_seconds{destination="Q"}'),
        lambda age: 0.5 < age < 60 + time.monotonic() - first,
    )
    client.send("SUBSCRIBE", id="1", destination="/queue/Q", ack="client-individual")
    message = client.read()
    client.request("NACK", id=message.headers["ack"])
    client.close()
    text = wait_for(
        lambda: get(url, "/metrics")[1],
        lambda text: (
            value(text, "pybroker_redeliveries_total") == 2
            and value(text, 'pybroker_connections{listener="stomp"}') == 0
        ),
    )
    assert value(text, 'pybroker_dead_letters_total{cause="rejected"}') == 1
    assert value(text, 'pybroker_dead_letters_total{cause="expired"}') == 0
    assert value(text, "pybroker_xa_in_doubt") == 0
    assert value(text, "pybroker_blocked_producers") == 0


def test_refused_logins_and_denied_acts_are_counted(start: Start, connect: Connect, tmp_path: Path) -> None:
    users, rules = tmp_path / "users.properties", tmp_path / "rules.toml"
    users.write_text("mara=m\n")
    users.chmod(0o600)
    groups = tmp_path / "groups.properties"
    groups.write_text("monitors=mara\n")
    rules.write_text('[[rules]]\nqueue = ">"\nread = ["admins"]\nwrite = ["admins"]\nadmin = ["admins"]\n')
    broker = start(*OPTIONS, "--users-file", str(users), "--groups-file", str(groups), "--rules-file", str(rules))
    broker.wait_for("listening on")
    url = url_of(broker)
    stranger = connect(broker.port, is_connected=False)
    stranger.send("CONNECT", accept_version="1.2", host="h", login="mara", passcode="x")
    assert stranger.read().command == "ERROR"
    with contextlib.suppress(Disconnected):
        connect(broker.port, login="mara", passcode="m").request("SEND", b"x", destination="/queue/Q")
    text = wait_for(
        lambda: get(url, "/metrics", "mara:m")[1],
        lambda text: value(text, 'pybroker_logins_total{result="ok"}') == 2,  # of the client, and of management
    )
    assert value(text, 'pybroker_logins_total{result="refused"}') == 1
    assert value(text, 'pybroker_logins_total{result="throttled"}') == 0
    assert value(text, "pybroker_denied_total") == 1
    for _ in range(USER_FAILURES + 1):
        stranger = connect(broker.port, is_connected=False)
        stranger.send("CONNECT", accept_version="1.2", host="h", login="eve", passcode="x")
        assert stranger.read().command == "ERROR"
    text = wait_for(
        lambda: get(url, "/metrics", "mara:m")[1],
        lambda text: value(text, 'pybroker_logins_total{result="throttled"}') == 1,
    )
    assert value(text, 'pybroker_logins_total{result="refused"}') == 1 + USER_FAILURES
