"""The page about moving a pair from ActiveMQ to pybroker: its commands in order, under load, and each way back."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from pybroker.client.errors import LoginRefused, NotAuthorized
from pybroker.client.sync import connect
from tests.client.kills import PATIENCE_SECONDS
from tests.conftest import JAR_DIRECTORY, JDBC_JARS
from tests.integration.migration import PASSWORD, USER, Load, Machine, compare, follow
from tests.postgres_cluster import PASSWORD as DATABASE_PASSWORD
from tests.postgres_cluster import USER as DATABASE_USER
from tests.postgres_cluster import PostgresDatabase, postgres_cluster, postgres_database

__all__ = ["postgres_cluster", "postgres_database"]

pytestmark = pytest.mark.timeout(240)

_OPTIONS = "?maximumConnections=1000&amp;wireFormat.maxFrameSize=104857600"


def _entry(kind: str, name: str, group: str = "shops") -> str:
    return f'<authorizationEntry {kind}="{name}" read="{group}" write="{group}" admin="{group}"/>'


CONFIGURATION = f"""<beans xmlns="http://www.springframework.org/schema/beans"
  xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xsi:schemaLocation="http://www.springframework.org/schema/beans
  http://www.springframework.org/schema/beans/spring-beans.xsd
  http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <bean class="org.springframework.beans.factory.config.PropertyPlaceholderConfigurer"/>
  DATA-SOURCE
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="orders" dataDirectory="${{activemq.data}}"
          schedulerSupport="true" useJmx="false">
    <destinationPolicy><policyMap><policyEntries>
      <policyEntry topic="&gt;">
        <pendingMessageLimitStrategy><constantPendingMessageLimitStrategy limit="1000"/></pendingMessageLimitStrategy>
      </policyEntry>
      <policyEntry queue="&gt;" queuePrefetch="100">
        <deadLetterStrategy><individualDeadLetterStrategy queuePrefix="DLQ."/></deadLetterStrategy>
      </policyEntry>
    </policyEntries></policyMap></destinationPolicy>
    <persistenceAdapter>STORE</persistenceAdapter>
    <plugins>
      <simpleAuthenticationPlugin><users>
        <authenticationUser username="{USER}" password="{PASSWORD}" groups="shops"/>
      </users></simpleAuthenticationPlugin>
      <authorizationPlugin><map><authorizationMap><authorizationEntries>
        {_entry("queue", "OpenWire")}{_entry("queue", "STOMP")}{_entry("queue", "JOBS")}
        {_entry("topic", "NEWS")}{_entry("topic", "ActiveMQ.Advisory.&gt;")}
        {_entry("queue", "SECRET", "others")}
      </authorizationEntries></authorizationMap></map></authorizationPlugin>
    </plugins>
    <transportConnectors>
      <transportConnector name="openwire" uri="tcp://127.0.0.1:${{openwire.port}}{_OPTIONS}"/>
      <transportConnector name="stomp" uri="stomp://127.0.0.1:${{stomp.port}}{_OPTIONS}"/>
    </transportConnectors>
  </broker>
