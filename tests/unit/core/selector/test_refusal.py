"""Invalid selectors are refused, with a caret under the place and what was expected."""

import pytest

from pybroker.broker.core.selector import compile_selector
from pybroker.broker.core.selector.parser import DEPTH_MAX
from pybroker.broker.core.selector.selector import TEXT_MAX
from pybroker.broker.domain.errors import InvalidSelector


def refusal(text: str) -> str:
    with pytest.raises(InvalidSelector) as caught:
        compile_selector(text)
    return str(caught.value)


# A selector, the caret below it, what the message begins with.
MALFORMED = r"""
a =
   ^
expected a value, found the end

a = = 5
    ^
expected a value, found '='

a == 5
   ^
expected a value, found '='

a != 5
  ^
expected <> for 'is not equal', found '!'

= 5
^
expected a value, found '='

a 5
  ^
expected an operator or the end, found '5'

a AND
     ^
expected a value, found the end

AND a
^
expected a value, found 'AND'

a OR OR b
     ^
expected a value, found 'OR'

(a = 5
      ^
expected ')', found the end

a = 5)
     ^
expected the end, found ')'

()
 ^
expected a value, found ')'

a = 5;
     ^
expected a value or an operator, found ';'

a.b = 5
 ^
expected a value or an operator, found '.'

a = 'abc
    ^
expected a closing quote for the string that begins

a = 'x''y
    ^
expected a closing quote for the string that begins

a = 1 LIKE 'x'
    ^
expected a name before LIKE, found a number

a LIKE 'x' b
           ^
expected an operator or ESCAPE or the end, found 'b'

(a LIKE 'x' ESCAPE 'y' > 5)
                       ^
expected an operator or ')', found '>'

a BETWEEN 1 b
            ^
expected AND, found 'b'

a BETWEEN 1 = 2 AND 3
            ^
expected AND, found '='

a BETWEEN b LIKE 'x' AND 3
            ^
expected AND, found 'LIKE'

a BETWEEN 1 AND 2 BETWEEN 3 AND 4
                  ^
expected an operator or the end, found 'BETWEEN'

(a BETWEEN 1) AND 2
            ^
expected AND, found ')'

a IS NULL + 1
          ^
expected an operator or the end, found '+'

a = "abc"
    ^
expected single quotes around a string, found a double quote

"a" = 5
^
expected single quotes around a string, found a double quote

a = NULL
    ^
expected IS NULL or IS NOT NULL (nothing equals NULL), found NULL

NULL IS NULL
^
expected IS NULL or IS NOT NULL (nothing equals NULL), found NULL

a IS 5
     ^
expected NOT or NULL, found '5'

a IS NOT
        ^
expected NULL, found the end

a NOT 5
      ^
expected BETWEEN or IN or LIKE, found '5'

a BETWEEN 1
           ^
expected AND, found the end

a BETWEEN 1 OR 2
            ^
expected AND, found 'OR'

a BETWEEN 'x' AND 'y'
          ^
expected a number, found a string

a IN ()
      ^
expected a string in single quotes, found ')'

a IN ('x',)
          ^
expected a string in single quotes, found ')'

a IN 'x'
     ^
expected '(', found "'"

a IN (5)
      ^
expected a string in single quotes, found '5'

a IN ('x'
         ^
expected ')' or ',', found the end

'x' IN ('x')
^
expected a name before IN, found a string

a LIKE b
       ^
expected a string in single quotes, found 'b'

a + 1 LIKE '6'
^
expected a name before LIKE, found a number

a LIKE 'x' ESCAPE 'ab'
                  ^
expected one character to escape with

a LIKE 'x' ESCAPE ''
                  ^
expected one character to escape with

a > 'b'
    ^
expected a number, found a string

TRUE < a
^
expected a number, found a condition

a > 1 > 2
      ^
expected an operator or the end, found '>'

a + 'b' = 'ab'
    ^
expected a number, found a string

-'b' = 1
 ^
expected a number, found a string

-(a = b) = 1
  ^
expected a number, found a condition

5
^
expected a condition, found a number

'x'
^
expected a condition, found a string

a + 1
^
expected a condition, found a number

a AND 5
      ^
expected a condition, found a number

a OR 'x'
     ^
expected a condition, found a string

NOT 5
    ^
expected a condition, found a number

a = NOT b
    ^
expected a value, found 'NOT'

a = 9223372036854775809
    ^
expected a number in the range of a Java long

a = 0xFFFFFFFFFFFFFFFFF
    ^
expected a number in the range of a Java long

a = 1e999
    ^
expected a number in the range of a Java double (or float, with an f)

a = 1e39f
    ^
expected a number in the range of a Java double (or float, with an f)

a = 018
      ^
expected a digit from 0 to 7, for a 0 begins an octal number

a = 5x
     ^
expected an operator or the end, found 'x'

a→b = 1
 ^
expected a letter, a digit, '_' or '$' in a name

XPATH '//a'
^
expected a condition, found XPATH: it is ActiveMQ's extension, not supported

xquery '/a'
^
expected a condition, found XQUERY: it is ActiveMQ's extension, not supported

REGEX('a.*', s)
^
expected a condition, found a call of REGEX: functions are ActiveMQ's extension, not supported

a = 1 AND inlist(l, s)
          ^
expected a condition, found a call of INLIST: functions are ActiveMQ's extension, not supported
"""


