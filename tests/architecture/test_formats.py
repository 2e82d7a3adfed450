"""A format has one place: no struct is written down twice, and OpenWire's come from the table of its fields."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.sources import tree

PACKERS = {"Struct", "pack", "pack_into", "unpack", "unpack_from", "iter_unpack", "calcsize"}


def struct_formats(source: str) -> Iterator[str]:
    """Every format with a byte order that is written as a text; the machine's own, as of the kernel, do not count."""
    for node in ast.walk(tree(source)):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            value = node.args[0].value
            if name in PACKERS and isinstance(value, str) and value.startswith((">", "<", "!")):
                yield value


def formats(root: Path) -> list[tuple[str, str]]:
    sources = sorted((root / "pybroker").rglob("*.py"))
    return [(each, path.relative_to(root).as_posix()) for path in sources for each in struct_formats(path.read_text())]


def test_no_struct_format_is_written_twice(root: Path) -> None:
    places: dict[str, list[str]] = {}
    for each, path in formats(root):
        places.setdefault(each, []).append(path)
    assert {each: paths for each, paths in places.items() if len(paths) > 1} == {}


def test_structs_of_openwire_come_from_the_table(root: Path) -> None:
    """Structs of primitive values are the exception: they have tags and no table."""
    users = {path for _, path in formats(root) if "/openwire/" in path}
    assert users == {"pybroker/broker/domain/openwire/values.py"}


def test_formats_are_found() -> None:
    source = 'import struct\nA = struct.Struct(">i")\nB = struct.pack("<q", 1)\nC = struct.pack("ii", 1, 0)'
    assert list(struct_formats(source)) == [">i", "<q"]
