"""Expressions for texts of clients: they match what Java's do, and no text takes long."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.domain.linear_expression import STATES_MAX, TEXT_MAX, LinearExpression


@pytest.mark.parametrize(
    ("text", "matching", "others"),
    [
        ("CN=client .*, O=x", ["CN=client 1, O=x", "CN=client , O=x"], ["CN=client 1, O=xy", "CN=client 1, O=x, C=US"]),
        ("CN=app[0-9]+, O=x", ["CN=app07, O=x"], ["CN=app, O=x"]),
        (
            "^CN=(a|b{2,3})?, O=[^,]+$",
            ["CN=a, O=x", "CN=bb, O=x", "CN=, O=x"],
            ["CN=b, O=x", "CN=bbbb, O=x", "CN=a, O="],
        ),
        (
            r"CN=\w+\.example\.org",
            ["CN=a_1.example.org"],
            ["CN=a-1.example.org", "CN=a1xexample.org", "CN=é.example.org"],
        ),
        ("(?i)cn=[a-c]x", ["CN=AX", "cn=cX"], ["cn=dx"]),
        ("(?i)[^a]", ["b"], ["A", "a"]),
        (r"[\d.-]+", ["1.2-3"], ["a"]),
        (r"a\S\s\D\W", ["ab x="], ["a  x=", "ab 1=", "ab xx"]),
        ("(?:a|(?<name>b))+?c{2}", ["abacc", "bcc"], ["cc", "abac"]),
        ("^a$|^b$", ["a", "b"], ["ab", ""]),
        ("", [""], ["a"]),
        (".", ["é", "\U0001f600"], ["\n", "\u2028", ""]),
        ("a}]", ["a}]"], []),
        ("x{0}y", ["y"], ["xy"]),
        (r"ORDERS\..*", ["ORDERS.", "ORDERS.EU"], ["ORDERS", "XORDERS.EU"]),
        ("A|B|", ["A", "B", ""], ["AB", "C"]),
        (r"é.\S", ["éxy"], ["éx ", "e12"]),
    ],
)
def test_expressions_match_whole_texts(text: str, matching: list[str], others: list[str]) -> None:
    expression = LinearExpression(text)
    assert [each for each in [*matching, *others] if expression.matches(each)] == matching


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("(", r"at character 1: a \( without its \)"),
        ("a)", r"without its \("),
        ("*a", "nothing that . could repeat"),
        ("a**", "nothing that"),
        ("a++", "possessive"),
        ("a{,2}", "nothing that"),
        ("a{2,1}", "least is more than its most"),
        ("(?!a).*", r"of groups with \(\?"),
        ("(?<=a)b", r"of groups with \(\?"),
        ("(?s).", r"of groups with \(\?"),
        (r"(a)\1", r"\\1 is not supported"),
        (r"\bx", r"\\b is not supported"),
        ("a$b", r"write \\\$"),
        ("(^a)", r"write \\\^"),
        ("[]", "a set without characters"),
        ("[a[b]]", "within a set"),
        ("[a&&b]", "within a set"),
        ("[b-a]", "a range that"),
        (r"[\d-z]", "a range that"),
        ("[a", "something is missing"),
        ("a\\", "something is missing"),
        (r"\QA", "is not supported"),
        ("a" * 501, "at most"),
        ("(a{100}){100}", f"at most {STATES_MAX} are allowed"),
        ("(((){999}){999}){999}", f"at most {STATES_MAX} are allowed"),
        ("(" * 30 + ")" * 30, "groups inside one another"),
    ],
)
def test_what_is_not_supported_is_not_valid(text: str, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        LinearExpression(text)


@pytest.mark.parametrize(
    "text",
    [
        "CN=([a-z]+ ?)+, O=x",
        "(.*)*x",
        "(a|a)*x",
        "(a|aa)+x",
        "(.*)(.*)(.*)x",
        ".*.*.*.*.*.*x",
        "(.?){499}x",
        "(.{1,9}){50}x",
    ],
)
def test_no_text_takes_long(text: str) -> None:
    expression = LinearExpression(text)
    begin = time.process_time()
    assert not expression.matches("CN=" + "a" * (TEXT_MAX - 4) + "!")
    assert time.process_time() - begin < 2


def test_a_text_beyond_the_limit_does_not_match() -> None:
    assert LinearExpression("a*").matches("a" * TEXT_MAX)
    assert not LinearExpression("a*").matches("a" * (TEXT_MAX + 1))


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    suffixes = st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,1}", "{2,}", "*?", ""])
    return st.one_of(
        st.lists(inner, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.tuples(inner, suffixes).map(lambda pair: f"({pair[0]}){pair[1]}"),
    )


EXPRESSIONS = st.recursive(
    st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\W", "[b-d]", "[a-]", r"[\w.]", r"[\]a]"]),
    _larger,
    max_leaves=6,
)


@given(EXPRESSIONS, st.text("ab1.-\n]", max_size=8))
def test_expressions_mean_what_re_makes_of_them(text: str, subject: str) -> None:
    """With such short subjects, `re` is quick enough."""
    assert LinearExpression(text).matches(subject) == (re.fullmatch(text, subject, re.ASCII) is not None)
