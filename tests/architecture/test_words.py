"""Names and words: a class name means one class, and texts avoid words that the field does not use."""

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

# ---------------------------------------------------------------- class names

ALLOWED_TWICE = {
    # The client's message is JMS's, with a decoded body; the domain's is the broker's, with its stored bytes.
    "Message",
}

TWIN = "pybroker/client/aio.py"
"""The asynchronous API, which has the class names of the synchronous one, as in other libraries."""


def test_class_names_are_unique(root: Path) -> None:
    modules = defaultdict[str, list[str]](list)
    for path in sorted((root / "pybroker").rglob("*.py")):
        if (name := path.relative_to(root).as_posix()) != TWIN:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    modules[node.name].append(f"{name}:{node.lineno}")
    twice = {name: where for name, where in modules.items() if len(where) > 1}
    assert {name: where for name, where in twice.items() if name not in ALLOWED_TWICE} == {}


# ---------------------------------------------------------------- words

AVOIDED = (
    "anew", "anybody", "complain", "complains", "complaint", "complaints", "everybody", "for good", "ghosts", "heir",
    "heirs", "hence", "holding room", "in the making", "jam", "jams", "lest", "next door", "nobody", "nothing but",
    "nurseries", "nursery", "out of step", "predecessor", "predecessors", "put aside", "rung", "somebody", "stranger",
    "strangers", "strayed", "suspect", "suspected", "thereby", "unsaid", "whoever",
)  # fmt: skip
"""Words without a meaning in JMS, OpenWire, STOMP or KahaDB, for which there is always a plainer one."""

_WORDS = re.compile(rf"\b(?:{'|'.join(AVOIDED)})\b", re.IGNORECASE)
_TEXTS = (tokenize.NAME, tokenize.STRING, tokenize.COMMENT)


def words_of(name: str) -> str:
    """Return the words of an identifier in snake or camel case, separated by blanks."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("_", " ")


def avoided_in_code(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in _TEXTS:
            text = words_of(token.string) if token.type == tokenize.NAME else token.string
            yield from ((token.start[0], match[0]) for match in _WORDS.finditer(text))


def avoided_in_text(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        yield from ((number, match[0]) for match in _WORDS.finditer(line))


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("def start_nursery(): ...", "nursery"),
        ("class HeirFound: ...", "Heir"),
        ("x = 1  # begins anew", "anew"),
        ('"""A file that nobody reads."""', "nobody"),
        ('log.info("closed for good")', "for good"),
    ],
)
def test_avoided_word_in_code_is_found(source: str, word: str) -> None:
    assert list(avoided_in_code(source)) == [(1, word)]


def test_avoided_word_inside_another_word_is_allowed() -> None:
    assert list(avoided_in_code("their_jammed = henceforth  # jammed")) == []


def test_code_has_no_avoided_words(root: Path, python_files: list[Path]) -> None:
    found = {
        f"{name}:{number}: {word}"
        for path in python_files
        if (name := path.relative_to(root).as_posix()).startswith("pybroker/")
        for number, word in avoided_in_code(path.read_text())
    }
    assert found == set()


def test_documents_have_no_avoided_words(root: Path) -> None:
    found = {
        f"{path.relative_to(root)}:{number}: {word}"
        for path in [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
        for number, word in avoided_in_text(path.read_text())
    }
    assert found == set()
