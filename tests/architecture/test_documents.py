"""Documents keep in step with the code: links resolve, commands exist, every setting is described."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from pybroker.broker.app import cli
from pybroker.broker.app.config import SETTINGS, load

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
TARGET = re.compile(r"^([a-z-]+):", re.MULTILINE)

FOREIGN_PATHS = re.compile("|".join(["/" + "work/", "/" + "home/[a-z]", "/" + "Users/"]).encode())
"""Directories of the machine someone wrote this on; split, so that this file is not found itself."""


def blocks(document: Path, *languages: str) -> Iterator[str]:
    """The fenced blocks of a page that are written in one of the languages."""
    for language, text in FENCE.findall(document.read_text()):
        if language in languages:
            yield text


def command_lines(document: Path) -> Iterator[list[str]]:
    """The first command of each line of a page's `sh` blocks, in words, without comments and redirections."""
    for block in blocks(document, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            command = re.split(r"\s[&|>]|\s2>|;", line.removeprefix("$ ").removeprefix("until "))[0]
            words = shlex.split(command, comments=True)
            if words:
                yield words


def anchors(document: Path) -> set[str]:
    """The anchors GitHub gives a page's headings."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", document.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def parse(arguments: list[str], environment: dict[str, str] | None = None) -> None:
    """Let the command line interface take its arguments and settings, and run nothing."""
    name, *rest = arguments
    if name.startswith("-"):
        name, rest = "", arguments
    command = cli.commands.commands[name] if name else cli.commands
    if {"--help", "--version"}.isdisjoint(rest):
        context = command.make_context(name, list(rest))
        if "sync_interval" in context.params:  # a command that takes settings; others may have options of the same name
            flags = {key: value for key, value in context.params.items() if key in SETTINGS}
            load(None, flags, environment or {})


def test_links_lead_somewhere(root: Path, documents: list[Path]) -> None:
    dead: list[str] = []
    for document in documents:
        for link in LINK.findall(FENCE.sub("", document.read_text())):
            path, _, anchor = link.partition("#")
            target = document.parent / path if path else document
            if re.match(r"[a-z]+:", link):
                continue
            if not target.exists() or (anchor and anchor not in anchors(target)):
                dead.append(f"{document.relative_to(root)}: {link}")
    assert dead == []


def test_architecture_page_names_classes_and_methods_that_exist(root: Path) -> None:
    """Every `Class` and `Class.method` of the page is defined in the package."""
    page = FENCE.sub("", (root / "docs" / "architecture.md").read_text())
    named = set(re.findall(r"`([A-Z]\w*[a-z]\w*(?:\.[a-z_]+)?)`", page))
    sources = [path.read_text() for path in (root / "pybroker").rglob("*.py")]
    assert {"GroupCommit", "Queue.send"} <= named
    for name in named:
        owner, _, method = name.partition(".")
        pattern = re.compile(
            rf"^class {owner}\b" + (rf"(?:.|\n)*?\n    (?:async )?def {method}\b" if method else ""), re.MULTILINE
        )
        assert any(pattern.search(source) for source in sources), name


def test_make_targets_in_documents_exist(root: Path, documents: list[Path]) -> None:
    targets = set(TARGET.findall((root / "Makefile").read_text()))
    used = {words[1] for page in documents for words in command_lines(page) if words[0] == "make" and len(words) > 1}
    assert {"demo", "test"} <= used <= targets


def test_pybroker_commands_in_documents_parse(documents: list[Path]) -> None:
    used = 0
    for page in documents:
        exported: dict[str, str] = {}
        for words in command_lines(page):
            if words[0] == "export":
                exported |= dict(re.findall(r"(PYBROKER_\w+)=(\S+)", " ".join(words)))
            elif Path(words[0]).name == "pybroker":
                parse(words[1:], exported)
                used += 1
    assert used > 10


def test_a_wrong_option_in_a_document_would_be_found() -> None:
    with pytest.raises(click.ClickException):
        parse(["start", "--no-such-option"])


def test_python_in_documents_compiles(documents: list[Path]) -> None:
    for page in documents:
        for block in blocks(page, "python", "py"):
            ast.parse(block, filename=str(page))


def test_settings_page_lists_every_setting_and_no_other(root: Path) -> None:
    """Each row of its tables begins with the setting's name."""
    rows = re.findall(r"^\| `([\w.]+)`", (root / "docs" / "settings.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(SETTINGS)


def test_the_test_command_of_the_readme_is_the_one_ci_runs(root: Path) -> None:
    readme = [shlex.join(words) for words in command_lines(root / "README.md")]
    run = re.findall(r"^step (?:nice \S+ )?(make [^#>\n]*[^#>\s])", (root / ".ci" / "run").read_text(), re.MULTILINE)
    test = ["make test-together", "make test-alone"]
    assert run == ["make setup", "make --jobs=3 --output-sync check compiled", *test, "make compiled-smoke"]
    assert "make test" in readme
    (recipe,) = re.findall(r"^test:.*\n((?:\t.*\n)+)", (root / "Makefile").read_text(), re.MULTILINE)
    assert [f"make {line.split()[-1]}" for line in recipe.splitlines()] == test


def test_files_name_no_directory_of_the_authors_machine(root: Path, project_files: list[Path]) -> None:
    found = [str(path.relative_to(root)) for path in project_files if FOREIGN_PATHS.search(path.read_bytes())]
    assert found == []
