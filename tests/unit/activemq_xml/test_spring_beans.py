"""Beans and imports beside the broker of an `activemq.xml`."""

import pytest

from pybroker.activemq_xml.elements import BEANS
from pybroker.activemq_xml.findings import FindingKind
from pybroker.activemq_xml.imports import FILES_MAX
from tests.unit.activemq_xml.reading_bench import distinct_places, imported, read, read_files, text_of, why_at

REFUSED, WARNING, IGNORED = FindingKind.REFUSED, FindingKind.WARNING, FindingKind.IGNORED
JETTY = """<bean id="jettyPort" class="org.apache.activemq.web.WebConsolePort" init-method="start">
<property name="host" value="127.0.0.1"/><property name="port" value="8161"/></bean>"""
OLD_JETTY = """<bean id="Server" class="org.eclipse.jetty.server.Server"><property name="connectors"><list>
<bean id="Connector" class="org.eclipse.jetty.server.nio.SelectChannelConnector"><property name="port" value="8161"/>
</bean></list></property></bean>"""
NEW_CONNECTOR = """<bean id="Connector" class="org.eclipse.jetty.server.ServerConnector">
<property name="host" value="#{systemProperties['jetty.host']}"/>
<property name="port" value="#{systemProperties['jetty.port']}"/></bean>"""


@pytest.mark.parametrize(
    ("beans", "console"),
    [
        (JETTY, "127.0.0.1:8161"),
        (NEW_CONNECTOR + JETTY, "127.0.0.1:8161"),
        (JETTY.replace("127.0.0.1", "::1"), "[::1]:8161"),
        (JETTY.replace("8161", "${console.port:8162}"), "127.0.0.1:8162"),
        (JETTY.replace("8161", "${console.port}"), ""),
        (OLD_JETTY, "0.0.0.0:8161"),
        (NEW_CONNECTOR, ""),
        ("", ""),
    ],
)
def test_jetty_is_ignored_but_for_its_address(beans: str, console: str) -> None:
    text = text_of("", beside='<import resource="jetty.xml"/>')
    reading = read_files({"activemq.xml": text, "jetty.xml": imported(beans)})
    assert reading.console == console
    assert "import jetty.xml" in distinct_places(reading, IGNORED)
    assert "management" not in reading.settings


@pytest.mark.parametrize("resource", ["jetty.xml", "file:${activemq.base}/conf/jetty.xml", "classpath:jetty.xml"])
def test_jetty_that_cannot_be_read_is_ignored(resource: str) -> None:
    reading = read("", beside=f'<import resource="{resource}"/>')
    assert "import jetty.xml" in distinct_places(reading, IGNORED)
    assert reading.console == ""
    assert not distinct_places(reading, WARNING) | distinct_places(reading, REFUSED)


def test_routes_are_a_warning() -> None:
    text = text_of("", beside='<import resource="camel.xml"/>')
    routes = '<camelContext xmlns="http://camel.apache.org/schema/spring"><route/></camelContext>'
    for files in ({"activemq.xml": text, "camel.xml": imported(routes)}, {"activemq.xml": text}):
        reading = read_files(files)
        assert distinct_places(reading, WARNING) == {"import camel.xml"}
        assert not distinct_places(reading, REFUSED)


def test_import_that_does_not_parse_is_a_warning() -> None:
    reading = read_files({"activemq.xml": text_of("", beside='<import resource="own.xml"/>'), "own.xml": "<a>"})
    assert distinct_places(reading, WARNING) == {"import own.xml"}
    assert "line 1" in why_at(reading, "import own.xml")


def test_import_without_a_known_place_is_refused() -> None:
    reading = read("", beside='<import resource="${where}/own.xml"/>')
    assert "import@resource" in distinct_places(reading, REFUSED)
    assert "import own.xml" in distinct_places(reading, WARNING)


def test_file_that_imports_itself_is_refused() -> None:
    """As by ActiveMQ 5.17.2, which says "Detected cyclic loading"; the same file twice is no cycle."""
    own = text_of("", beside='\n<import resource="activemq.xml"/>')
    (found,) = [each for each in read_files({"activemq.xml": own}).findings if each.kind is REFUSED]
    assert (found.line, found.at) == (4, "import activemq.xml")
    back = {"activemq.xml": text_of("", beside='<import resource="other.xml"/>')}
    reading = read_files(back | {"other.xml": imported('<import resource="activemq.xml"/>')})
    assert distinct_places(reading, REFUSED) == {"import activemq.xml"}
    twice = {"activemq.xml": text_of("", beside=2 * '<import resource="other.xml"/>'), "other.xml": imported()}
    assert not distinct_places(read_files(twice), REFUSED)


LIST = '<bean id="%s" name="%s" class="java.util.ArrayList"/>\n'
OWN_PLUGIN = f"<plugins><bean xmlns='{BEANS}' id='a' class='a.B'/></plugins>"
PLUGIN = "<plugins><loggingBrokerPlugin id='%s'/></plugins>"


@pytest.mark.parametrize(
    ("beside", "content", "broker", "line"),
    [
        (LIST % ("a", "") + LIST % ("a", ""), "", "", 4),
        (LIST % ("a", "") + LIST % ("b", "c,a"), "", "", 4),
        (LIST % ("b", "a") + LIST % ("c", "a"), "", "", 4),
        (LIST % ("a", ""), "", 'id="a"', 5),
        (LIST % ("a", ""), PLUGIN % "a", "", 6),
        (LIST % ("a", ""), OWN_PLUGIN, "", 6),
        ("", "<plugins><loggingBrokerPlugin id='a'/>\n<statisticsBrokerPlugin id='a'/></plugins>", "", 6),
    ],
)
def test_name_of_two_beans_is_refused(beside: str, content: str, broker: str, line: int) -> None:
    """As by ActiveMQ 5.17.2, which was tried with each."""
    reading = read(content, attributes=broker, beside=beside)
    (found,) = [each for each in reading.findings if each.kind is REFUSED and "ActiveMQ refuses it too" in each.why]
    assert found.line == line


