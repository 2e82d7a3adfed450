"""The report of `pybroker adopt`, and the files that it writes."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pybroker.activemq_xml import destination_policy
from pybroker.broker.app.activemq_configuration import addresses_in
from pybroker.broker.app.cli import commands
from pybroker.broker.app.config import load
from pybroker.broker.app.fingerprints import Digests, SecurityDigests
from pybroker.broker.app.security_files import SecurityFiles

PAGE = Path(__file__).parents[3] / "docs" / "activemq-xml.md"

CONFIGURATION = """<beans xmlns="http://www.springframework.org/schema/beans">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="orders" useJmx="true">
    <destinationPolicy><policyMap><policyEntries>
      <policyEntry queue="ORDERS.>" memoryLimit="64mb" maxPageSize="500"/>
    </policyEntries></policyMap></destinationPolicy>
    <persistenceAdapter><kahaDB directory="STORE/kahadb"/></persistenceAdapter>
    <plugins><statisticsBrokerPlugin/></plugins>
    <transportConnectors>
      <transportConnector name="openwire" uri="tcp://0.0.0.0:61616?maximumConnections=1000"/>
      <transportConnector name="http" uri="http://0.0.0.0:8162"/>
    </transportConnectors>
  </broker>
</beans>
"""


@pytest.fixture
def amq(tmp_path: Path) -> Path:
    """Make an installation, with a store beside it."""
    (tmp_path / "shared" / "kahadb").mkdir(parents=True)
    for name, text in (("conf/activemq.xml", CONFIGURATION.replace("STORE", f"{tmp_path}/shared")), ("bin/env", "")):
        (tmp_path / "amq" / name).parent.mkdir(parents=True)
        (tmp_path / "amq" / name).write_text(text)
    return tmp_path / "amq"


def adopt(*arguments: object) -> Result:
    return CliRunner().invoke(commands, ["adopt", *map(str, arguments)])


def test_the_page_shows_what_the_command_prints(amq: Path) -> None:
    (block,) = re.findall(r"```console\n\$ pybroker adopt /opt/activemq\n(.*?)```", PAGE.read_text(), re.DOTALL)
    shown = block.replace("/opt/activemq", str(amq)).replace("/mnt/shared", str(amq.parent / "shared"))
    assert adopt(amq).output == shown


def test_nothing_is_changed_without_being_asked_to(amq: Path) -> None:
    before = sorted(amq.parent.rglob("*"))
    assert adopt(amq, "--check").exit_code == 3
    assert sorted(amq.parent.rglob("*")) == before


def test_what_is_written_starts_a_broker(amq: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert adopt(amq, "--out", out).exit_code == 0
    config = load(out / "pybroker.toml", {}, {})
    assert (config.openwire, config.store) == (61616, f"{tmp_path}/shared")
    again = adopt(amq, "--out", out)
    assert isinstance(again.exception, Exception)
    assert "is there already" in str(again.exception)


def test_json_has_each_setting_with_its_place(amq: Path) -> None:
    found = json.loads(adopt(amq, "--json").output)
    assert found["settings"]["openwire"] == {"value": 61616, "line": 9, "at": "transportConnector[openwire]@uri"}
    assert {(each["kind"], each["at"]) for each in found["findings"]} == {
        ("warning", "transportConnector[http]"),
        ("ignored", "broker@useJmx"),
        ("ignored", "policyEntry[ORDERS.>]@maxPageSize"),
    }
    assert found["exit_code"] == 3


def test_what_is_not_supported_is_not_written_unless_it_is_accepted(amq: Path, tmp_path: Path) -> None:
    file = amq / "conf" / "activemq.xml"
    network = '<networkConnectors><networkConnector uri="multicast://default"/></networkConnectors>'
    file.write_text(file.read_text().replace("<plugins>", f"{network}<plugins>"))
    assert adopt(amq, "--check").exit_code == 4
    assert "Not supported" in adopt(amq).output
    assert "does not start with this configuration" in str(adopt(amq, "--out", tmp_path / "out").exception)
    assert not (tmp_path / "out").exists()
    for option in ("--accept=networkConnector", "--without-network"):
        assert adopt(amq, "--check", option).exit_code == 3
        assert adopt(amq, "--out", tmp_path / option, option).exit_code == 0


def test_accept_without_effect_is_a_warning(amq: Path) -> None:
    """A misspelt place, and one of what is not refused anyway."""
    file = amq / "conf" / "activemq.xml"
    network = '<networkConnectors><networkConnector uri="multicast://default"/></networkConnectors>'
    file.write_text(file.read_text().replace("<plugins>", f"{network}<plugins>"))
    near = "--accept networkconnectors: nothing is refused there; did you mean networkConnector?"
    far = "--accept kahaDB: nothing is refused there"
    options = ("--accept=networkconnectors", "--accept=kahaDB")
    assert f"\nWithout effect, of --accept:\n  {far}\n  {near}\n" in adopt(amq, *options).output
    assert json.loads(adopt(amq, "--json", *options).output)["accept_without_effect"] == [far, near]
    assert "Without effect" not in adopt(amq, "--accept=networkConnector").output


def test_passwords_of_connectors_are_not_written(amq: Path, tmp_path: Path) -> None:
    file = amq / "conf" / "activemq.xml"
    connector = '<networkConnector uri="static:(tcp://h:1)" userName="u" password="secret-word"/>'
    network = f"<networkConnectors>{connector}</networkConnectors>"
    file.write_text(file.read_text().replace("<plugins>", f"{network}<plugins>"))
    assert "passwords:     those of network connectors" in adopt(amq, "--out", tmp_path / "out").output
    written = tmp_path / "out" / "pybroker.toml"
    assert "secret-word" not in written.read_text()
    (connector_read,) = load(written, {}, {}).network
    assert (connector_read.name, connector_read.user_name) == ("NC", "u")


VIRTUAL = """<destinationInterceptors>
  <virtualDestinationInterceptor><virtualDestinations>
    <compositeQueue name="A"><forwardTo>
      <queue physicalName="B"/>
      <filteredDestination queue="C"
                           selector="%s"/>
    </forwardTo></compositeQueue>
  </virtualDestinations></virtualDestinationInterceptor>
  <mirroredQueue prefix="%s"/>
