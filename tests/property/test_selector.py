# mypy: disable-error-code="assignment"
"""Compiled selectors against a plain interpreter of their trees, over random conditions, spellings and messages."""

import math
import random
import re
import struct
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from pybroker.broker.core.selector import compile_selector
from pybroker.broker.core.selector.compiler import compile_condition
from pybroker.broker.core.selector.parser import parse
from pybroker.broker.core.selector.subject import Subject
from pybroker.broker.core.selector.tree import (
    And,
    Arithmetic,
    Between,
    Comparison,
    Identifier,
    InList,
    Like,
    Literal,
    Node,
    Not,
    NullTest,
    Or,
    Signed,
)
from pybroker.broker.domain.errors import InvalidSelector
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage
from pybroker.broker.domain.openwire.values import encode_map

# ---------------------------------------------------------------- random conditions and messages

NAMES = ("a", "b", "c", "missing", "$x", "größe")
LIKELY = ("", "a", "b", "ab", "a_b", "%", "7", "1.5", "true", "it's", "x\ny")

texts = st.sampled_from(LIKELY) | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
exact = st.integers(0, 9) | st.sampled_from((2**31, 2**53, 2**53 + 1, 2**63 - 1)) | st.integers(0, 2**63 - 1)
approximate = st.sampled_from((0.0, 0.5, 1.0, 1.5, 2.0**53, 1e308)) | st.floats(0, allow_infinity=False)
identifiers = st.builds(Identifier, st.sampled_from(NAMES))


def numbers(depth: int) -> st.SearchStrategy[Node]:
    leaves = st.builds(Literal, exact | approximate) | identifiers
    if not depth:
        return leaves
    inner = numbers(depth - 1)
    return (
        leaves
        | st.builds(Signed, st.sampled_from("+-"), inner)
        | st.builds(Arithmetic, st.sampled_from("+-*/%"), inner, inner)
    )


def conditions(depth: int) -> st.SearchStrategy[Node]:
    number = numbers(2)
    anything = number | st.builds(Literal, texts)
    simple = (
        identifiers
        | st.builds(Literal, st.booleans())
        | st.builds(Comparison, st.sampled_from(("=", "<>")), anything, anything)
        | st.builds(Comparison, st.sampled_from(("<", "<=", ">", ">=")), number, number)
        | st.builds(Between, number, number, number, st.booleans())
        | st.builds(InList, identifiers, st.lists(texts, min_size=1, max_size=3).map(tuple), st.booleans())
        | st.builds(Like, identifiers, texts, st.sampled_from(("", "", "\\", "_", "a")), st.booleans())
        | st.builds(NullTest, anything, st.booleans())
    )
    if not depth:
        return simple
    inner = conditions(depth - 1)
    several = st.lists(inner, min_size=2, max_size=4).map(tuple)
    return (
        simple
        | st.builds(Not, inner)
        | st.builds(And, several)
        | st.builds(Or, several)
        | st.builds(Comparison, st.sampled_from(("=", "<>")), inner, inner)
        | st.builds(NullTest, inner, st.booleans())
    )


values = (
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | texts
    | st.binary(max_size=2)
)
messages = st.dictionaries(st.sampled_from(NAMES[:3]), values)

# ---------------------------------------------------------------- the plain interpreter

LONG = struct.Struct(">q")


def interpret(node: Node, message: dict[str, Any]) -> Any:
    """Evaluate a tree, following the specification sentence by sentence and without any haste."""
    match node:
        case Literal(value):
            return value
        case Identifier(name):
            return message.get(name)
        case Signed(sign, operand):
            number = interpret(operand, message)
            return calculate(sign, 0 if is_exact(number) else 0.0, number) if sign == "-" else numeric(number)
        case Arithmetic(symbol, left, right):
            return calculate(symbol, interpret(left, message), interpret(right, message))
        case Comparison(symbol, left, right):
            return relate(symbol, interpret(left, message), interpret(right, message))
        case Between(operand, low, high, negated):
            value = interpret(operand, message)
            bounds = interpret(low, message), interpret(high, message)
            if negated:
                return either([relate("<", value, bounds[0]), relate(">", value, bounds[1])])
            return opposite(
                either([opposite(relate(">=", value, bounds[0])), opposite(relate("<=", value, bounds[1]))])
            )
        case InList(identifier, choices, negated):
            value = message.get(identifier.name)
            found = None if value is None else any(relate("=", value, choice) for choice in choices)
            return opposite(found) if negated else found
        case Like(identifier, pattern, escape, negated):
            value = message.get(identifier.name)
            found = None if value is None else isinstance(value, str) and resembles(value, pattern, escape)
            return opposite(found) if negated else found
        case NullTest(operand, negated):
            return (interpret(operand, message) is None) is not negated
        case Not(operand):
            return opposite(truth(interpret(operand, message)))
        case And(operands):
            return opposite(either([opposite(truth(interpret(operand, message))) for operand in operands]))
        case Or(operands):
            return either([truth(interpret(operand, message)) for operand in operands])