@pytest.mark.parametrize(
    "beside",
    [
        LIST % ("a", "a"),
        LIST % ("a", "") + f'<bean class="b.C"><constructor-arg>{LIST % ("a", "")}</constructor-arg></bean>',
        LIST % ("a", "") + '<import resource="other.xml"/>',
    ],
)
def test_name_that_is_no_other_beans_is_fine(beside: str) -> None:
    files = {"activemq.xml": text_of("", beside=beside), "other.xml": imported(LIST % ("a", ""))}
    assert not distinct_places(read_files(files), REFUSED)


def test_imports_are_read_up_to_a_limit() -> None:
    files = {"activemq.xml": text_of("", beside='<import resource="1.xml"/>')}
    files |= {f"{n}.xml": imported(f'<import resource="{n + 1}.xml"/>') for n in range(1, 2 * FILES_MAX)}
    assert "import 1.xml" in distinct_places(read_files(files), IGNORED)
    assert f"import {FILES_MAX}.xml" in distinct_places(read_files(files), IGNORED)
    assert f"import {FILES_MAX + 1}.xml" not in distinct_places(read_files(files), IGNORED)


@pytest.mark.parametrize(
    ("bean", "at"),
    [
        (
            '<bean id="logQuery" lazy-init="false" class="io.fabric8.insight.log.log4j.Log4jLogQuery"/>',
            "bean[logQuery]",
        ),
        ('<bean class="org.apache.activemq.hooks.SpringContextHook"/>', "bean[SpringContextHook]"),
        ('<bean id="c" class="x.ConfigurationProperties"/>', "bean[c]"),
        ('<bean id="e" class="org.jasypt.encryption.pbe.StandardPBEStringEncryptor"/>', "bean[e]"),
    ],
)
def test_bean_without_effect_is_ignored(bean: str, at: str) -> None:
    reading = read("", beside=bean)
    assert at in distinct_places(reading, IGNORED)
    assert not distinct_places(reading, WARNING) | distinct_places(reading, REFUSED)


@pytest.mark.parametrize(
    ("bean", "at"),
    [
        ('<bean id="own" class="own.Thing"/>', "bean[own]"),
        ('<bean name="a, b" class="own.Thing"/>', "bean[a]"),
        ('<bean class="own.Thing"/>', "bean[Thing]"),
        (
            '<amq:connectionFactory xmlns:amq="http://activemq.apache.org/schema/core" id="cf"/>',
            "connectionFactory[cf]",
        ),
        ('<camelContext xmlns="http://camel.apache.org/schema/spring" id="camel"/>', "camelContext[camel]"),
    ],
)
def test_other_bean_is_a_warning(bean: str, at: str) -> None:
    reading = read("", beside=bean)
    assert distinct_places(reading, WARNING) == {at}
    assert not distinct_places(reading, REFUSED)


def test_bean_that_the_broker_refers_to_is_refused() -> None:
    bean = '<bean id="own" class="own.Thing"/>'
    by_attribute = read("", attributes='sslContext="#own"', beside=bean)
    by_element = read(f'<services><ref xmlns="{BEANS}" bean="own"/></services>', beside=bean)
    for reading, others in ((by_attribute, set[str]()), (by_element, {"services"})):
        assert distinct_places(reading, REFUSED) == {"bean[own]"} | others
        assert "line 4 refers" in why_at(reading, "bean[own]") or "line 5 refers" in why_at(reading, "bean[own]")


def test_bean_of_an_attribute_without_effect_is_a_warning() -> None:
    reading = read("", attributes='taskRunnerFactory="#own"', beside='<bean id="own" class="own.Thing"/>')
    assert distinct_places(reading, WARNING) == {"bean[own]"}
    assert not distinct_places(reading, REFUSED)


def test_bean_that_is_nowhere_is_refused_without_its_name() -> None:
    reading = read("", attributes='sslContext="#own-secret"')
    assert distinct_places(reading, REFUSED) == {"broker@sslContext"}
    assert "own-secret" not in "".join(map(str, reading.findings))


def test_bean_within_the_broker_may_be_referred_to() -> None:
    body = (
        '<persistenceAdapter><kahaDB id="k" directory="/mnt/kahadb"/></persistenceAdapter><systemUsage><systemUsage>'
        '<storeUsage><storeUsage limit="1 gb" store="#k"/></storeUsage></systemUsage></systemUsage>'
    )
    assert not distinct_places(read(body), REFUSED)


@pytest.mark.parametrize("value", ["##x", "#", "x#y", "#{env.x}"])
def test_value_that_refers_to_nothing_is_none(value: str) -> None:
    reading = read("", attributes=f'brokerId="{value}"')
    assert "names a bean" not in "".join(map(str, reading.findings))


@pytest.mark.parametrize(
    ("body", "attributes", "why"),
    [
        ("", "", "nothing in the broker refers to it"),
        ('<jdbcPersistenceAdapter dataSource="#db"/>', 'persistent="false"', "what refers to it has no effect"),
    ],
)
def test_unused_data_source_is_said_to_be_unused(body: str, attributes: str, why: str) -> None:
    beside = '<bean id="db" class="org.apache.commons.dbcp2.BasicDataSource"/>'
    body = f"<persistenceAdapter>{body}</persistenceAdapter>" if body else ""
    reading = read(body, attributes=attributes, beside=beside)
    assert distinct_places(reading, WARNING) >= {"bean[db]"}
    assert why_at(reading, "bean[db]") == f"{why}, so that no store is in its database"
