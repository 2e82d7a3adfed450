"""Brokers that start from an activemq.xml, and what an operator sees of a file from which they do not."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from websockets.sync.client import connect
from websockets.typing import Subprotocol

import pybroker
from tests import mqtt_packets as packets
from tests.integration.cluster import START_SECONDS, BrokerProcess, free_port
from tests.integration.forked import ForkedBroker, run_forked
from tests.java.stores import Issuer, subject
from tests.postgres_cluster import PASSWORD, PASSWORD_IN_URL, PostgresDatabase, postgres_cluster, postgres_database

__all__ = ["postgres_cluster", "postgres_database"]

BEANS: Final = "http://www.springframework.org/schema/beans"
CORE: Final = "http://activemq.apache.org/schema/core"
LIMITS: Final = "maximumConnections=1000&amp;wireFormat.maxFrameSize=104857600"


class FileBroker(BrokerProcess):
    """A `pybroker start` whose store, name and listeners are those of a file."""

    def __init__(self, file: Path, *options: str, kind: str = "--activemq-xml") -> None:
        self.name, self.port, self.lines, self._rest = file.stem, 0, [], b""
        self.process = ForkedBroker(["start", kind, str(file), "--disk-reserve", "0", *options])


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    made = tmp_path / "amq" / "conf"
    made.mkdir(parents=True)
    return made


@pytest.fixture
def running() -> Iterator[list[FileBroker]]:
    brokers: list[FileBroker] = []
    yield brokers
    for each in brokers:
        each.close()


def connectors(*uris: str) -> str:
    each = "".join(f'<transportConnector name="{uri.partition(":")[0]}" uri="{uri}"/>' for uri in uris)
    return f"<transportConnectors>{each}</transportConnectors>"


def write(path: Path, content: str, attributes: str = "", beside: str = "") -> Path:
    path.write_text(
        f'<beans xmlns="{BEANS}">\n<bean class="org.springframework.beans.factory.config.PropertyPlaceholderConfigurer"'
        f'/>\n{beside}<broker xmlns="{CORE}" {attributes}>\n{content}\n</broker>\n</beans>\n'
    )
    return path


def send(port: int, body: str) -> None:
    with pybroker.connect(f"tcp://127.0.0.1:{port}") as connection:
        connection.send("queue://ORDERS", body)


def received(port: int) -> object:
    with (
        pybroker.connect(f"tcp://127.0.0.1:{port}") as connection,
        connection.consumer("queue://ORDERS") as consumer,
    ):
        return consumer.receive(START_SECONDS).body


def everything(directory: Path) -> list[tuple[Path, bytes]]:
    return sorted((each, each.read_bytes() if each.is_file() else b"") for each in directory.rglob("*"))


# ---------------------------------------------------------------- what starts


def test_pair_on_a_shared_directory_with_scheduler(conf: Path, tmp_path: Path, running: list[FileBroker]) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    adapter = f"""<persistenceAdapter><kahaDB directory="{shared}/kahadb" journalMaxFileLength="32mb"
      lockKeepAlivePeriod="5000"><locker><shared-file-locker lockAcquireSleepInterval="2000"/></locker></kahaDB>
      </persistenceAdapter><systemUsage><systemUsage><storeUsage><storeUsage limit="100 gb"/></storeUsage></systemUsage>
      </systemUsage>"""
    attributes = (
        f'brokerName="localhost" schedulerSupport="true" schedulerDirectory="{shared}/scheduler" useJmx="false"'
    )
    ports = [free_port(), free_port()]
    for number, port in enumerate(ports):
        file = write(conf / f"{number}.xml", adapter + connectors(f"tcp://127.0.0.1:{port}?{LIMITS}"), attributes)
        running.append(FileBroker(file, "--name", f"member-{number}"))
        running[-1].wait_for("listening on" if number == 0 else "standby|waiting")
    send(ports[0], "kept")
    running[0].kill()
    running[1].wait_for("listening on")
    assert received(ports[1]) == "kept"
    assert running[1].terminate() == 0
    assert (shared / "kahadb").is_dir()


def test_pair_on_postgresql_with_pool_settings(
    conf: Path, postgres_database: PostgresDatabase, running: list[FileBroker]
) -> None:
    server = postgres_database.url.rpartition("@")[2]
    source = f"""<bean id="postgres-ds" class="org.apache.commons.dbcp2.BasicDataSource" destroy-method="close">
      <property name="driverClassName" value="org.postgresql.Driver"/>
      <property name="url" value="jdbc:postgresql://{server}"/>
      <property name="username" value="pybroker"/><property name="password" value="{PASSWORD}"/>
      <property name="initialSize" value="5"/><property name="maxTotal" value="20"/>
      <property name="poolPreparedStatements" value="true"/></bean>\n"""
    adapter = """<persistenceAdapter><jdbcPersistenceAdapter dataSource="#postgres-ds" lockKeepAlivePeriod="2000">
      <locker><lease-database-locker lockAcquireSleepInterval="5000"/></locker></jdbcPersistenceAdapter>
      </persistenceAdapter>"""
    ports = [free_port(), free_port()]
    for number, port in enumerate(ports):
        file = write(conf / f"{number}.xml", adapter + connectors(f"tcp://127.0.0.1:{port}"), "", source)
        running.append(FileBroker(file, "--name", f"member-{number}"))
        running[-1].wait_for("listening on" if number == 0 else "standby|waiting")
    send(ports[0], "kept")
    assert running[0].terminate() == 0
    running[1].wait_for("listening on")
    assert received(ports[1]) == "kept"
    assert running[1].terminate() == 0
    for line in (line for each in running for line in each.lines):
        assert PASSWORD not in line
        assert PASSWORD_IN_URL not in line


def test_five_connectors_with_limits(conf: Path, running: list[FileBroker]) -> None:
    openwire, stomp, web, mqtt, amqp = (free_port() for _ in range(5))
    served = (
        f"{scheme}://127.0.0.1:{port}?{LIMITS}"
        for scheme, port in zip(("tcp", "stomp", "ws", "mqtt", "amqp"), (openwire, stomp, web, mqtt, amqp), strict=True)
    )
    file = write(conf / "activemq.xml", connectors(*served, f"http://0.0.0.0:{free_port()}"), 'persistent="false"')
    broker = FileBroker(file)
    running.append(broker)
    broker.wait_for("listening on")
    send(openwire, "hello")
    assert received(openwire) == "hello"
    with connect(f"ws://127.0.0.1:{web}", subprotocols=[Subprotocol("v12.stomp")]) as page:
        page.send("CONNECT\naccept-version:1.2\nhost:h\n\n\0")
        assert str(page.recv(timeout=30)).startswith("CONNECTED\n")
    with socket.create_connection(("127.0.0.1", mqtt)) as device:
        device.sendall(packets.connect("device"))
        assert device.recv(4) == b"\x20\2\0\0"
    with socket.create_connection(("127.0.0.1", amqp)) as peer:
        peer.sendall(b"AMQP\3\1\0\0")
        assert peer.recv(8) == b"AMQP\3\1\0\0"
    assert broker.terminate() == 0
    assert any(
        "transportConnector[ws]: STOMP, MQTT and AMQP are served over WebSocket" in each for each in broker.lines
    )
    assert any("transportConnector[http]: not opened" in each for each in broker.lines)


# ---------------------------------------------------------------- what does not


def refused(file: Path, *options: str) -> str:
    """Return what a user sees of a start that is refused, and check that it touches nothing."""
    before = everything(file.parents[2])
    done = run_forked("start", "--activemq-xml", str(file), *options)
    assert done.returncode == 2, done.stdout
    assert "Traceback" not in done.stdout
    assert "listening" not in done.stdout
    assert everything(file.parents[2]) == before
    return str(done.stdout)


HOSTILE: Final = {
    "a broken token": ("<broker>\n<x", "line 2, column 1: unclosed token"),
    "billion laughs": (
        '<?xml version="1.0"?>\n<!DOCTYPE b [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]><b>&b;</b>',
        "line 2, column 13: a document type (DOCTYPE) is not read, nor are entities: remove it",
    ),
    "an external entity": ('<!DOCTYPE b [<!ENTITY x SYSTEM "file:///etc/hostname">]><b>&x;</b>', "remove it"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_file_is_an_error_with_its_line(name: str, conf: Path) -> None:
    text, reason = HOSTILE[name]
    (conf / "activemq.xml").write_text(text)
    shown = refused(conf / "activemq.xml")
    assert f"--activemq-xml: {conf}/activemq.xml: " in shown
    assert reason in shown


ADAPTERS: Final = {
    "levelDB": ('<levelDB directory="d"/>', "line 4: levelDB: ActiveMQ 5.17 has no such store: export its messages"),
    "replicatedLevelDB": ('<replicatedLevelDB replicas="3"/>', "line 4: replicatedLevelDB: ActiveMQ 5.17 has no such"),
    "mKahaDB": ("<mKahaDB directory='d'/>", "line 4: mKahaDB: "),
}


@pytest.mark.parametrize("name", ADAPTERS)
def test_adapter_that_cannot_be_is_refused_with_its_line(name: str, conf: Path) -> None:
    adapter, reason = ADAPTERS[name]
    content = f"<persistenceAdapter>{adapter}</persistenceAdapter>{connectors('tcp://127.0.0.1:0')}"
    shown = refused(write(conf / "activemq.xml", content, 'dataDirectory="data"'))
    assert reason in shown
    assert "To start without these, name each place with --accept." in shown


def test_journaled_jdbc_is_refused_with_a_remedy(conf: Path) -> None:
    content = (
        '<persistenceFactory><journalPersistenceAdapterFactory dataDirectory="d" dataSource="#ds"/>'
        f"</persistenceFactory>{connectors('tcp://127.0.0.1:0')}"
    )
    shown = refused(write(conf / "activemq.xml", content))
    assert "line 4: persistenceFactory: a journal in front of a database is not read: use kahaDB" in shown


def test_missing_placeholder_is_refused_with_a_remedy(conf: Path) -> None:
    file = write(conf / "activemq.xml", connectors("tcp://127.0.0.1:${the.port}"), 'persistent="false"')
    assert "line 4: transportConnector[tcp]@uri: " in (shown := refused(file))
    assert "set it with --property the.port=VALUE, or in the environment" in shown


def test_wrong_password_of_a_key_store_is_refused(conf: Path) -> None:
    Issuer.make("authority").issue(subject(cn="server"), conf, "server")
    content = (
        f'<sslContext><sslContext keyStore="file:{conf}/server.p12" keyStorePassword="wr0ng-s3cret"/></sslContext>'
        + connectors("ssl://127.0.0.1:0")
    )
    shown = refused(write(conf / "activemq.xml", content, 'persistent="false"'))
    assert "line 4: sslContext@keyStore" in shown
    assert "password" in shown
    assert "wr0ng-s3cret" not in shown


# ---------------------------------------------------------------- pybroker adopt


def installation(conf: Path, content: str = "") -> Path:
    store = f'<persistenceAdapter><kahaDB directory="{conf.parents[1]}/shared/kahadb"/></persistenceAdapter>'
    write(conf / "activemq.xml", content + store + connectors(f"tcp://127.0.0.1:{free_port()}"), 'useJmx="false"')
    return conf.parent


NETWORK: Final = '<networkConnectors><networkConnector uri="multicast://default"/></networkConnectors>'


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("", 0),
        ('<managementContext><managementContext createConnector="true"/></managementContext>', 3),
        (NETWORK, 4),
    ],
)
def test_adopt_check_says_how_much_differs(conf: Path, content: str, code: int) -> None:
    amq = installation(conf, content)
    before = everything(conf.parents[1])
    done = run_forked("adopt", str(amq), "--check", "--json")
    assert done.returncode == code
    assert json.loads(done.stdout)["exit_code"] == code
    assert everything(conf.parents[1]) == before


def test_adopt_writes_what_start_takes(conf: Path, tmp_path: Path, running: list[FileBroker]) -> None:
    amq = installation(conf)
    assert "Carried over: " in run_forked("adopt", str(amq)).stdout
    assert not (tmp_path / "out").exists()
    before = everything(amq)
    assert run_forked("adopt", str(amq), "--out", str(tmp_path / "out")).returncode == 0
    assert everything(amq) == before
    (tmp_path / "shared").mkdir(exist_ok=True)
    broker = FileBroker(tmp_path / "out" / "pybroker.toml", kind="--config")
    running.append(broker)
    broker.wait_for("listening on")
    assert broker.terminate() == 0


def test_adopt_writes_nothing_of_what_is_not_supported(conf: Path, tmp_path: Path) -> None:
    done = run_forked("adopt", str(installation(conf, NETWORK)), "--out", str(tmp_path / "out"))
    assert done.returncode == 2
    assert "does not start with this configuration" in done.stdout
    assert not (tmp_path / "out").exists()
