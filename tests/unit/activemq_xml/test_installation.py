"""The parts of an installation that are found."""

from pathlib import Path

import pytest

from pybroker.activemq_xml.installation import find
from pybroker.broker.domain.errors import ConfigError

SCRIPT = """
# ACTIVEMQ_DATA="/commented"
ACTIVEMQ_DATA="/mnt/shared/amq"
export ACTIVEMQ_CONF=$ACTIVEMQ_BASE/conf
ACTIVEMQ_OPTS_MEMORY="-Xms64M -Xmx1G"
ACTIVEMQ_OPTS="$ACTIVEMQ_OPTS_MEMORY -Dport=61617 -Dlogin.config=$ACTIVEMQ_CONF/login.config"
ACTIVEMQ_SSL_OPTS="-Dunknown=$ELSEWHERE"
"""


def make(directory: Path, *names: str) -> None:
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(SCRIPT)


@pytest.mark.parametrize(
    ("names", "given"), [(["conf/activemq.xml"], "."), (["activemq.xml"], "."), (["a.xml"], "a.xml")]
)
def test_the_configuration(tmp_path: Path, names: list[str], given: str) -> None:
    make(tmp_path, *names)
    assert find(tmp_path / given, ()).configuration == tmp_path / names[0]


def test_what_the_script_sets(tmp_path: Path) -> None:
    make(tmp_path, "conf/activemq.xml", "bin/env")
    found = find(tmp_path, ())
    assert found.script == tmp_path / "bin/env"
    assert found.properties == {
        "activemq.data": "/mnt/shared/amq",
        "activemq.conf": f"{tmp_path}/conf",
        "port": "61617",
        "login.config": f"{tmp_path}/conf/login.config",
    }


def test_the_service_is_that_which_names_it(tmp_path: Path) -> None:
    make(tmp_path, "amq/conf/activemq.xml", "units/activemq-a.service", "units/ssh.service")
    assert find(tmp_path / "amq", [str(tmp_path / "units")]).service is None
    (tmp_path / "units/activemq-b.service").write_text(f"ExecStart={tmp_path}/amq/bin/activemq start")
    assert find(tmp_path / "amq", [str(tmp_path / "units")]).service == tmp_path / "units/activemq-b.service"


def test_a_directory_without_a_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no activemq\.xml in"):
        find(tmp_path, ())
