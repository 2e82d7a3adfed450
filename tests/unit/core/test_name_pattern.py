"""Expressions for names: what Python's match, without the time that they may take."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.core.name_pattern import STATES_MAX, NamePattern

ONE = st.sampled_from(["a", "b", r"\.", ".", "[ab]", "[^a]", "[a-c.]", r"\d", r"\W", r"[\w.]", "-", "[a-]", r"[\]a]"])
PATTERNS = st.recursive(
    ONE,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?", "{0}"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=8,
)


@given(text=PATTERNS, names=st.lists(st.text("ab.1-\n]", max_size=8), max_size=20))
def test_same_names_match_as_in_python(text: str, names: list[str]) -> None:
    try:
        pattern = NamePattern(text)
    except ValueError as error:
        assert "too large" in str(error)  # noqa: PT017 - all else of these must be read
        return
    for name in names:
        assert pattern.matches(name) == (re.fullmatch(text, name, re.ASCII) is not None)


@pytest.mark.parametrize(
    ("text", "matching", "others"),
    [
        (r"ORDERS\..*", ["ORDERS.", "ORDERS.EU"], ["ORDERS", "XORDERS.EU"]),
        ("^ORDERS$", ["ORDERS"], ["ORDERS2", "ORDER"]),
        ("A|B|", ["A", "B", ""], ["AB", "C"]),
        (r"\QA", None, None),
        ("x{3}", ["xxx"], ["xx", "xxxx"]),
        (r"é.\S", ["éxy"], ["éx ", "e12"]),
        ("a.b", ["a.b", "axb"], ["a\nb", "a\u2028b", "a\rb"]),
    ],
)
def test_examples(text: str, matching: list[str] | None, others: list[str] | None) -> None:
    if matching is None or others is None:
        with pytest.raises(ValueError, match="is not supported"):
            NamePattern(text)
        return
    pattern = NamePattern(text)
    assert [name for name in (*matching, *others) if pattern.matches(name)] == matching


@pytest.mark.parametrize("text", ["(a+)+b", "(a|a)*b", "(a*)*b", ".*.*.*.*.*b", "(.*)(.*)(.*)b", "(a|aa)+b"])
def test_patterns_that_take_others_for_ever_are_fast(text: str) -> None:
    assert not NamePattern(text).matches("a" * 1024)
    assert NamePattern(text).matches("a" * 1023 + "b")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(a", "a group has no end at character 3"),
        ("a)", "unexpected '\\)'"),
        ("*a", "unexpected '\\*'"),
        ("a**", "a repetition of a repetition"),
        ("a*+", "a repetition of a repetition"),
        ("a{x}", "no number of repetitions"),
        ("a{1,y}", "no number of repetitions"),
        ("a{2,1}", "a repetition from high to low"),
        ("a{2", "a repetition has no end"),
        ("a{}", "no number of repetitions"),
        ("[a", "it ends too early"),
        ("[]", "needs a backslash"),
        ("[z-a]", "a range from high to low"),
        ("[a&&b]", "needs a backslash"),
        (r"[a-\d]", "a range from high to low"),
        ("a\\", "it ends too early"),
        (r"\bA", r"\\b is not supported"),
        (r"(a)\1", r"\\1 is not supported"),
        ("(?i)a", "no group but"),
        ("(?=a)", "no group but"),
        ("a^b", r"unexpected '\^'"),
        ("a$b", r"unexpected '\$'"),
        ("(" * 30 + ")" * 30, "too many groups"),
        ("a" * 501, "at most 500 characters"),
        ("a{300}", f"more than {STATES_MAX} states"),
        ("((a{9}){9}){9}", f"more than {STATES_MAX} states"),
        ("(((){9999}){9999}){9999}", "too large"),
    ],
)
def test_what_is_wrong_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NamePattern(text)
