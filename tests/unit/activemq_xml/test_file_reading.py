"""Files that a configuration names: what is no regular file is refused, and never waited for."""

import os
from pathlib import Path

import pytest

from pybroker.activemq_xml.broker_element import Demands
from pybroker.activemq_xml.elements import BEANS, CORE
from pybroker.activemq_xml.file_reading import read_bytes
from pybroker.activemq_xml.interpretation import interpret
from pybroker.broker.domain.errors import ConfigError
from pybroker.security.files import FILE_BYTES_MAX
from tests.unit.activemq_xml.reading_bench import CONNECTORS

CONFIGURER = "org.springframework.beans.factory.config.PropertyPlaceholderConfigurer"
JAAS = '<plugins><jaasAuthenticationPlugin configuration="activemq"/></plugins>'
LOGIN_CONFIG = """activemq { org.apache.activemq.jaas.PropertiesLoginModule required
    org.apache.activemq.jaas.properties.user="users.properties"
    org.apache.activemq.jaas.properties.group="groups.properties"; };
"""


@pytest.mark.timeout(20)  # instead of waiting for ever
@pytest.mark.parametrize(
    ("name", "beans", "plugins"),
    [
        ("other.xml", '<import resource="other.xml"/>', ""),
        ("a.properties", f'<bean class="{CONFIGURER}"><property name="location" value="a.properties"/></bean>', ""),
        ("login.config", "", JAAS),
        ("users.properties", "", JAAS),
    ],
)
def test_a_fifo_that_a_configuration_names_is_refused(tmp_path: Path, name: str, beans: str, plugins: str) -> None:
    for other, text in (("login.config", LOGIN_CONFIG), ("users.properties", ""), ("groups.properties", "")):
        (tmp_path / other).write_text(text)
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    xml = tmp_path / "activemq.xml"
    xml.write_text(f'<beans xmlns="{BEANS}">{beans}<broker xmlns="{CORE}">{plugins}{CONNECTORS}</broker></beans>')
    try:
        directories = dict.fromkeys(("activemq.base", "activemq.conf"), str(tmp_path))
        texts = [each.why for each in interpret(xml, directories, {}, Demands()).findings]
    except ConfigError as error:
        texts = [str(error)]
    assert any("it is no regular file" in each for each in texts), texts


@pytest.mark.parametrize(("path", "reason"), [("/dev/zero", "it is no regular file"), ("/", "Is a directory")])
def test_a_device_and_a_directory_are_no_files(path: str, reason: str) -> None:
    with pytest.raises(OSError, match=reason):
        read_bytes(Path(path))


def test_a_long_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "long"
    with path.open("wb") as file:
        file.truncate(FILE_BYTES_MAX)
        assert len(read_bytes(path)) == FILE_BYTES_MAX
        file.truncate(FILE_BYTES_MAX + 1)
    with pytest.raises(OSError, match="it has more than 16 MiB"):
        read_bytes(path)
