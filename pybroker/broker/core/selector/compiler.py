"""Compiles a selector's tree to nested functions, one per node, so that no tree is walked for each message.

Conditions are three-valued: True, False, None for UNKNOWN.

| AND | T | F | U |   | OR | T | F | U |   | NOT |   |
| --- | - | - | - | - | -- | - | - | - | - | --- | - |
| T   | T | F | U |   | T  | T | T | T |   | T   | F |
| F   | F | F | F |   | F  | T | F | U |   | F   | T |
| U   | U | F | U |   | U  | T | U | U |   | U   | U |
"""

from collections.abc import Sequence
from typing import assert_never

from pybroker.broker.core.selector import arithmetic, like
from pybroker.broker.core.selector.comparison import compare, compare_with_constant, mirrored
from pybroker.broker.core.selector.fields import Condition, Value, field
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
from pybroker.broker.domain.openwire.message import OpenWireMessage


def compile_condition(node: Node, *, convert: bool = False) -> Condition:
    """Return the function that evaluates a condition; it raises nothing.

    Args:
        node: a tree as the parser returns it.
        convert: compare strings with numbers and booleans by reading them as such.
    """
    match node:
        case And(operands):
            return _conjunction([compile_condition(operand, convert=convert) for operand in operands])
        case Or(operands):
            return _disjunction([compile_condition(operand, convert=convert) for operand in operands])
        case Not(operand):
            return _inversion(compile_condition(operand, convert=convert))
        case Comparison():
            return _comparison(node, convert)
        case Between():
            return compile_condition(_spelt_out(node), convert=convert)
        case NullTest(operand, negated):
            return _null_test(_value(operand, convert), negated)
        case InList(identifier, choices, negated):
            return _membership(field(identifier.name), frozenset(choices), negated)
        case Like(identifier, pattern, escape, negated):
            return _likeness(field(identifier.name), pattern, escape, negated)
        case Literal() | Identifier() | Signed() | Arithmetic():
            return _truth(_value(node, convert))
        case _:
            assert_never(node)


def _value(node: Node, convert: bool) -> Value:
    match node:
        case Literal(constant):
            return lambda message: constant
        case Identifier(name):
            return field(name)
        case Signed(operator, operand):
            return arithmetic.signed(operator, _value(operand, convert))
        case Arithmetic(operator, left, right):
            return arithmetic.arithmetic(operator, _value(left, convert), _value(right, convert))
        case _:
            return compile_condition(node, convert=convert)


def _comparison(node: Comparison, convert: bool) -> Condition:
    left, right, symbol = _folded(node.left), _folded(node.right), node.operator
    if isinstance(left, Literal):
        left, right, symbol = right, left, mirrored(symbol)
    # With conversion, a string constant may have to be read as a number, so it cannot be compared as a constant.
    if isinstance(right, Literal) and not convert:
        return compare_with_constant(symbol, _value(left, convert), right.value)
    return compare(symbol, _value(left, convert), _value(right, convert), convert=convert)


def _folded(node: Node) -> Node:
    """Return a signed number, such as `-5`, as the constant it is."""
    match node:
        case Signed(operator, Literal(int() | float() as number)):
            return Literal(arithmetic.with_sign(operator, number))
        case _:
            return node


def _spelt_out(node: Between) -> And | Or:
    """Return the comparisons that BETWEEN stands for (JMS 1.1, 3.8.1.1)."""
    if node.negated:
        return Or((Comparison("<", node.operand, node.low), Comparison(">", node.operand, node.high)))
    return And((Comparison(">=", node.operand, node.low), Comparison("<=", node.operand, node.high)))


def _conjunction(conditions: Sequence[Condition]) -> Condition:
    if len(conditions) == 2:
        return _both(*conditions)

    def condition(message: OpenWireMessage) -> bool | None:
        result: bool | None = True
        for operand in conditions:
            truth = operand(message)
            if truth is False:
                return False
            if truth is None:
                result = None
        return result

    return condition


def _both(first: Condition, second: Condition) -> Condition:
    def condition(message: OpenWireMessage) -> bool | None:
        truth = first(message)
        if truth:
            return second(message)
        if truth is None:
            return False if second(message) is False else None
        return False

    return condition


def _disjunction(conditions: Sequence[Condition]) -> Condition:
    def condition(message: OpenWireMessage) -> bool | None:
        result: bool | None = False
        for operand in conditions:
            truth = operand(message)
            if truth:
                return True
            if truth is None:
                result = None
        return result

    return condition


def _inversion(operand: Condition) -> Condition:
    def condition(message: OpenWireMessage) -> bool | None:
        truth = operand(message)
        return None if truth is None else not truth

    return condition


def _null_test(value: Value, negated: bool) -> Condition:
    if negated:
        return lambda message: value(message) is not None
    return lambda message: value(message) is None


def _membership(value: Value, choices: frozenset[str], negated: bool) -> Condition:
    def condition(message: OpenWireMessage) -> bool | None:
        found = value(message)
        return None if found is None else (type(found) is str and found in choices) is not negated

    return condition


def _likeness(value: Value, pattern: str, escape: str, negated: bool) -> Condition:
    is_like = like.matcher(pattern, escape)

    def condition(message: OpenWireMessage) -> bool | None:
        found = value(message)
        return None if found is None else (isinstance(found, str) and is_like(found) is not None) is not negated

    return condition


def _truth(value: Value) -> Condition:
    """Return the condition of a value alone: TRUE if it is the boolean true, FALSE if it is of another type."""

    def condition(message: OpenWireMessage) -> bool | None:
        found = value(message)
        return None if found is None else found is True

    return condition