@pytest.mark.parametrize("example", MALFORMED.strip("\n").split("\n\n"))
def test_malformed(example):
    text, caret, error_text = example.split("\n")
    column = caret.index("^") + 1
    assert refusal(text) == f"{error_text} at column {column}\n  {text}\n  {caret}"


@pytest.mark.parametrize("text", ["", " ", "\n", "convert_string_expressions:"])
def test_an_empty_text_is_no_selector(text):
    assert refusal(text).startswith("expected a value, found the end at column ")


def test_columns_count_from_after_the_prefix():
    assert refusal("convert_string_expressions:a = = 5").endswith("  a = = 5\n      ^")


def test_prefix_counts_only_once_at_the_beginning():
    refusal("convert_string_expressions:convert_string_expressions:a = 5")
    refusal(" convert_string_expressions:a = 5")


def test_a_long_text_is_shown_around_the_caret():
    text = "aaaa = 1 OR " * 50 + "bad = = 1" + " OR cccc = 1" * 50
    first, shown, caret = refusal(text).split("\n")
    assert first == f"expected a value, found '=' at column {text.index('= =') + 3}"
    assert shown[caret.index("^") - 2 :].startswith("= = 1 OR cccc")
    assert shown.startswith("  … ")
    assert shown.endswith(" …")
    assert len(shown) < 80


def test_control_characters_are_not_shown():
    assert refusal("a\t=\r\n\x1b[2J 5").split("\n")[1:] == ["  a =   [2J 5", "       ^"]


def test_a_text_may_be_so_long_and_no_longer():
    longest = "a = 1 OR " * (TEXT_MAX // 9) + "a = 1"
    assert compile_selector(longest[: TEXT_MAX // 9 * 9 - 4]).text
    assert str(TEXT_MAX) in refusal("a" * (TEXT_MAX + 1))


@pytest.mark.parametrize("opening", ["NOT ", "- "])
def test_operators_may_nest_so_deep_and_no_deeper(opening):
    body = "a" if opening == "NOT " else "a = 1"
    levels = DEPTH_MAX - (1 if opening == "NOT " else 2)
    assert compile_selector(opening * levels + body).text
    assert f"at most {DEPTH_MAX} operators" in refusal(opening * (levels + 1) + body)


def test_parentheses_and_chains_are_not_depth():
    assert compile_selector("(" * 4000 + "a = 1" + ")" * 4000).text
    assert compile_selector(" AND ".join(["a = 1"] * 500)).text
    assert compile_selector(" OR ".join(["a = 1"] * 500)).text


@pytest.mark.parametrize(
    "text",
    [
        "(" * 8000, "-" * 8000, "-" * 8000 + "\n", "NOT " * 2000, "'" * 7999, "a" * 8000 + " 5 (", "/*" * 4000,
        "1+" * 4000,
        "=a" * 4000, "a=" * 4000 + "a", "(a BETWEEN " * 700, "a=1e" + "9" * 8000, "é" * 8000 + "→",
    ],
)  # fmt: skip
@pytest.mark.timeout(10)
def test_hostile_texts_are_refused_in_good_time(text):
    refusal(text)
