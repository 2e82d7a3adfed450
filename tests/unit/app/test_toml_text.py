"""TOML that is written reads as what it was."""

import tomllib
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from pybroker.broker.app.toml_text import toml_lines

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
PLAIN = st.one_of(st.booleans(), st.integers(-(2**62), 2**62), st.floats(allow_nan=False, allow_infinity=False), TEXT)
INNER = st.recursive(PLAIN, lambda each: st.one_of(st.lists(each, max_size=3), st.dictionaries(TEXT, each, max_size=3)))


@given(st.dictionaries(TEXT, INNER, max_size=5), TEXT)
@example({"stomp": 61613}, "transportConnector[s\x7f]")
def test_what_is_written_is_read_again(settings: dict[str, Any], comment: str) -> None:
    text = "\n".join(toml_lines(settings, dict.fromkeys(settings, f"a\ncomment # of [two] lines {comment}")))
    assert tomllib.loads(text) == settings


def test_the_form_is_that_of_a_person() -> None:
    settings = {
        "policies": [{"queue": "A.>", "dead_letter_strategy": {"type": "individual"}}, {"memory_limit": "8mb"}],
        "openwire": 61616,
        "redelivery": {"fallback_to_dead_letter": True, "policies": [{"queue": "B"}]},
        "composite_queues": [{"name": "C", "forward_to": ["queue://D", {"topic": "E"}]}],
        "destinations": ["queue://F"],
    }
    assert list(toml_lines(settings, {"openwire": "activemq.xml, line 3", "policies": "activemq.xml, line 9"})) == [
        "openwire = 61616  # activemq.xml, line 3",
        'destinations = ["queue://F"]',
        "",
        "# activemq.xml, line 9",
        "[[policies]]",
        'queue = "A.>"',
        'dead_letter_strategy = { type = "individual" }',
        "",
        "[[policies]]",
        'memory_limit = "8mb"',
        "",
        "[redelivery]",
        "fallback_to_dead_letter = true",
        "",
        "[[redelivery.policies]]",
        'queue = "B"',
        "",
        "[[composite_queues]]",
        'name = "C"',
        'forward_to = ["queue://D", { topic = "E" }]',
    ]
