"""Placeholders with values in the file itself, and `#` at the beginning of a value: ActiveMQ 5.17.2 reads the same."""

import pytest

from pybroker.activemq_xml.elements import BEANS, CORE
from pybroker.activemq_xml.findings import FindingKind
from pybroker.activemq_xml.reading import Reading
from tests.unit.activemq_xml.reading_bench import CONNECTORS, distinct_places, read_files, why_at

CLASS = "org.springframework.beans.factory.config.PropertyPlaceholderConfigurer"
LOCATION = '<property name="location" value="file:${activemq.conf}/p.properties"/>'
INLINE = '<property name="properties"><props><prop key="x">inline</prop></props></property>'


def with_beans(beans: str, name: str, home: str = "") -> Reading:
    """Return what is read of a broker with a name, and a properties file beside it."""
    broker = f'<broker xmlns="{CORE}" persistent="false" brokerName="{name}">{CONNECTORS}</broker>'
    text = f'<beans xmlns="{BEANS}">{beans}{broker}</beans>'
    return read_files({"activemq.xml": text, "p.properties": "x=file"}, HOME=home)


def configurer(*properties: str) -> str:
    return f'<bean class="{CLASS}">{"".join(properties)}</bean>'


def inline(value: str) -> str:
    return f'<property name="properties">{value}</property>'


@pytest.mark.parametrize(
    ("beans", "name", "expected"),
    [
        (configurer(inline('<props><prop key="x"> one </prop></props>')), "${x}", "one"),
        (configurer(inline('<props><prop key="x">a</prop><prop key="y">${x}b</prop></props>')), "${y}", "ab"),
        (configurer(inline("<value>\n# comment\n x : t\\u0077o\n y = a\\\n  b\n</value>")), "${x}-${y}", "two-ab"),
        (configurer(inline("<value>x=one\nx=two</value>")), "${x}", "two"),
        (configurer('<property name="properties" value="x=one"/>'), "${x}", "one"),
        (configurer(LOCATION, INLINE), "${x}", "file"),
        (configurer(LOCATION, INLINE, '<property name="localOverride" value="true"/>'), "${x}", "inline"),
        (configurer(INLINE) + configurer(LOCATION), "${x}", "inline"),
        (configurer(LOCATION) + configurer(INLINE), "${x}", "file"),
        (configurer(inline('<props><prop key="HOME">inline</prop></props>')), "${HOME}", "inline"),
    ],
)
def test_values_of_the_bean_itself_are_filled_in(beans: str, name: str, expected: str) -> None:
    reading = with_beans(beans, name, home="environment")
    assert reading.settings["broker_name"] == expected
    assert distinct_places(reading, FindingKind.REFUSED) == set()


def test_values_that_nothing_uses_need_no_value() -> None:
    unused = inline('<props><prop key="x">one</prop><prop key="y">${nowhere}</prop></props>')
    assert distinct_places(with_beans(configurer(unused), "${x}"), FindingKind.REFUSED) == set()


def test_encrypted_value_of_the_bean_needs_the_master_password() -> None:
    reading = with_beans(configurer(inline('<props><prop key="x">ENC(abc=)</prop></props>')), "${x}")
    assert "ACTIVEMQ_ENCRYPTION_PASSWORD" in why_at(reading, "broker@brokerName")


@pytest.mark.parametrize(
    "value",
    [inline("<map/>"), inline(""), '<property name="properties" ref="p"/>', inline("<value>x=\\u00</value>")],
)
def test_values_in_other_forms_are_refused(value: str) -> None:
    assert "bean" in distinct_places(with_beans(configurer(value), "x"), FindingKind.REFUSED)


def test_properties_that_change_the_rules_are_a_warning() -> None:
    mode = '<property name="systemPropertiesModeName" value="SYSTEM_PROPERTIES_MODE_%s"/>'
    assert "is not read" in why_at(with_beans(configurer(mode % "OVERRIDE"), "x"), "bean")
    assert why_at(with_beans(configurer(mode % "FALLBACK"), "x"), "bean") == ""


@pytest.mark.parametrize(
    ("written", "meant"),
    [("##x", "#x"), ("###x", "##x"), ("##", "#"), (" #x", " #x"), ("a##b", "a##b"), ("${x}", "#v"), ("${y}", "##v")],
)
def test_text_may_begin_with_a_hash(written: str, meant: str) -> None:
    values = configurer(inline('<props><prop key="x">#v</prop><prop key="y">##v</prop></props>'))
    user = f'<authenticationUser username="u" password="{written}" groups="g"/>'
    plugins = f"<plugins><simpleAuthenticationPlugin><users>{user}</users></simpleAuthenticationPlugin></plugins>"
    broker = f'<broker xmlns="{CORE}" persistent="false">{CONNECTORS}{plugins}</broker>'
    reading = read_files({"activemq.xml": f'<beans xmlns="{BEANS}">{values}{broker}</beans>'})
    assert distinct_places(reading, FindingKind.REFUSED) == set()
    assert reading.protection.users is not None
    assert [each.password for each in reading.protection.users] == [meant]


@pytest.mark.parametrize(
    ("written", "why"), [("#", "write ##"), ("#x", "names a bean"), ("a#{1}", "does not evaluate")]
)
def test_hash_that_is_no_text_is_refused(written: str, why: str) -> None:
    assert why in why_at(with_beans(configurer(), written), "broker@brokerName")
