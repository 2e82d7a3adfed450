"""Files that are not as they should be: each is read as it stands, or refused with the line; no secret is shown."""

import random
import sys
import traceback
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape, quoteattr

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.activemq_xml.elements import BEANS, CORE
from pybroker.activemq_xml.findings import FindingKind
from pybroker.activemq_xml.reading import Reading
from pybroker.broker.domain.errors import ConfigError
from tests.unit.activemq_xml.reading_bench import CONNECTORS, file, interpreted, of_broker, reasons

SAMPLES: Final = {
    each.stem: each.read_text()
    for each in sorted((Path(__file__).parents[2] / "golden" / "activemq-xml").glob("*.xml"))
}
SECRET: Final = "s3cret-w0rd"
FILLERS: Final = ("", "", "\n  ", '<!-- queue="x" & <b> -->', "<?tool on?>", "\t<!---->\r\n")
ENVIRONMENT: Final = {"HOSTNAME": "node-a", "DB_PASSWORD": SECRET}


def sample(text: str) -> Reading:
    return interpreted(text, environment=ENVIRONMENT)


# ---------------------------------------------------------------- the same in other words


class Rewriter:
    """Writes a document again in other words: order, prefixes, comments, CDATA, blanks."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def written(self, root: ET.Element) -> str:
        prefixes = {BEANS: self._random.choice(("", "b")), CORE: self._random.choice(("", "amq"))}
        return f"<?xml version='1.0' encoding='UTF-8'?>{self._filler()}{self._element(root, prefixes, set())}"

    def _element(self, element: ET.Element, prefixes: dict[str, str], known: set[str]) -> str:
        namespace, _, name = element.tag.removeprefix("{").rpartition("}")
        prefix = prefixes.get(namespace, "")
        attributes = [(key, value) for key, value in element.attrib.items() if "}" not in key]
        if not prefix:
            attributes.append(("xmlns", namespace))
        elif namespace not in known:
            attributes.append((f"xmlns:{prefix}", namespace))
        self._random.shuffle(attributes)
        start = "".join(f"{self._random.choice((' ', chr(10)))}{key}={quoteattr(value)}" for key, value in attributes)
        children = list(element)
        if name in ("broker", "systemUsage", "policyEntry"):
            self._random.shuffle(children)
        inside = "".join(
            self._filler() + self._element(each, prefixes, known | {namespace} if prefix else known)
            for each in children
        )
        tag = f"{prefix}:{name}" if prefix else name
        return f"<{tag}{start}>{self._text(element.text or '')}{inside}{self._filler()}</{tag}>"

    def _text(self, text: str) -> str:
        if not text.strip() or self._random.random() < 0.5:
            return escape(text)
        return f"{self._filler()}<![CDATA[{text.strip()}]]>{self._filler()}"

    def _filler(self) -> str:
        return self._random.choice(FILLERS)


def meaning(reading: Reading) -> tuple[object, ...]:
    """Return what a file means, whatever its lines are."""
    found = Counter((each.kind, each.at, each.why) for each in reading.findings)
    protection = repr(reading.protection)  # it shows no lines
    return reading.settings, found, reading.secrets, protection, reading.console


@pytest.mark.parametrize("name", SAMPLES)
@given(seed=st.integers(0, 2**32))
def test_interpretation_does_not_change_with_the_words(name: str, seed: int) -> None:
    text = Rewriter(seed).written(ET.fromstring(SAMPLES[name]))
    assert meaning(sample(text)) == meaning(sample(SAMPLES[name])), text


# ---------------------------------------------------------------- any text

SECRETS: Final = file(
    f"""
<bean class="org.apache.commons.dbcp2.BasicDataSource" id="ds">
  <property name="url" value="jdbc:postgresql://amq:{SECRET}@db/amq?password={SECRET}&amp;sslpassword={SECRET}"/>
  <property name="password" value="{SECRET}"/><property name="connectionProperties"><value>p={SECRET}</value></property>
</bean>
<bean id="p" class="org.example.Vault"><constructor-arg value="{SECRET}"/>
  <property name="token" value="{SECRET}"/></bean>
