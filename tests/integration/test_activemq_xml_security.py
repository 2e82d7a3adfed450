"""Brokers that run an activemq.xml with users, rights and key stores: clients may do what it says."""

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pybroker
from pybroker.broker.app.private_directory import private_directory
from pybroker.client.errors import LoginRefused, NotAuthorized, UntrustedBroker
from tests.integration.cluster import BrokerProcess, Pair, free_port
from tests.integration.test_logins import stomp_answer
from tests.java.stores import PASSWORD, Issuer, subject

SAMPLES = Path(__file__).parents[1] / "golden" / "activemq-xml"
LOGIN_CONFIG = """
activemq { org.apache.activemq.jaas.PropertiesLoginModule required
    org.apache.activemq.jaas.properties.user="users.properties"
    org.apache.activemq.jaas.properties.group="groups.properties"; };
activemq-cert { org.apache.activemq.jaas.TextFileCertificateLoginModule required
    org.apache.activemq.jaas.textfiledn.user="cert-users.properties"
    org.apache.activemq.jaas.textfiledn.group="groups.properties"; };
"""

Run = Callable[..., BrokerProcess]


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """Make a directory of configurations, with the files that the samples name."""
    made = tmp_path / "conf"
    made.mkdir()
    for sample in SAMPLES.glob("*.xml"):
        (made / sample.name).write_text(sample.read_text().replace("/opt/amq", str(tmp_path)))
    for name, text in (
        ("credentials.properties", "activemq.username=system\nactivemq.password=manager\nguest.password=open\n"),
        ("login.config", LOGIN_CONFIG),
        ("users.properties", "system=manager\n"),
        ("groups.properties", "admins=system,client1\n"),
        ("cert-users.properties", "client1=CN=client, O=x\n"),
    ):
        (made / name).write_text(text)
        (made / name).chmod(0o600)
    return made


@pytest.fixture
def run(conf: Path) -> Iterator[Run]:
    """Start a broker from a sample, on other ports."""
    running: list[BrokerProcess] = []

    def start(sample: str, **ports: int) -> BrokerProcess:
        options = [f"--{name.replace('_', '-')}={port}" for name, port in ports.items()]
        file = str(conf / sample)
        broker = BrokerProcess(
            "memory:", name="a", port=ports.get("stomp", 0), extra=("--activemq-xml", file, "--openwire", "0", *options)
        )
        running.append(broker)
        return broker

    yield start
    for each in running:
        each.close()


def connect(port: int, user: str | None, password: str | None, **given: Any) -> Any:
    return pybroker.connect(f"{'ssl' if given else 'tcp'}://127.0.0.1:{port}", user=user, password=password, **given)


def test_users_and_rights_of_the_file_count(run: Run) -> None:
    openwire, stomp = free_port(), free_port()
    broker = run("03-simple-logins.xml", openwire=openwire, stomp=stomp)
    directory = Path(broker.wait_for(r"logins: 2 users of (\S+)/users\.toml")[1])
    broker.wait_for("rights: 4 rules of")
    broker.wait_for("listening on")
    with connect(openwire, "system", "manager") as system, connect(openwire, "shop", "open") as shop:
        system.send("queue://OTHER", "x")
        shop.send("queue://ORDERS.A", "x")
        with pytest.raises(NotAuthorized, match="User shop is not authorized to write to: queue://OTHER"):
            shop.send("queue://OTHER", "x")
    for user, password in (("system", "open"), ("guest", "open"), (None, None)):
        with pytest.raises(LoginRefused):
            connect(openwire, user, password)
    assert broker.terminate() == 0
    assert not directory.exists()
    assert not any("manager" in line for line in broker.lines)


def test_files_of_a_killed_broker_are_removed_by_the_next(run: Run) -> None:
    broker = run("03-simple-logins.xml", openwire=free_port(), stomp=free_port())
    directory = Path(broker.wait_for(r"logins: 2 users of (\S+)/users\.toml")[1])
    broker.kill()
    assert directory.exists()
    private_directory().close()
    assert not directory.exists()


def test_members_that_run_the_same_file_agree_about_users(conf: Path, tmp_path: Path) -> None:
    text = (conf / "03-simple-logins.xml").read_text().replace('persistent="false"', f'dataDirectory="{tmp_path}"')
    (conf / "pair.xml").write_text(text.replace("61616", "0").replace("61613", "0"))
    with Pair(tmp_path / "store", "--activemq-xml", str(conf / "pair.xml"), "--openwire", "0") as pair:
        pair.wait_for_standby()
        found = pair.wait_for_status(lambda status: all("rules" in each["settings"] for each in status["members"]))
        one, other = (each["settings"] for each in found["members"])
        assert one == other
        assert "users" in one


def test_key_stores_of_the_file_are_those_of_the_listeners(run: Run, conf: Path, tmp_path: Path) -> None:
    authority = Issuer.make("authority")
    authority.trust(conf)
    for name, attributes in (("server", {"cn": "server"}), ("client", {"o": "x", "cn": "client"})):
        authority.issue(subject(**attributes), conf, name)
    (conf / "server.p12").rename(conf / "broker.p12")
    (conf / "trust.p12").rename(conf / "trust.jks")  # whatever it is called
    (conf / "trust.pem").rename(conf / "authority.pem")
    openwire, stomp = free_port(), free_port()
    broker = run("04-tls-certificates.xml", openwire_ssl=openwire, stomp_ssl=stomp)
    broker.wait_for("certificates: 1 users of")
    broker.wait_for("listening on")
    assert stomp_answer(stomp, conf, "client")["session"]
    context = ssl.create_default_context(cafile=str(conf / "authority.pem"))
    with pytest.raises(UntrustedBroker, match="does not trust this client"):
        connect(openwire, None, None, ssl_context=context).close()
    context.load_cert_chain(conf / "client.pem")
    with connect(openwire, "ignored", "x", ssl_context=context) as connection:
        connection.send("queue://x", "hello")
    assert broker.terminate() == 0
    assert not any(PASSWORD.decode() in line for line in broker.lines if "password" not in line)


@pytest.mark.parametrize(
    ("content", "reason"), [(b"", "neither JKS, JCEKS nor PKCS#12"), (None, "there is no such file")]
)
def test_a_key_store_that_cannot_be_used_ends_the_start(
    run: Run, conf: Path, content: bytes | None, reason: str
) -> None:
    if content is not None:
        (conf / "broker.p12").write_bytes(content)
    broker = run("04-tls-certificates.xml", openwire_ssl=0, stomp_ssl=0)
    assert broker.join() == 2
    assert any("line 7: sslContext@keyStore" in each and reason in each for each in broker.lines)
    assert not any("listening" in each for each in broker.lines)
