"""LIKE patterns over long texts: the answers of the searches, and how much work they may be."""

import logging
import random
import re

import pytest

from pybroker.broker.core.selector import compile_selector
from pybroker.broker.core.selector.like import STEPS_MAX, WorkLimit, matcher

MEGABYTE = 1 << 20


def is_like(pattern: str, text: str) -> bool | None:
    return matcher(pattern, "", WorkLimit())(text)


def steps(pattern: str, text: str) -> int:
    limit = WorkLimit()
    matcher(pattern, "", limit)(text)
    return STEPS_MAX - limit.steps


def by_expression(pattern: str, text: str) -> bool:
    pieces = {"%": ".*?", "_": "."}
    first, *others = ["".join(pieces.get(each) or re.escape(each) for each in part) for part in pattern.split("%")]
    if not others:
        return re.fullmatch(first, text, re.DOTALL) is not None
    searched = "".join(f"(?>.*?{part})" for part in others[:-1])
    return re.fullmatch(f"{first}{searched}.*{others[-1]}", text, re.DOTALL) is not None


# Characters of one byte, of two, of three, and a surrogate without its other half: each has its own form of bit masks.
@pytest.mark.parametrize("letters", ["ab", "aé", "a€", "€\U0001f600", "a\ud800"])
def test_a_text_made_against_the_search_gets_an_exact_answer(letters):
    chance = random.Random(1)
    one, other = letters
    for _ in range(60):
        size = chance.choice((1, 2, 3, 7, 20))
        segments = [
            "".join(chance.choice((one, one, "_", other)) for _ in range(size)) for _ in range(chance.randint(1, 3))
        ]
        pattern = "%".join(("", *segments, chance.choice(("", one))))
        text = "".join(chance.choice((one, one, one, other)) for _ in range(chance.choice((5, 2_000, 6_000))))
        text = text.replace(other, one, chance.choice((0, len(text))))
        assert is_like(pattern, text) is by_expression(pattern, text), (pattern, len(text))


@pytest.mark.parametrize("place", [0, 1_000, 1_023, 1_024, 1_025, 40_000, 150_000, 199_994])
def test_a_segment_is_found_wherever_it_stands(place):
    """The places next to where a round of bit masks ends are among them."""
    text = "axab" * 50_000  # `a_a_b` compares like it, up to its last character
    assert is_like("%a_a_b%", text) is False
    assert is_like("%a_a_b%", text[:place] + "axaxb" + text[place + 5 :]) is True
    assert is_like("%a_a_b%", text[: place + 4]) is False


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("%" + "a" * 4_000 + "b%", "a" * MEGABYTE),
        ("%b" + "a" * 4_000 + "%", "a" * MEGABYTE),
        ("%" + "a_" * 2_000 + "b%", "a" * MEGABYTE),
        ("%" + "a_" * 2_000 + "b%", "b" * 4_000 + "a" * MEGABYTE),
        ("%b" + "_a" * 2_000 + "%", "a" * MEGABYTE),
        ("%a_b%", "a" * MEGABYTE),
        ("%a_b_€%", "a" * MEGABYTE + "€"),
        ("%a" * 4_000 + "b", "a" * MEGABYTE),
        ("%a_" * 2_500 + "b%", "a" * MEGABYTE),
    ],
)
def test_a_long_pattern_and_a_long_text_take_linear_time(pattern, text):
    assert is_like(pattern, text) is False
    assert steps(pattern, text) <= 2 * len(text)


@pytest.mark.parametrize("text", [("a" * 999 + "b") * 2_000, ("a" * 998 + "b") * 2_000, ("a" * 150 + "axb") * 20_000])
@pytest.mark.parametrize("pattern", ["%" + "a_" * 2_000 + "b%", "%a_b_b%", "%a_b" * 2_000])
def test_work_is_limited_for_every_text(pattern, text):
    limit = WorkLimit()
    truth = matcher(pattern, "", limit)(text)
    assert (truth is None) is (limit.steps < 0)
    assert limit.steps > -3 * MEGABYTE  # no more than one text beyond


def test_the_likes_of_an_evaluation_share_a_limit_and_are_unknown_after_it(message, caplog):
    terms = [f"s LIKE '%{number}%'" for number in range(20)]
    text = message({"s": "a" * MEGABYTE})
    with caplog.at_level(logging.WARNING):
        for _ in range(32):  # of other tests' evaluations and these, the 1st, 2nd, 4th ... are logged
            assert not compile_selector(" OR ".join(terms)).matches(text)
            assert not compile_selector(f"NOT ({' OR '.join(terms)})").matches(text)
    assert "was UNKNOWN after 4000000 steps, for message null:0 on queue://ORDERS" in caplog.text
    assert compile_selector(" OR ".join(terms[:3])).matches(text) is False
    assert compile_selector(f"NOT ({' OR '.join(terms[:3])})").matches(text) is True
    assert compile_selector(" OR ".join((*terms, "s LIKE 'a%'"))).matches(text), "it is not searched"


def test_each_evaluation_begins_with_the_whole_limit(message):
    selector = compile_selector("s LIKE '%b%' OR s LIKE '%c%'")
    assert [selector.matches(message({"s": "a" * MEGABYTE + "c"})) for _ in range(10)] == [True] * 10
