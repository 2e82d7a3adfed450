"""Rights of users: over both protocols, and while the file of rules changes."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import pybroker
from pybroker.broker.domain.security import User
from pybroker.client.errors import DestinationRefused, NotAuthorized
from pybroker.security import hashes, users_toml
from pybroker.security.accounts import Account
from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.stomp_client import Disconnected, Frame, StompClient

Start = Callable[..., BrokerProcess]
Connect = Callable[..., StompClient]

RULES = """
[[rules]]
queue = "ORDERS.>"
read = ["billing"]
write = ["shop"]
admin = ["shop", "billing"]
"""


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    users, rules = tmp_path / "users.toml", tmp_path / "rules.toml"
    secret = hashes.hashed("pw")
    accounts = {name: Account(User(name, frozenset((name,))), secret) for name in ("shop", "billing")}
    users.write_text(users_toml.written(accounts))
    rules.write_text(RULES)
    return ["--users-file", str(users), "--rules-file", str(rules)]


@pytest.mark.parametrize("protocol", ["tcp", "stomp"])
def test_what_users_may_do(start: Start, options: list[str], protocol: str) -> None:
    openwire = free_port()
    broker = start(*options, "--openwire", str(openwire), store="memory:")
    broker.wait_for("rights: 1 rules of")
    broker.wait_for("listening on")
    uri = f"{protocol}://127.0.0.1:{openwire if protocol == 'tcp' else broker.port}"
    with pybroker.connect(uri, user="shop", password="pw") as shop:
        shop.send("ORDERS.new", "order")
        with pytest.raises(NotAuthorized, match="User shop is not authorized to write to: queue://OTHER") as refused:
            shop.send("OTHER", "order")
        assert isinstance(refused.value, DestinationRefused)
        with pytest.raises(NotAuthorized, match="read from: queue://ORDERS"):
            shop.consumer("ORDERS.new")
        with pybroker.connect(uri, user="billing", password="pw") as billing:
            message = billing.consumer("ORDERS.>").receive(timeout=20)
            assert message is not None
            assert message.body == "order"
    assert broker.terminate() == 0
    assert len([line for line in broker.lines if "OTHER" in line]) == 1, "the line of the audit log"
    broker.wait_for("audit: 'shop' from .* may not write to: queue://OTHER")


def test_other_rules_take_effect_without_a_restart(
    start: Start, options: list[str], tmp_path: Path, connect: Connect
) -> None:
    broker = start(*options, store="memory:")
    broker.wait_for("listening on")
    shop, billing = (connect(broker.port, login=name, passcode="pw") for name in ("shop", "billing"))
    assert billing.request("SUBSCRIBE", destination="/queue/ORDERS.x", id="a").command == "RECEIPT"
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES + "x = 1")
    broker.wait_for(r"the rules stay as they were: .*rule 1.*'x'")
    assert shop.request("SEND", b"m", destination="/queue/ORDERS.x").command == "RECEIPT"
    assert billing.read().command == "MESSAGE"
    rules.write_text(RULES.replace("billing", "others").replace("shop", "others"))
    broker.wait_for("gives rights to groups to which no user belongs: 'others'")
    broker.wait_for("rules.toml was read again: 1 rules")
    frame = billing.read()
    assert (frame.command, frame.headers["message"]) == (
        "ERROR",
        "The rights of user billing to queue://ORDERS.x have changed",
    )
    with pytest.raises(Disconnected):
        billing.read()
    refused = shop.request("SEND", b"m", destination="/queue/ORDERS.x")
    assert refused.headers["message"] == "User shop is not authorized to write to: queue://ORDERS.x"
    with closing(StompClient(broker.port, login="billing", passcode="pw")) as again:
        refused = again.request("SUBSCRIBE", destination="/queue/ORDERS.x", id="a")
        assert refused.headers["message"] == "User billing is not authorized to read from: queue://ORDERS.x"


def test_scheduled_messages_are_managed_by_a_right_alone(
    start: Start, options: list[str], tmp_path: Path, connect: Connect
) -> None:
    (tmp_path / "rules.toml").write_text(
        RULES + '[[rules]]\nqueue = ">"\nwrite = ["billing"]\n'
        '[[rules]]\ntopic = "ActiveMQ.Scheduler.Management"\nwrite = ["shop"]\n'
    )
    broker = start(*options, store="memory:")
    broker.wait_for("listening on")
    shop, billing = (connect(broker.port, login=name, passcode="pw") for name in ("shop", "billing"))
    assert scheduled(shop, "/queue/ORDERS.x", AMQ_SCHEDULED_DELAY="3600000").command == "RECEIPT"
    management = "ActiveMQ.Scheduler.Management"
    for destination in (f"/topic/{management}", f"/queue/{management.lower()}X", f"/remote-temp-queue/{management}"):
        answer = scheduled(billing, destination, AMQ_SCHEDULER_ACTION="REMOVEALL")
        wanted = "does not exist" if "temp" in destination else "write to: topic://ActiveMQ.Scheduler.Management"
        assert wanted in answer.headers["message"]
    browse = {"AMQ_SCHEDULER_ACTION": "BROWSE"}
    for reply in ("/queue/FORBIDDEN", "/topic/ActiveMQ.Advisory.Queue"):
        answer = scheduled(shop, f"/topic/{management}", **browse, **{"reply-to": reply})
        assert answer.headers["message"].startswith("User shop is not authorized to write to: ")
    assert shop.request("SUBSCRIBE", destination="/temp-queue/me", id="a").command == "RECEIPT"
    assert scheduled(shop, f"/topic/{management}", **browse, **{"reply-to": "/temp-queue/me"}).command == "RECEIPT"
    assert [*shop.backlog, shop.read()][0].body == b"m", "it is still there"


def scheduled(client: StompClient, destination: str, **headers: str) -> Frame:
    """Send a message with these headers, and return the answer."""
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    client.send_bytes(f"SEND\ndestination:{destination}\nreceipt:r\n{lines}\nm\0".encode())
    while (frame := client.read()).command == "MESSAGE":
        client.backlog.append(frame)
    return frame


def test_a_file_that_cannot_be_used_ends_the_start(start: Start, options: list[str], tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text(RULES + '\n[[rules]]\nqueue = "A,B"\nread = ["shop"]\n')
    broker = start(*options, store="memory:")
    assert broker.join() == 2
    assert any("rules.toml, line 8: rule 2, queue 'A,B': a rule is for one name" in line for line in broker.lines)
