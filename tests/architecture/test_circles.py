"""Modules import one another in one direction only; imports for type checking and inside functions count.

A circle cannot be read, tested or replaced in parts.
"""

import ast
from collections.abc import Mapping, Set
from pathlib import Path

import pytest

from tests.architecture.sources import tree

Imports = Mapping[str, Set[str]]
"""The modules that each module imports."""


def module_name(root: Path, path: Path) -> str:
    """Return the name by which a source is imported."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(source: str, modules: Set[str]) -> Set[str]:
    """Return those of the modules that a source imports anywhere, under `if TYPE_CHECKING` and in functions too."""
    named: set[str] = set()
    for node in ast.walk(tree(source)):
        if isinstance(node, ast.Import):
            named.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:  # relative imports are banned
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                named.add(submodule if submodule in modules else node.module)
    return named & modules


def circles(imports: Imports) -> Set[Set[str]]:
    """Return the groups of modules each of which imports, in one step or several, all others of its group."""
    reached = {module: _reach(module, imports) for module in imports}
    return {
        frozenset(other for other in reached[module] if module in reached[other])
        for module in imports
        if module in reached[module]
    }


def _reach(module: str, imports: Imports) -> Set[str]:
    reached: set[str] = set()
    ahead = [*imports[module]]
    while ahead:
        if (found := ahead.pop()) not in reached:
            reached.add(found)
            ahead += imports[found]
    return reached


@pytest.fixture(scope="module")
def imports(root: Path, python_files: list[Path]) -> Imports:
    """The imports of each module from the packages."""
    sources = {
        module_name(root, path): path
        for path in python_files
        if path.relative_to(root).parts[0] in ("pybroker", "pyspark_kahadb")
    }
    return {module: imports_of(path.read_text(), sources.keys()) - {module} for module, path in sources.items()}


def test_no_modules_import_one_another(imports: Imports) -> None:
    assert circles(imports) == set()


def test_circles_are_found_in_one_step_and_in_several() -> None:
    found = circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}, "g": set()})
    assert found == {frozenset("abc"), frozenset("de")}


def test_imports_for_types_and_in_functions_count() -> None:
    source = "if TYPE_CHECKING:\n    from p import a\ndef f():\n    import p.b\nfrom p.c import name\n"
    assert imports_of(source, {"p", "p.a", "p.b", "p.c"}) == {"p.a", "p.b", "p.c"}