<broker xmlns="{CORE}" brokerName="orders">
  <persistenceAdapter><jdbcPersistenceAdapter dataSource="#ds"/></persistenceAdapter>
  <plugins>
    <simpleAuthenticationPlugin anonymousAccessAllowed="maybe"><users>
      <authenticationUser username="system" password="{SECRET}" groups="admins"/>
      <authenticationUser username="" password="{SECRET}" groups="a"/>
      <authenticationUser username="other" password="${{nothing:{SECRET}}}" passwrd="{SECRET}"/>
    </users></simpleAuthenticationPlugin>
    <authorizationPlugin><map><cachedLDAPAuthorizationMap connectionPassword="{SECRET}"/></map></authorizationPlugin>
  </plugins>
  <networkConnectors>
    <networkConnector uri="static:(tcp://u:{SECRET}@h:1)" userName="u" password="{SECRET}"/>
  </networkConnectors>
  <sslContext><sslContext keyStore="k" keyStorePassword="{SECRET}" keyStoreKeyPassword="{SECRET}" trustStore="t"
    trustStorePassword="{SECRET}" keyStoreType="nonsense"/></sslContext>
  <transportConnectors>
    <transportConnector uri="ssl://u:{SECRET}@0.0.0.0:61617?needClientAuth=true&amp;transport.keyStorePassword={SECRET}"/>
    <transportConnector uri="stomp://0.0.0.0:61613"/>
  </transportConnectors>