</beans>
"""
KAHADB = '<kahaDB directory="${activemq.data}/kahadb"/>'
DATABASE = '<jdbcPersistenceAdapter dataSource="#pg" lockKeepAlivePeriod="1000"/>'
SOURCE = """<bean id="pg" class="org.postgresql.ds.PGSimpleDataSource">
    <property name="url" value="jdbc:postgresql://127.0.0.1:{port}/{name}"/>
    <property name="user" value="{user}"/><property name="password" value="{password}"/>
  </bean>"""
ACTIVEMQ_SERVES = r"\) started"


def configuration(store: str, source: str = "") -> dict[str, str]:
    """Return the files of `conf`."""
    return {"activemq.xml": CONFIGURATION.replace("STORE", store).replace("DATA-SOURCE", source)}


class Pair:
    """The machines, with an ActiveMQ on each, `a`'s as the master; and the steps of the page."""

    def __init__(self, machines: Mapping[str, Machine], running: ExitStack) -> None:
        self.machines = machines
        self.a, self.b = machines["a"], machines["b"]
        for each in machines.values():
            running.enter_context(closing(each))
        self.a.run("systemctl start activemq")
        self.a.wait_for("activemq", ACTIVEMQ_SERVES)
        self.b.run("systemctl start activemq")
        self.load = running.enter_context(closing(Load([self.a, self.b])))
        self.load.publish("from ActiveMQ")
        self.load.go_on()
        for part in ("pybroker adopt /opt/activemq\n", "--out"):
            follow(part, machines)

    def replace_the_slave(self) -> None:
        with self.load.step("step 1", 10, 2):
            follow("# on b\nsystemctl disable --now activemq", self.machines)

    def restore_the_slave(self) -> None:
        with self.load.step("back from step 1", 15, 2):
            follow("# on b\nsystemctl disable --now pybroker\nsystemctl", self.machines)

    def fail_over(self) -> None:
        with self.load.step("step 2", 10, 10):
            follow("# on a\nsystemctl disable --now activemq", self.machines)
            self.b.wait_for("pybroker", "listening on")
        self.load.publish("from pybroker")
        with pytest.raises(LoginRefused):
            connect(f"tcp://127.0.0.1:{self.b.openwire}", user=USER, password="another")
        with pytest.raises(NotAuthorized):
            self.load.connections["OpenWire"].send("SECRET", "x", timeout=PATIENCE_SECONDS)

    def replace_the_other(self) -> None:
        with self.load.step("step 3", 10, 2):
            follow("# on a\nsystemctl enable --now pybroker", self.machines)

    def go_back(self, part: str) -> None:
        self.load.schedule("due after the way back", 8)
        with self.load.step("back from step 2 or 3", 30, 30):
            follow(part, self.machines)
        self.load.publish("from ActiveMQ again")


@pytest.fixture
def running() -> Iterator[ExitStack]:
    """Brokers and clients that are closed at the end of the test."""
    with ExitStack() as stack:
        yield stack


@pytest.mark.component("activemq")
def test_the_page_on_a_shared_directory(running: ExitStack, tmp_path: Path) -> None:
    share = tmp_path / "share"
    share.mkdir()
    pair = Pair({name: Machine(name, tmp_path / name, share, configuration(KAHADB)) for name in "ab"}, running)
    follow("pybroker doctor", pair.machines)
    pair.replace_the_slave()
    compare("but process 4711", pair.b)
    pair.restore_the_slave()
    pair.replace_the_slave()
    pair.load.schedule("due after the failover", 3)
    pair.fail_over()
    pair.go_back("--user activemq\n")
    pair.replace_the_slave()
    pair.fail_over()
    pair.replace_the_other()
    compare("master: b at", pair.a)
    pair.go_back("--user activemq\n")
    pair.load.end()


@pytest.mark.component("activemq-jdbc")
def test_the_page_on_postgresql(running: ExitStack, tmp_path: Path, postgres_database: PostgresDatabase) -> None:
    extensions, password = tmp_path / "lib", tmp_path / "pgpass"
    extensions.mkdir()
    for each in JDBC_JARS:
        (extensions / each).symlink_to(JAR_DIRECTORY / each)
    password.write_text(f"*:*:*:*:{DATABASE_PASSWORD}\n")
    password.chmod(0o600)
    port, name = postgres_database.cluster.port, postgres_database.name
    url = f"postgresql://{DATABASE_USER}@127.0.0.1:{port}/{name}"
    files = configuration(DATABASE, SOURCE.format(port=port, name=name, user=DATABASE_USER, password=DATABASE_PASSWORD))

    def machine(of: str) -> Machine:
        return Machine(
            of,
            tmp_path / of,
            tmp_path / of / "opt" / "activemq" / "data",
            files,
            paths={
                "postgresql://activemq@db.example/activemq": url,
                "postgresql://db.example:5432/activemq": f"postgresql://127.0.0.1:{port}/{name}",
            },
            environment={"PGPASSFILE": str(password)},
            extensions=extensions,
        )

    pair = Pair({name: machine(name) for name in "ab"}, running)
    pair.replace_the_slave()
    follow("pybroker doctor", pair.machines)
    compare("PostgreSQL JDBC Driver", pair.b)
    pair.restore_the_slave()
    pair.replace_the_slave()
    pair.fail_over()
    pair.replace_the_other()
    pair.go_back("--jobs-to")
    pair.load.end()
