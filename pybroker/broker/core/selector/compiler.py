"""Compiles a selector's tree to nested functions, one per node, so that no tree is walked for each message.

Conditions are three-valued: True, False, None for UNKNOWN.

| AND | T | F | U |   | OR | T | F | U |   | NOT |   |
| --- | - | - | - | - | -- | - | - | - | - | --- | - |
| T   | T | F | U |   | T  | T | T | T |   | T   | F |
| F   | F | F | F |   | F  | T | F | U |   | F   | T |
| U   | U | F | U |   | U  | T | U | U |   | U   | U |
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, assert_never

from pybroker.broker.core.selector import arithmetic, like
from pybroker.broker.core.selector.comparison import compare, compare_with_constant, mirrored
from pybroker.broker.core.selector.fields import Condition, Value, field
from pybroker.broker.core.selector.like import WorkLimit
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


def compile_condition(node: Node, *, convert: bool = False, limit: WorkLimit | None = None) -> Condition:
    """Return the function that evaluates a condition; it raises nothing.

    Args:
        node: a tree as the parser returns it.
        convert: compare strings with numbers and booleans by reading them as such.
        limit: what the LIKEs and comparisons of strings of an evaluation may do; the caller renews it before each.
    """
    return _Compiler(convert, WorkLimit() if limit is None else limit).condition(node)


class _Compiler(NamedTuple):
    """The options of a compilation, which all nodes of a tree share."""

    convert: bool
    limit: WorkLimit

    def condition(self, node: Node) -> Condition:
        match node:
            case And(operands):
                return _conjunction([self.condition(operand) for operand in operands])
            case Or(operands):
                return _disjunction([self.condition(operand) for operand in operands])
            case Not(operand):
                return _inversion(self.condition(operand))
            case Comparison():
                return self._comparison(node)
            case Between():
                return self.condition(_spelt_out(node))
            case NullTest(operand, negated):
                return _null_test(self._value(operand), negated)
            case InList(identifier, choices, negated):
                return _membership(field(identifier.name), frozenset(choices), negated)
            case Like(identifier, pattern, escape, negated):
                return _likeness(field(identifier.name), like.matcher(pattern, escape, self.limit), negated)
            case Literal() | Identifier() | Signed() | Arithmetic():
                return _truth(self._value(node))
            case _:
                assert_never(node)

    def _value(self, node: Node) -> Value:
        match node:
            case Literal(constant):
                return lambda subject: constant
            case Identifier(name):
                return field(name)
            case Signed(operator, operand):
                return arithmetic.signed(operator, self._value(operand))
            case Arithmetic(operator, left, right):
                return arithmetic.arithmetic(operator, self._value(left), self._value(right))
            case _:
                return self.condition(node)

    def _comparison(self, node: Comparison) -> Condition:
        left, right, symbol = _folded(node.left), _folded(node.right), node.operator
        if isinstance(left, Literal):
            left, right, symbol = right, left, mirrored(symbol)
        # With conversion, a string constant may have to be read as a number, so it cannot be compared as a constant.
        if isinstance(right, Literal) and not self.convert:
            return compare_with_constant(symbol, self._value(left), right.value)
        limit = None if isinstance(right, Literal) else self.limit
        return compare(symbol, self._value(left), self._value(right), convert=self.convert, limit=limit)


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

    def condition(subject: Subject) -> bool | None:
        result: bool | None = True
        for operand in conditions:
            truth = operand(subject)
            if truth is False:
                return False
            if truth is None:
                result = None
        return result

    return condition


def _both(first: Condition, second: Condition) -> Condition:
    def condition(subject: Subject) -> bool | None:
        truth = first(subject)
        if truth:
            return second(subject)
        if truth is None:
            return False if second(subject) is False else None
        return False

    return condition


def _disjunction(conditions: Sequence[Condition]) -> Condition:
    def condition(subject: Subject) -> bool | None:
        result: bool | None = False
        for operand in conditions:
            truth = operand(subject)
            if truth:
                return True
            if truth is None:
                result = None
        return result

    return condition


def _inversion(operand: Condition) -> Condition:
    def condition(subject: Subject) -> bool | None:
        truth = operand(subject)
        return None if truth is None else not truth

    return condition


def _null_test(value: Value, negated: bool) -> Condition:
    if negated:
        return lambda subject: value(subject) is not None
    return lambda subject: value(subject) is None


def _membership(value: Value, choices: frozenset[str], negated: bool) -> Condition:
    def condition(subject: Subject) -> bool | None:
        found = value(subject)
        return None if found is None else (type(found) is str and found in choices) is not negated

    return condition


def _likeness(value: Value, is_like: Callable[[str], bool | None], negated: bool) -> Condition:
    def condition(subject: Subject) -> bool | None:
        found = value(subject)
        if isinstance(found, str):
            truth = is_like(found)
            return None if truth is None else truth is not negated
        return None if found is None else negated

    return condition


def _truth(value: Value) -> Condition:
    """Return the condition of a value alone: TRUE if it is the boolean true, FALSE if it is of another type."""

    def condition(subject: Subject) -> bool | None:
        found = value(subject)
        return None if found is None else found is True

    return condition