</broker>"""
)
"""A file with passwords wherever people have them."""


def shown(read: Callable[[], Reading]) -> str:
    """Return all that is shown of a file: findings, and the names that settings came from, or its error."""
    try:
        reading = read()
    except ConfigError as error:
        return "".join(traceback.format_exception(error))
    return "\n".join([repr(reading), *map(repr, reading.findings), *map(repr, reading.origins.values())])


def mutated(text: str, seed: int) -> str:
    """Return a document with some of its elements lost, doubled, moved, renamed, or without what wraps them."""
    chance = random.Random(seed)
    root = ET.fromstring(text)
    for _ in range(chance.randint(1, 4)):
        parents = [each for each in root.iter() if len(each)]
        if not parents:
            break
        parent = chance.choice(parents)
        child = chance.choice(list(parent))
        change = chance.randrange(6)
        if change == 0:
            parent.remove(child)
        elif change == 1:
            parent.append(child)
        elif change == 2:  # the wrapper is missing
            parent.remove(child)
            parent.extend(list(child))
        elif change == 3:
            chance.choice([each for each in root.iter() if each is not child and each not in child.iter()]).append(
                ET.Element(child.tag, child.attrib)
            )
        elif change == 4 and child.attrib:
            key = chance.choice(list(child.attrib))
            child.attrib[chance.choice((f"{key}x", key.lower(), "other"))] = child.attrib.pop(key)
        elif child.attrib:
            key = chance.choice([each for each in child.attrib])
            child.attrib[key] = chance.choice(
                ("", " ", "-1", "${", "${x", "${a${b}}", "#x", "9" * 30, "\u0000x"[1:], "ä€")
            )
    return ET.tostring(root, encoding="unicode")


@given(st.sampled_from([*SAMPLES.values(), SECRETS]), st.integers(0, 2**32))
def test_changed_elements_raise_nothing_but_config_error(text: str, seed: int) -> None:
    seen = shown(lambda: sample(mutated(text, seed)))
    assert SECRET not in seen


@given(st.text(max_size=200) | st.text(alphabet="<>/!-[]&;'\"= abx", max_size=60))
def test_any_text_raises_nothing_but_config_error(text: str) -> None:
    with pytest.raises(ConfigError):
        sample(text.encode("utf-8", "replace").decode())


@given(st.sampled_from([*SAMPLES.values(), SECRETS]), st.data())
def test_changed_characters_raise_nothing_but_config_error(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text) - 1))
    length = data.draw(st.sampled_from((0, 1, 1, 5, 1000)))
    put = data.draw(st.sampled_from(("", "<", ">", '"', "&", "\x00", "#", "${", "}", "/", " ", "é", "-", "9")))
    shown(lambda: sample(text[:at] + put + text[at + length :]))


def test_no_secret_is_in_a_finding() -> None:
    assert SECRET not in shown(lambda: sample(SECRETS))


# ---------------------------------------------------------------- hostile XML

LAUGHS: Final = (
    '<!DOCTYPE b [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">'
    "]>\n<broker>&c;</broker>"
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (LAUGHS, "line 1, column 13: a document type (DOCTYPE) is not read"),
        ('<!DOCTYPE b [<!ENTITY x SYSTEM "file:///etc/passwd">]><b>&x;</b>', "a document type"),
        ('<!DOCTYPE b SYSTEM "http://h/x.dtd"><b/>', "a document type"),
        ('<!DOCTYPE b [<!ENTITY % x SYSTEM "http://h/x"> %x;]><b/>', "a document type"),
        ("<broker>\n&unknown;</broker>", "line 2, column 1: undefined entity"),
        ("<a>" * 65, "more than 64 deep"),
        ("<a>\n<b></a>", "line 2, column 6: mismatched tag"),
        ("text <broker/>", "line 1, column 1: syntax error"),
        (f"{file('')}\ntext", "line 2, column 1: junk after document element"),
        ("", "no element found"),
        ("<a x='1' x='2'/>", "duplicate attribute"),
        ("<?xml version='1.0' encoding='no-such'?><a/>", "unknown encoding"),
        (" " * (1 << 20) + "<a/>", "more than 1 MiB"),
        ("<html/>", "the root element is html"),
        (file(""), "no element broker"),
        (file(f'<broker xmlns="{CORE}"/>\n<broker xmlns="{CORE}"/>'), "2 elements broker (line 1, line 2)"),
    ],
)
def test_what_is_not_a_configuration_is_an_error_with_its_line(text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as error:
        sample(text)
    assert reason in str(error.value)
    assert "/opt/amq/conf/activemq.xml" in str(error.value)


def test_xinclude_is_not_followed() -> None:
    include = '<x:include xmlns:x="http://www.w3.org/2001/XInclude" href="/etc/passwd" parse="text"/>'
    reading = of_broker("", f"{include}{CONNECTORS}")
    assert "root:" not in shown(lambda: reading)
    assert [each.kind for each in reading.findings] == [FindingKind.REFUSED]


def test_a_connector_outside_its_wrapper_is_refused_with_its_line() -> None:
    reading = of_broker("", '\n<transportConnector uri="tcp://0.0.0.0:1"/>')
    assert reasons(reading) == [
        "line 1: broker: it has no transportConnectors: clients could not connect",
        "line 2: transportConnector: broker has no element transportConnector: write it within transportConnectors",
    ]


def test_a_missing_placeholder_is_refused_with_line_and_remedy() -> None:
    (found,) = reasons(of_broker('brokerName="${nothing.of.the.kind}"'))
    assert found.startswith("line 1: broker@brokerName: ")
    assert "nothing.of.the.kind" in found
    assert "--property nothing.of.the.kind=VALUE" in found


# ---------------------------------------------------------------- very many findings


def test_reading_takes_time_in_proportion_to_the_file() -> None:
    """A file of a megabyte, with all that may be refused in it, is read in seconds, and not in minutes."""

    def calls(count: int) -> int:
        found = 0

        def profile(_frame: object, event: str, _argument: object) -> None:
            nonlocal found
            found += event == "call"

        entries = "".join(f'<policyEntry queue="q{each}" enableAudit="maybe" other="x"/>' for each in range(count))
        policies = f"<policyMap><policyEntries>{entries}</policyEntries></policyMap>"
        sys.setprofile(profile)
        try:
            reading = of_broker(content=f"{CONNECTORS}<destinationPolicy>{policies}</destinationPolicy>")
        finally:
            sys.setprofile(None)
        assert len([each for each in reading.findings if each.kind is FindingKind.REFUSED]) >= 2 * count
        return found

    assert calls(400) < 3 * calls(200)
