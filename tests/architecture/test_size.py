"""Size ratchet: no module beyond 800 lines, no function beyond 70 that does not state why it reads better whole."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.sources import tree

MODULE_LINES_MAX = 800
FUNCTION_LINES_MAX = 70
EXCUSE = "reads better whole"


def long_functions(source: str) -> Iterator[str]:
    """Name the functions that are too long and carry no excuse, in their body or in the line above them."""
    lines = source.splitlines()
    for node in ast.walk(tree(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        end = node.end_lineno or node.lineno
        length = end - node.lineno + 1
        if length > FUNCTION_LINES_MAX and not any(EXCUSE in line for line in lines[max(0, node.lineno - 2) : end]):
            yield f"{node.lineno} {node.name}: {length} lines"


def test_modules_stay_small(root: Path, python_files: list[Path]) -> None:
    sizes = {path.relative_to(root).as_posix(): path.read_text().count("\n") for path in python_files}
    assert {name: lines for name, lines in sizes.items() if lines > MODULE_LINES_MAX} == {}


def test_functions_stay_small(root: Path, python_files: list[Path]) -> None:
    found = [f"{path.relative_to(root)}:{name}" for path in python_files for name in long_functions(path.read_text())]
    assert found == []


def test_the_ratchet_bites_and_takes_an_excuse() -> None:
    body = "    pass\n" * FUNCTION_LINES_MAX
    assert list(long_functions(f"def long():\n{body}")) == ["1 long: 71 lines"]
    assert list(long_functions(f"def long():\n    # A table {EXCUSE}.\n{body}")) == []
