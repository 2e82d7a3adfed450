# mypy: disable-error-code="assignment, method-assign"
"""The examples are right: their settings are accepted, their programs parse."""

import configparser
import py_compile
import re
import subprocess
import sys

import pytest

from pybroker.broker.app.config import load
from pybroker.broker.app.systemd import BEAT_SECONDS


def test_the_example_configuration_is_accepted(root):
    config = load(root / "examples" / "pybroker.toml", {}, {})
    assert (config.bind, config.stop_timeout, config.archive) == ("0.0.0.0", 10.0, True)


def unit(root):
    """Return the systemd unit's sections; a key that stands twice is an error."""
    parser = configparser.ConfigParser(interpolation=None, comment_prefixes=("#",))
    parser.optionxform = str
    parser.read_string((root / "examples" / "systemd" / "pybroker.service").read_text())
    return parser


def test_the_systemd_unit_runs_the_example_configuration(root):
    service = unit(root)["Service"]
    assert service["ExecStart"] == "/opt/pybroker/bin/pybroker start --config /etc/pybroker.toml"
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    config = load(root / "examples" / "pybroker.toml", {}, {})
    assert config.store.startswith(unit(root)["Unit"]["RequiresMountsFor"] + "/")
    assert int(service["TimeoutStopSec"]) > 2 * config.stop_timeout, "an orderly stop is not cut short"
    assert int(service["LimitNOFILE"]) > config.connections_max


def test_the_page_shows_the_systemd_unit_as_it_is(root):
    (shown,) = re.findall(r"```ini\n(.*?)```", (root / "docs" / "pair.md").read_text(), re.DOTALL)
    assert shown == (root / "examples" / "systemd" / "pybroker.service").read_text().split("\n\n", 1)[1]


def test_systemd_unit_is_notified_and_may_write_what_it_has_to(root):
    service = unit(root)["Service"]
    config = load(root / "examples" / "pybroker.toml", {}, {})
    assert (service["Type"], service["Restart"], service["RestartPreventExitStatus"]) == ("notify", "on-failure", "2")
    assert int(service["WatchdogSec"]) > 2 * BEAT_SECONDS
    assert service["ProtectSystem"] == "strict"
    assert service["ReadWritePaths"].split() == [config.store]
    log = re.search(r'^# log_file = "(.+)"', (root / "examples" / "pybroker.toml").read_text(), re.MULTILINE)
    assert log is not None
    assert log[1].startswith(f"/var/log/{service['LogsDirectory']}/")
    rotated = (root / "examples" / "logrotate" / "pybroker").read_text()
    assert f"\n/var/log/{service['LogsDirectory']}/*.log {{\n    su {service['User']} " in rotated


@pytest.mark.component("systemd")
def test_systemd_finds_little_exposure(root):
    """From 0 to 10: a unit without any of it has 9.2 to 9.6."""
    file = root / "examples" / "systemd" / "pybroker.service"
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=25", "--no-pager", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.component("systemd")
def test_systemd_accepts_the_unit(root, tmp_path):
    copy = tmp_path / "pybroker.service"
    text = (root / "examples" / "systemd" / "pybroker.service").read_text()
    copy.write_text(text.replace("/opt/pybroker/bin/pybroker", sys.executable))  # it checks that the program is there
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "pybroker.service" in line]) == (0, [])


def test_no_page_installs_from_an_index_where_pybroker_is_not(root):
    pages = [root / "README.md", *(root / "docs").glob("*.md")]
    named = {page.name for page in pages if re.search(r"pip install '?pybroker", page.read_text())}
    assert named == {"install.md"}, "which states that it does not work"


def test_example_programs_compile(root, tmp_path):
    programs = sorted((root / "examples").glob("*.py"))
    assert programs
    for program in programs:
        py_compile.compile(str(program), cfile=str(tmp_path / "compiled"), doraise=True)


@pytest.mark.parametrize("name", ["orders_pipeline", "orders_pipeline_async", "stomp_orders"])
def test_program_without_its_uri_prints_its_usage(root, name):
    program = root / "examples" / f"{name}.py"
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(rf"usage: python examples/{name}\.py URI.*\n", done.stderr)


def test_programs_name_the_ports_of_the_pair_on_one_machine(root):
    start = "\n".join(line for line in (root / "README.md").read_text().splitlines() if "pybroker start" in line)
    listening = {"61616", *re.findall(r"--(?:stomp|openwire) (\d+)", start)}
    named = {
        port
        for path in (root / "examples").glob("*.*")
        for port in re.findall(r"(?:tcp|stomp)://[\w.]+:(\d+)", path.read_text())
    }
    assert named <= listening