def truth(value: Any) -> bool | None:
    return value if value is None or isinstance(value, bool) else False


def opposite(condition: bool | None) -> bool | None:
    return {True: False, False: True, None: None}[condition]


def either(operands: list[bool | None]) -> bool | None:
    if any(operand is True for operand in operands):
        return True
    return None if any(operand is None for operand in operands) else False


def is_exact(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def numeric(value: Any) -> Any:
    return value if is_exact(value) or isinstance(value, float) else None


def calculate(symbol: str, left: Any, right: Any) -> Any:
    if numeric(left) is None or numeric(right) is None:
        return None
    if symbol in "/%" and right == 0:
        return None
    if symbol == "/" or not (is_exact(left) and is_exact(right)):
        left, right = float(left), float(right)
    match symbol:
        case "+":
            result = left + right
        case "-":
            # 0.0 - 0.0 is not -0.0; no comparison can distinguish them.
            result = left - right
        case "*":
            result = left * right
        case "/":
            return left / right
        case _ if isinstance(left, float):
            return math.nan if not math.isfinite(left) or math.isnan(right) else math.fmod(left, right)
        case _:
            result = left - right * (abs(left) // abs(right)) * (1 if (left < 0) == (right < 0) else -1)
    return result if isinstance(result, float) else LONG.unpack((result % 2**64).to_bytes(8, "big"))[0]


def relate(symbol: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    if numeric(left) is not None and numeric(right) is not None:
        if not (is_exact(left) and is_exact(right)):
            left, right = float(left), float(right)
    elif symbol not in ("=", "<>") or not (type(left) is type(right) and isinstance(left, bool | str)):
        return False
    return {
        "=": left == right,
        "<>": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[symbol]


def resembles(text: str, pattern: str, escape: str) -> bool:
    """Match by trying every length for every `%`."""
    if not pattern:
        return not text
    if pattern[0] == escape and pattern[1:2] and pattern[1] in ("%", "_", escape):
        return text[:1] == pattern[1] and resembles(text[1:], pattern[2:], escape)
    if pattern[0] == "%":
        return any(resembles(text[skipped:], pattern[1:], escape) for skipped in range(len(text) + 1))
    return bool(text) and pattern[0] in ("_", text[0]) and resembles(text[1:], pattern[1:], escape)


# ---------------------------------------------------------------- printing

STRENGTH = {
    Or: 1,
    And: 2,
    Not: 3,
    NullTest: 4,
    Comparison: 4,
    Between: 5,
    Like: 5,
    InList: 5,
    Arithmetic: 6,
    Signed: 8,
}


def spell(node: Node, style: random.Random) -> str:
    """Write a tree as a selector, with blanks, comments, superfluous parentheses and the case of keywords by chance."""

    def inside(child: Node, strength: int) -> str:
        text = spell(child, style)
        needed = STRENGTH.get(type(child), 9) < strength
        return f"({text})" if needed or style.random() < 0.1 else text

    def word(keyword: str) -> str:
        return "".join(style.choice((letter.lower(), letter)) for letter in keyword)

    def line(*parts: str) -> str:
        blank = style.choice((" ", "\t", "\r\n ", " /* ' */ ", " -- AND\n"))
        return blank.join(part for part in parts if part)

    def chain(separator: str, parts: list[str]) -> str:
        return line(*(piece for part in parts for piece in (separator, part))).removeprefix(separator)

    negation = word("NOT") if getattr(node, "negated", False) else ""
    match node:
        case Literal(bool() as value):
            return word(str(value).upper())
        case Literal(value):
            return quoted(value) if isinstance(value, str) else repr(value)
        case Identifier(name):
            return name
        case Signed(sign, operand):
            return line(sign, inside(operand, 8))
        case Arithmetic(symbol, left, right):
            strength = 6 if symbol in "+-" else 7
            product = isinstance(left, Arithmetic) and left.operator in "+-" and strength == 7
            return line(f"({spell(left, style)})" if product else inside(left, 6), symbol, inside(right, 8))
        case Comparison(symbol, left, right):
            return line(inside(left, 4 if symbol in ("=", "<>") else 6), symbol, inside(right, 5))
        case Between(operand, low, high, _):
            return line(inside(operand, 6), negation, word("BETWEEN"), inside(low, 6), word("AND"), inside(high, 6))
        case InList(identifier, choices, _):
            return line(identifier.name, negation, word("IN"), "(" + chain(",", [*map(quoted, choices)]) + ")")
        case Like(identifier, pattern, escape, _):
            ending = (word("ESCAPE"), quoted(escape)) if escape else ()
            return line(identifier.name, negation, word("LIKE"), quoted(pattern), *ending)
        case NullTest(operand, _):
            return line(inside(operand, 4), word("IS"), negation, word("NULL"))
        case Not(operand):
            return line(word("NOT"), inside(operand, 3))
        case And(operands):
            return chain(word("AND"), [inside(operand, 3) for operand in operands])
        case Or(operands):
            return chain(word("OR"), [inside(operand, 2) for operand in operands])


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# ---------------------------------------------------------------- the properties


def evaluate(node: Node, message: dict[str, Any]) -> bool | None:
    return compile_condition(node)(subject(message))


def subject(message: dict[str, Any]) -> Subject:
    return Subject(OpenWireMessage(type=MessageType.TEXT, marshalled_properties=encode_map(message)))


@settings(max_examples=500)
@given(conditions(3), messages)
def test_a_compiled_condition_equals_its_interpretation(node, message):
    assert evaluate(node, message) is truth(interpret(node, message))


@given(conditions(3), st.randoms(use_true_random=False))
def test_what_is_written_is_what_is_read(node, style):
    assert parse(spell(node, style)) == node


@given(conditions(2), messages)
def test_conversion_leaves_messages_without_text_alone(node, message):
    if any(isinstance(value, str) for value in message.values()) or re.search("'", spell(node, random.Random(0))):
        return
    fields = subject(message)
    assert compile_condition(node, convert=True)(fields) is compile_condition(node)(fields)


@given(conditions(2), messages)
def test_a_converting_condition_is_three_valued(node, message):
    assert compile_condition(node, convert=True)(subject(message)) in (True, False, None)


WORDS = """
    a 5 1.5 'x' '' ' " ( ) , = <> < >= + - * / % . ! -- /* */ 0x 1e 08
    AND or NOT BETWEEN IN LIKE ESCAPE IS NULL TRUE XPATH XQUERY REGEX
"""
words = st.sampled_from(WORDS.split())


@given(st.text() | st.lists(words).map(" ".join) | st.lists(words).map("".join))
@example("convert_string_expressions:")
@example("9" * 5000)
@example("a = 1e" + "9" * 400)
@example("\ud800")
def test_any_text_is_a_selector_or_refused_as_one(text):
    try:
        compile_selector(text)
    except InvalidSelector as error:
        first, shown, caret = str(error).split("\n")
        assert re.search(r" at column [0-9]+\Z", first)
        assert caret.strip() == "^"
        assert len(caret) <= len(shown) + 1


@settings(max_examples=500)
@given(st.text(st.sampled_from("ab%%_\\")), st.sampled_from(("", "\\", "a")), st.text(st.sampled_from("aabb%_\n")))
def test_a_pattern_is_the_plainest_reading_of_itself(pattern, escape, text):
    node = Like(Identifier("s"), pattern, escape, negated=False)
    assert evaluate(node, {"s": text}) is resembles(text, pattern, escape)
