"""The parts of an installation that are found."""

from pathlib import Path

import pytest

from pybroker.activemq_xml.installation import DebianPackage, find
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


def debian(directory: Path) -> DebianPackage:
    """Make a package with one instance that has no options of its own."""
    found = DebianPackage(instances=directory / "etc", home=directory / "usr", state=directory / "var")
    for file, text in (
        (found.instances / "instances-available/main/activemq.xml", ""),
        (found.options, f'ACTIVEMQ_BASE="{found.state}/$INSTANCE"\n'),
        (directory / "units/activemq", "for INSTANCE in *"),
    ):
        file.parent.mkdir(parents=True)
        file.write_text(text)
    return found


def test_an_instance_of_debian_has_its_store_in_var(tmp_path: Path) -> None:
    package = debian(tmp_path)
    instance = package.instances / "instances-available/main"
    found = find(instance, [str(tmp_path / "units")], package)
    assert found.properties == {
        "activemq.base": f"{tmp_path}/var/main",
        "activemq.home": f"{tmp_path}/usr",
        "activemq.data": f"{tmp_path}/var/data",
    }
    assert (found.script, found.service) == (package.options, tmp_path / "units/activemq")
    (instance / "options").write_text("ACTIVEMQ_BASE=/srv/$INSTANCE\nACTIVEMQ_DATA=$ACTIVEMQ_BASE/data\n")
    found = find(instance, (), package)
    assert found.script == instance / "options"
    assert (found.properties["activemq.base"], found.properties["activemq.data"]) == ("/srv/main", "/srv/main/data")


def test_a_relative_directory_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "amq/conf/activemq.xml", "amq/bin/env")
    monkeypatch.chdir(tmp_path)
    assert find(Path("amq"), ()).properties["activemq.conf"] == f"{tmp_path}/amq/conf"


def test_a_relative_directory_is_no_name_in_a_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "activemq.xml", "units/activemq")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "units/activemq").write_text("/opt/activemq/bin/activemq.jar")
    assert find(Path(), ["units"]).service is None
    (tmp_path / "units/activemq").write_text(f"{tmp_path}/bin/activemq start")
    assert find(Path(), ["units"]).service == Path("units/activemq")
