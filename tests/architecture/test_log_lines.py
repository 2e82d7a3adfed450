"""Lines of the log that the pages for operators quote are written by the code."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("docs/watching.md", "docs/ha.md")
FOREIGN = ("TLS handshake failed", "tlsv1 alert", "Too many open files", "Address already in use")
"""Lines of which a part is an error of OpenSSL, of the system or of a database."""
WORD = re.compile(r"[a-z]{3,}")


def quoted_lines() -> Iterator[tuple[str, str]]:
    """Yield the page and the text of each line of the log in the first column of a table that is about the log."""
    for page in PAGES:
        is_log = False
        for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
            if line.startswith("| the log"):
                is_log = True
            elif not line.startswith("|"):
                is_log = False
            elif is_log and not line.startswith("|---"):
                yield from ((page, text) for text in re.findall(r"`([^`]{12,})`", line.split(" |")[0]))


LINES = [each for each in dict.fromkeys(quoted_lines()) if not any(text in each[1] for text in FOREIGN)]


@cache
def words_of_modules() -> list[frozenset[str]]:
    """Return the words in the texts of each module of the package."""
    found: list[frozenset[str]] = []
    for path in (ROOT / "pybroker").rglob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        found.append(frozenset(WORD.findall(" ".join(texts))))
    return found


def test_tables_of_log_lines_are_found() -> None:
    assert len(LINES) > 25


@pytest.mark.parametrize(("page", "line"), LINES, ids=[f"{page}-{line[:60]}" for page, line in LINES])
def test_quoted_line_has_only_words_of_one_module(page: str, line: str) -> None:
    words = set(WORD.findall(re.sub(r"\S*[/.\d]\S*", " ", line)))
    missing = min((words - known for known in words_of_modules()), key=len)
    assert not missing, f"{page} quotes words that no module has together: {sorted(missing)}"