</destinationInterceptors>
<destinationPolicy>"""


def test_selector_that_is_not_valid_has_line_and_column(amq: Path, tmp_path: Path) -> None:
    path, out = amq / "conf" / "activemq.xml", tmp_path / "out"
    path.write_text(path.read_text().replace("<destinationPolicy>", VIRTUAL % ("a = =", "M,")))
    report = adopt(amq).output.partition("Different:")[0]
    selector = "expected a value, found '=' at column 5"
    assert f"  line 7: filteredDestination[C]@selector: {selector}\n" in report
    assert "  line 11: mirroredQueue: 'M,ORDERS' has a comma" in report
    accepted = ("--accept", "filteredDestination", "--accept", "mirroredQueue")
    assert adopt(amq, "--out", out, *accepted).exit_code == 0
    config = load(out / "pybroker.toml", {}, {})
    assert [[str(each.destination) for each in one.forward_to] for one in config.composite_queues] == [["queue://B"]]
    assert config.mirrored_queues is None


def test_valid_entries_stay_beside_one_that_is_not(amq: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(destination_policy, "FIELDS", {"memoryLimit": str})
    path = amq / "conf" / "activemq.xml"
    more = '<policyEntry queue="B" memoryLimit="huge"/>\n<policyEntry queue="C" memoryLimit="1mb"/></policyEntries>'
    path.write_text(path.read_text().replace("</policyEntries>", more))
    found = json.loads(adopt(amq, "--json").output)
    assert [each["queue"] for each in found["settings"]["policies"]["value"]] == ["ORDERS.>", "C"]
    ((line, at),) = [(each["line"], each["at"]) for each in found["findings"] if each["kind"] == "refused"]
    assert (line, at) == (5, "policyEntry[B]")


SECURED = """<plugins><simpleAuthenticationPlugin><users>
      <authenticationUser username="u" password="p" groups="g"/></users></simpleAuthenticationPlugin></plugins>
    <sslContext><sslContext keyStore="CONF/broker.ks" keyStorePassword="s3cret"/></sslContext>"""


@pytest.mark.parametrize("made", [False, True])
def test_a_key_store_that_cannot_be_used_is_in_the_report(amq: Path, tmp_path: Path, *, made: bool) -> None:
    file = amq / "conf" / "activemq.xml"
    text = file.read_text().replace("<plugins><statisticsBrokerPlugin/></plugins>", SECURED)
    file.write_text(text.replace("CONF", str(file.parent)).replace("tcp://", "ssl://"))
    if made:
        (file.parent / "broker.ks").write_text("nothing of the kind")
    assert adopt(amq, "--check").exit_code == 4
    refused = adopt(amq, "--out", tmp_path / "out")
    assert f"sslContext@keyStore: {file.parent}/broker.ks: " in refused.output
    assert "does not start with this configuration" in str(refused.exception)
    assert not (tmp_path / "out").exists()  # so that it can be asked again once the store is right


JAAS = """activemq {
  org.apache.activemq.jaas.PropertiesLoginModule required
    org.apache.activemq.jaas.properties.user="users.properties"
    org.apache.activemq.jaas.properties.group="groups.properties";
};"""


def test_users_whose_passwords_others_may_read_are_in_the_report(amq: Path, tmp_path: Path) -> None:
    file = amq / "conf" / "activemq.xml"
    file.write_text(
        file.read_text().replace("<plugins>", '<plugins><jaasAuthenticationPlugin configuration="activemq"/>')
    )
    for name, text in (("login.config", JAAS), ("users.properties", "u=p\n"), ("groups.properties", "g=u\n")):
        (file.parent / name).write_text(text)
    users = file.parent / "users.properties"
    users.chmod(0o644)
    arguments = (amq, f"--property=java.security.auth.login.config={file.parent}/login.config")
    assert adopt(*arguments, "--check").exit_code == 4
    assert (
        f"others than its owner may read it: chmod 600 {users}" in adopt(*arguments, "--out", tmp_path / "out").output
    )
    users.chmod(0o600)
    assert adopt(*arguments, "--out", tmp_path / "out").exit_code == 0


def test_the_report_asks_for_the_password_of_a_database(amq: Path, tmp_path: Path) -> None:
    file = amq / "conf" / "activemq.xml"
    bean = """<bean id="db" class="org.postgresql.ds.PGSimpleDataSource"><property name="user" value="u"/>
      <property name="url" value="jdbc:postgresql://h/d"/><property name="password" value="s3cret"/></bean><broker """
    adapter = '<jdbcPersistenceAdapter dataSource="#db"/>'
    text = file.read_text().replace("<broker ", bean, 1)
    file.write_text(re.sub("<kahaDB .*?/>", adapter, text))
    output = adopt(amq, "--out", tmp_path / "out").output
    assert "put it into a file that PGPASSFILE names" in output
    assert "s3cret" not in output


def test_the_report_names_no_password(amq: Path) -> None:
    file = amq / "conf" / "activemq.xml"
    file.write_text(file.read_text().replace('brokerName="orders"', 'brokerName="orders" foo="s3cret-word"'))
    assert "s3cret-word" not in adopt(amq).output
    assert tomllib.loads("\n".join(adopt(amq).output.partition("# Settings")[2].splitlines()[1:]))


def test_members_are_those_of_openwire_brokers() -> None:
    assert addresses_in("tcp://a:61616, ssl://b.example:61617?x=1,tcp://[::1]:5,tcp://c") == {
        "a:61616",
        "b.example:61617",
        "[::1]:5",
    }
    assert addresses_in("") == frozenset()


def with_users(amq: Path) -> None:
    """Give the installation a user."""
    path = amq / "conf" / "activemq.xml"
    user = '<authenticationUser username="shop" password="s3cret" groups="shops"/>'
    plugin = f"<simpleAuthenticationPlugin><users>{user}</users></simpleAuthenticationPlugin>"
    path.write_text(path.read_text().replace("<plugins>", f"<plugins>{plugin}"))


def test_refused_configuration_leaves_no_files(amq: Path, tmp_path: Path) -> None:
    """A selector that is not valid, and a key store that cannot be used, are found after all else was read."""
    with_users(amq)
    path, out = amq / "conf" / "activemq.xml", tmp_path / "out"
    given = path.read_text()
    filtered = '<filteredDestination queue="B" selector="a = ="/>'
    composite = f'<compositeQueue name="A"><forwardTo>{filtered}</forwardTo></compositeQueue>'
    virtual = f"<virtualDestinationInterceptor><virtualDestinations>{composite}</virtualDestinations>"
    interceptors = f"<destinationInterceptors>{virtual}</virtualDestinationInterceptor></destinationInterceptors>"
    path.write_text(given.replace("<destinationPolicy>", f"{interceptors}<destinationPolicy>"))
    assert "does not start with this configuration" in str(adopt(amq, "--out", out).exception)
    assert not out.exists()
    (amq / "conf" / "keys.p12").write_bytes(b"no key store")
    tls = f'<sslContext><sslContext keyStore="{amq}/conf/keys.p12" keyStorePassword="password"/></sslContext>'
    path.write_text(
        given.replace("<transportConnectors>", f"{tls}<transportConnectors>").replace('uri="http:', 'uri="ssl:')
    )
    assert "does not start with this configuration" in str(adopt(amq, "--out", out).exception)
    assert not out.exists()


@pytest.mark.parametrize("name", ["pybroker.toml", "users.toml"])
def test_file_that_is_there_keeps_all_from_being_written(amq: Path, tmp_path: Path, name: str) -> None:
    with_users(amq)
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text("mine")
    assert f"{name} is there already" in str(adopt(amq, "--out", out).exception)
    assert [each.read_text() for each in out.iterdir()] == ["mine"]


def users_digests(out: Path) -> Digests:
    return SecurityDigests(SecurityFiles(load(out / "pybroker.toml", {}, {}))).digests()


def test_members_have_the_same_users_after_the_copy(amq: Path, tmp_path: Path) -> None:
    with_users(amq)
    a, b = tmp_path / "a", tmp_path / "b"
    for out in (a, b):
        assert "For a pair, copy users.toml to the other member" in adopt(amq, "--out", out).output
    assert users_digests(a) != users_digests(b)
    (b / "users.toml").write_bytes((a / "users.toml").read_bytes())
    assert users_digests(a) == users_digests(b)
    assert "copy users.toml" not in adopt(amq).output


def test_a_value_that_is_no_unicode_leaves_no_file(amq: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = amq / "conf" / "activemq.xml"
    path.write_text(path.read_text().replace("/shared/kahadb", "/shared/${X}/kahadb"))
    monkeypatch.setenv("X", "a\udcff")  # Python's form of the byte 0xFF
    refused = str(adopt(amq, "--out", amq.parent / "out").exception)
    assert "cannot be written: TOML has only what is Unicode" in refused
    assert r"shared/a\udcff" in refused
    assert not (amq.parent / "out").exists()
    found = json.loads(adopt(amq, "--json").output)
    assert found["settings"]["store"]["value"].endswith("a\udcff")


def test_the_name_of_the_configuration_may_be_anything(amq: Path) -> None:
    moved = amq.rename(amq.with_name("a\udcff\nstomp = 1"))
    assert adopt(moved, "--out", amq.parent / "out").exit_code == 0
    first, *_ = (amq.parent / "out" / "pybroker.toml").read_text().splitlines()
    assert first.endswith("/a  stomp = 1/conf/activemq.xml")
    assert load(amq.parent / "out" / "pybroker.toml", {}, {}).openwire == 61616
