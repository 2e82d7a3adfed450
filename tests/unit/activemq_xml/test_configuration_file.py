"""Reading a file: placeholders and where they come from, the broker in it, and what ActiveMQ would refuse."""

from pathlib import Path

import pytest

from pybroker.activemq_xml.broker_element import Demands
from pybroker.activemq_xml.elements import BEANS, CORE
from pybroker.activemq_xml.findings import FindingKind
from pybroker.activemq_xml.interpretation import interpret
from pybroker.broker.domain.errors import ConfigError
from tests.unit.activemq_xml.reading_bench import CONNECTORS, file, interpreted, of_broker, places, reasons

NAMED = f'<broker xmlns="{CORE}" persistent="false" brokerName="${{n}}">{CONNECTORS}</broker>'
CREDENTIALS = "/opt/amq/conf/credentials.properties"


def configured(location: str, *, extra: str = "", broker: str = NAMED) -> str:
    return (
        f'<beans xmlns="{BEANS}"><bean class="o.s.PropertyPlaceholderConfigurer">'
        f'<property name="locations"><list><value>{location}</value></list></property>{extra}</bean>{broker}</beans>'
    )


class TestPlaceholders:
    def test_a_property_of_the_operator_comes_first_then_files_then_the_environment(self) -> None:
        text = configured("file:${activemq.conf}/credentials.properties")
        sources = {"properties": {"n": "one"}, "files": {CREDENTIALS: "n=two"}, "environment": {"n": "three"}}
        found = []
        for source in ("properties", "files", "environment"):
            given = {**{"files": {CREDENTIALS: ""}}, **{each: sources[each] for each in sources}}
            found.append(interpreted(text, **given).settings["name"])  # type: ignore[arg-type]
            del sources[source]
        assert found == ["one", "two", "three"]

    def test_the_launchers_directories_come_from_the_place_of_the_file(self) -> None:
        reading = of_broker('brokerName="${activemq.base}+${activemq.home}+${activemq.conf}+${activemq.data}"')
        names = "/opt/amq+/opt/amq+/opt/amq/conf+/opt/amq/data"
        assert reading.settings["broker_name"] == names.replace("/", "_").replace("+", "_")

    @pytest.mark.parametrize(
        "location", ["file:conf/credentials.properties", "classpath:credentials.properties", f"file:{CREDENTIALS}"]
    )
    def test_a_location_is_a_file_or_beside_the_configuration(self, location: str) -> None:
        reading = interpreted(configured(location), files={CREDENTIALS: "n=x"})
        assert reading.settings["broker_name"] == "x"

    def test_encrypted_values_are_decrypted_with_the_password_of_the_environment(self) -> None:
        text = configured("file:conf/credentials.properties")
        files = {CREDENTIALS: "n=ENC(mYRkg+4Q4hua1kvpCCI2hg==)"}
        reading = interpreted(text, files=files, environment={"ACTIVEMQ_ENCRYPTION_PASSWORD": "activemq"})
        assert reading.settings["broker_name"] == "manager"
        (refused,) = reasons(interpreted(text, files=files))
        assert "ACTIVEMQ_ENCRYPTION_PASSWORD" in refused

    def test_one_without_a_value_is_refused_with_its_line_and_the_remedy(self) -> None:
        (refused,) = reasons(interpreted(file(NAMED)))
        assert "line 1: broker@brokerName: placeholder ${n} has no value; set it with --property n=VALUE" in refused

    def test_all_of_them_are_found_at_once(self) -> None:
        reading = of_broker('brokerName="${a}" brokerId="${b}"', CONNECTORS.replace("61616", "${c}"))
        assert [each.partition("@")[2].partition(":")[0] for each in reasons(reading)[:2]] == ["brokerName", "brokerId"]
        assert len([each for each in reasons(reading) if "has no value" in each]) == 3

    def test_a_missing_file_is_refused_unless_the_bean_allows_it(self) -> None:
        text = configured("file:conf/none.properties")
        assert "there is no properties file /opt/amq/conf/none.properties" in reasons(interpreted(text))[0]
        allowed = configured(
            "file:conf/none.properties", extra='<property name="ignoreResourceNotFound" value="true"/>'
        )
        assert interpreted(allowed, properties={"n": "x"}).settings["broker_name"] == "x"

    def test_without_a_bean_that_configures_them_they_are_filled_in_all_the_same(self) -> None:
        reading = interpreted(NAMED, properties={"n": "x"})
        assert reading.settings["broker_name"] == "x"
        assert any("ActiveMQ leaves ${…} as they are" in each for each in reasons(reading, FindingKind.WARNING))

    def test_the_name_of_a_file_of_springs_context(self) -> None:
        text = (
            f'<beans xmlns="{BEANS}"><c:property-placeholder xmlns:c="http://www.springframework.org/schema/context"'
            f' location="file:conf/credentials.properties"/>{NAMED}</beans>'
        )
        assert interpreted(text, files={CREDENTIALS: "n=x"}).settings["broker_name"] == "x"

    def test_a_value_of_the_environment_may_differ_between_members(self) -> None:
        for given, expected in (({"environment": {"n": "x"}}, True), ({"properties": {"n": "x"}}, False)):
            reading = interpreted(file(NAMED), **given)  # type: ignore[arg-type]
            assert reading.file.may_differ(reading.file.broker, "brokerName") is expected


class TestTheBroker:
    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("<broker/>", "the root element is broker"),
            (f'<beans xmlns="{BEANS}"/>', "no element broker of the namespace"),
            (file(NAMED + NAMED), r"2 elements broker \(line 1, line 1\): write one"),
            ("<beans", "line 1, column 1: unclosed token"),
            ("<!DOCTYPE beans><beans/>", r"a document type \(DOCTYPE\) is not read"),
        ],
    )
    def test_there_must_be_one(self, text: str, reason: str) -> None:
        with pytest.raises(ConfigError, match=reason):
            interpreted(text)

    def test_a_file_that_cannot_be_read_is_named(self) -> None:
        with pytest.raises(ConfigError, match=r"activemq\.xml cannot be read: No such file or directory"):
            interpret(Path("/nowhere/activemq.xml"), {}, {}, Demands())

    def test_what_activemq_does_not_know_is_refused_with_the_nearest_name(self) -> None:
        reading = of_broker('brokrName="x"', f"{CONNECTORS}<destinatonPolicy/>")
        assert places(reading, FindingKind.REFUSED) == ["broker@brokrName", "destinatonPolicy"]
        assert all("did you mean" in each for each in reasons(reading))

    @pytest.mark.parametrize("value", ["#{systemEnvironment['X']}", "%hostname%", "##### NAME #####"])
    def test_what_nothing_fills_in_is_refused(self, value: str) -> None:
        assert "broker@brokerName" in places(of_broker(f'brokerName="{value}"'), FindingKind.REFUSED)


@pytest.mark.parametrize("place", ["file", "import", "properties"])
def test_a_file_without_an_end_is_refused(tmp_path: Path, place: str) -> None:
    """Reading a device whole would take all memory."""
    path = Path("/dev/zero") if place == "file" else tmp_path / "activemq.xml"
    if place == "import":
        path.write_text(f'<beans xmlns="{BEANS}"><import resource="file:/dev/zero"/>{NAMED}</beans>')
    elif place == "properties":
        path.write_text(configured("file:/dev/zero"))
    try:
        found = [each.why for each in interpret(path, {}, {"n": "x"}, Demands()).findings]
    except ConfigError as error:
        found = [str(error)]
    assert any("it is no regular file" in each for each in found)
