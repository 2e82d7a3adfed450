"""All exceptions of pybroker are on one tree, whose root is `PybrokerError`."""

import ast
import builtins
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

ROOT_ERROR = "PybrokerError"


def bases_by_class(sources: Iterable[str]) -> dict[str, list[str]]:
    """Return the names of the bases of each class, without their modules."""
    return {
        node.name: [base.attr if isinstance(base, ast.Attribute) else ast.unparse(base) for base in node.bases]
        for source in sources
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef)
    }


def ancestors(name: str, classes: Mapping[str, list[str]]) -> set[str]:
    """Return the names of a class and of all its ancestors."""
    return {name}.union(*(ancestors(base, classes) for base in classes.get(name, ()) if base != name))


def is_exception(name: str) -> bool:
    """Report if a class outside pybroker is an exception: a built-in one, or a library's by its name."""
    known = getattr(builtins, name, None)
    is_built_in = isinstance(known, type) and issubclass(known, BaseException)
    return is_built_in or name.endswith(("Error", "Exception"))


def exceptions_without_root(sources: Iterable[str]) -> set[str]:
    """Return the exception classes that are not on the tree."""
    classes = bases_by_class(sources)
    found = {name: ancestors(name, classes) for name in classes}
    return {name for name, names in found.items() if ROOT_ERROR not in names and any(map(is_exception, names))}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("class A(ValueError): ...", {"A"}),
        ("class A(KeyError): ...\nclass B(A): ...", {"A", "B"}),
        ("class A(click.ClickException): ...", {"A"}),
        ("class A(PybrokerError, OSError): ...\nclass B(A): ...", set()),
        ("class A: ...\nclass B(Generic[T]): ...", set()),
    ],
)
def test_exception_outside_the_tree_is_found(source: str, found: set[str]) -> None:
    assert exceptions_without_root([source]) == found


def test_every_exception_is_on_the_tree(root: Path) -> None:
    sources = [path.read_text() for path in (root / "pybroker").rglob("*.py")]
    assert ROOT_ERROR in bases_by_class(sources)
    assert exceptions_without_root(sources) == set()
