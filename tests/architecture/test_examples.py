"""The examples are right: their settings are accepted, their programs parse."""

import py_compile

from pybroker.broker.app.config import load


def test_the_example_configuration_is_accepted(root):
    config = load(root / "examples" / "pybroker.toml", {}, {})
    assert (config.bind, config.stop_timeout, config.archive) == ("0.0.0.0", 10.0, True)


def test_example_programs_compile(root, tmp_path):
    programs = sorted((root / "examples").glob("*.py"))
    assert programs
    for program in programs:
        py_compile.compile(str(program), cfile=str(tmp_path / "compiled"), doraise=True)
