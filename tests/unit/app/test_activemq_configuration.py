"""The options for an `activemq.xml`, and the installation that it belongs to."""

from dataclasses import replace
from pathlib import Path

import pytest

from pybroker.activemq_xml.installation import DebianPackage
from pybroker.broker.app.activemq_configuration import ActivemqXml, opened
from pybroker.broker.domain.errors import ConfigError

CONFIGURATION = """<broker xmlns="http://activemq.apache.org/schema/core" brokerName="main" dataDirectory="%s">
  <transportConnectors><transportConnector name="openwire" uri="tcp://127.0.0.1:61616"/></transportConnectors>
</broker>
"""


def activemq(path: Path, data: str = "${activemq.base}/data", **properties: str) -> ActivemqXml:
    """Write a configuration; return the options for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(CONFIGURATION % data)
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return ActivemqXml(path=path, properties=named, accepted=frozenset())


def test_instance_of_debian_has_its_store_in_var(tmp_path: Path) -> None:
    package = DebianPackage(instances=tmp_path / "etc", home=tmp_path / "usr", state=tmp_path / "var")
    package.home.mkdir()
    package.options.write_text(f'ACTIVEMQ_BASE="{package.state}/$INSTANCE"\n')
    path = package.instances / "instances-available/main/activemq.xml"
    base = activemq(path).of_installation(package).read().file.directories.base
    assert base == tmp_path / "var/main"
    chosen = activemq(path, activemq_base="/srv").of_installation(package).read().file.directories.base
    assert chosen == Path("/srv")


def test_data_of_the_start_script_is_the_store(tmp_path: Path) -> None:
    given = activemq(tmp_path / "amq/conf/activemq.xml", "${activemq.data}")
    (tmp_path / "amq/bin").mkdir()
    (tmp_path / "amq/bin/env").write_text(f'ACTIVEMQ_DATA="{tmp_path}/shared"\n')
    with opened(given) as found:
        assert str(found.values["store"]).startswith(f"{tmp_path}/shared/")
        assert found.base == f"{tmp_path}/amq"


def test_accept_without_effect_is_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    given = replace(activemq(tmp_path / "conf/activemq.xml"), accepted=frozenset({"jmsBridge"}))
    with opened(given) as found:
        found.log()
    assert "activemq.xml, --accept jmsBridge: nothing is refused there" in caplog.messages
    refused = replace(given, properties={}, accepted=frozenset({"Broker@foo"}))
    refused.path.write_text(refused.path.read_text().replace("brokerName=", 'foo="1" brokerName='))
    with (
        pytest.raises(ConfigError, match="Broker@foo: nothing is refused there; did you mean broker@foo"),
        opened(refused),
    ):
        pass


def test_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    given = ActivemqXml(path=tmp_path / "none.xml", properties={}, accepted=frozenset())
    with pytest.raises(ConfigError, match=r"none\.xml cannot be read: No such file"), opened(given):
        pass
