"""Rules for compiled modules: mypyc compiles those that pyproject.toml lists, and does not notice what it gets wrong.

1. A native class is a C structure. One derived from an interpreted class with fields of its own overlays them.
2. An interpreted class cannot derive from a native one.
3. The bounds of a slice are evaluated twice unless what is sliced is a list, a text or bytes (mypyc 2.4).
4. An attribute is a field of that name behind an underscore: `_thread` is `__thread`, a keyword of gcc.
"""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Set
from importlib.metadata import packages_distributions
from pathlib import Path

import hatchling.build
import pytest

from tests.architecture.sources import tree
from tests.architecture.test_circles import module_name

ROOT = Path(__file__).parents[2]
WHEEL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
COMPILED = {name.removesuffix(".py").replace("/", "."): ROOT / name for name in WHEEL["hooks"]["mypyc"]["include"]}

WITHOUT_FIELDS = {"NamedTuple", "Protocol", "Generic", "Enum", "IntEnum", "StrEnum", "abc.ABC", "asyncio.Protocol"}
"""Bases that mypyc knows how to treat, or that have empty `__slots__`."""

KEYWORDS = {"_alignof", "_asm", "_attribute", "_complex", "_const", "_imag", "_inline"} | {
    *("_real", "_restrict", "_signed", "_thread", "_typeof", "_volatile")
}
"""Names that are gcc's own words with another underscore in front."""

PURE = {"len", "min", "max", "map", "bisect_left"}


def parsed(path: Path) -> ast.Module:
    return tree(path.read_text())


def bases(path: Path) -> Iterator[tuple[str, str]]:
    """Yield a module's classes with each base, and the module that it comes from: `module.Base`."""
    tree = parsed(path)
    own = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    origin = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    origin |= {node.name: f"{own}.{node.name}" for node in classes}
    for node in classes:
        for base in node.bases:
            name = ast.unparse(base.value if isinstance(base, ast.Subscript) else base)
            yield node.name, origin.get(name, name)


def is_native(base: str) -> bool:
    return base.rpartition(".")[0] in COMPILED


@pytest.mark.parametrize("path", COMPILED.values(), ids=str)
def test_native_classes_derive_from_native_ones(path: Path) -> None:
    foreign = [
        f"{name}({base})"
        for name, base in bases(path)
        if not is_native(base) and base not in WITHOUT_FIELDS and base.rpartition(".")[2] not in WITHOUT_FIELDS
    ]
    if path.name == "session.py":
        foreign = [each for each in foreign if not each.startswith("Link(")]  # a protocol: nothing is ever made of it
    assert not foreign


def test_interpreted_classes_do_not_derive_from_native_ones() -> None:
    derived = [
        f"{path.relative_to(ROOT)}: {name}({base})"
        for path in sorted((ROOT / "pybroker").rglob("*.py"))
        if path not in COMPILED.values()
        for name, base in bases(path)
        if is_native(base)
    ]
    assert not derived


@pytest.mark.parametrize("path", COMPILED.values(), ids=str)
def test_bounds_of_slices_may_be_evaluated_twice(path: Path) -> None:
    calls = [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Slice)
        for part in ast.walk(node)
        if isinstance(part, ast.NamedExpr | ast.Await)
        or (isinstance(part, ast.Call) and ast.unparse(part.func) not in PURE)
    ]
    assert not calls


@pytest.mark.parametrize("path", COMPILED.values(), ids=str)
def test_no_attribute_is_a_keyword_of_gcc(path: Path) -> None:
    named = {node.attr for node in ast.walk(parsed(path)) if isinstance(node, ast.Attribute)}
    assert not named & KEYWORDS


def followed() -> Set[str]:
    """Return all names that the compiled modules import, directly or through other modules: mypyc needs their types."""
    sources = {module_name(ROOT, path): path for path in (ROOT / "pybroker").rglob("*.py")}
    reached: set[str] = set()
    ahead = [*COMPILED]
    while ahead:
        if (name := ahead.pop()) in reached:
            continue
        reached.add(name)
        if "." in name:
            ahead.append(name.rpartition(".")[0])
        for node in ast.walk(parsed(sources[name])) if name in sources else ():
            if isinstance(node, ast.Import):
                ahead += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                ahead += [f"{node.module}.{alias.name}" for alias in node.names]
    return reached


def test_build_requirements_cover_imported_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("HATCH_BUILD_HOOKS_ENABLE", "1")
    required = {re.split(r"[^\w.-]", each)[0] for each in hatchling.build.get_requires_for_build_wheel()}
    packages = {name.partition(".")[0] for name in followed()} - sys.stdlib_module_names - {"pybroker"}
    assert "pybroker.broker.core.selector.parser" in followed(), "imports of imports count too"
    missing = {name for name in packages if not required & set(packages_distributions()[name])}
    assert not missing


def recipe(*arguments: str) -> list[str]:
    """Return the commands that make would run."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "COMPILED"))}
    command = ["make", "--dry-run", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.replace("\\\n", "").splitlines()


def compiling(commands: list[str]) -> list[str]:
    return [command for command in commands if "HATCH_BUILD_HOOKS_ENABLE=1" in command]


@pytest.mark.parametrize(("arguments", "count"), [((), 0), (("COMPILED=0",), 0), (("COMPILED=1",), 1)], ids=str)
def test_make_broker_compiles_only_on_request(arguments: tuple[str, ...], count: int) -> None:
    assert len(compiling(recipe("broker", *arguments))) == count


@pytest.mark.parametrize("target", ["broker", "wheel"])
def test_compiler_does_not_work_in_the_checkout(target: str) -> None:
    """`uv build` makes a source distribution first and builds the wheel from it, except with `--wheel`."""
    (command,) = compiling(recipe(target, "COMPILED=1"))
    assert "/uv build " in command
    assert "--wheel" not in command


def test_make_broker_names_the_python_to_use() -> None:
    commands = [command for command in recipe("broker", "DEST=/opt/pybroker") if "/uv " in command]
    named = re.findall(r"--python (\S+)", "\n".join(commands))
    assert named == [".venv/bin/python", "/opt/pybroker/bin/python", "/opt/pybroker/bin/python"]
