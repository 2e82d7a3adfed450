"""The document of differences and the table that the programs are held against name the same things."""

import re
from pathlib import Path

from tests.java.differences import DIFFERENCES

DOCUMENT = Path(__file__).parents[2] / "docs" / "differences.md"


def test_differences_and_their_sections_match() -> None:
    described: dict[str, set[str]] = {}
    for section in re.split(r"^## ", DOCUMENT.read_text(), flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        checks = re.search(r"^Checks: (.*?)\.$", text, flags=re.MULTILINE | re.DOTALL)
        if checks:
            described[title] = set(re.findall(r"`([^`]+)`", checks[1]))
    tested: dict[str, set[str]] = {}
    for (area, check), difference in DIFFERENCES.items():
        tested.setdefault(difference.title, set()).add(f"{area}.{check}")
    assert described == tested
