"""Code blocks of the documents, for the tests that run them."""

import re
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block: its page below the root, its language and its text, without the indentation of a list."""

    page: str
    language: str
    text: str


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    found = _FENCE.findall((ROOT / page).read_text(encoding="utf-8"))
    return [Block(page, language, textwrap.dedent(text)) for _, language, text in found]


def block(page: str, language: str, part: str) -> str:
    """Return the text of the one block in that language that contains the part."""
    (found,) = (each.text for each in blocks(page) if each.language == language and part in each.text)
    return found
