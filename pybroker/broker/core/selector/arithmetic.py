"""Arithmetic of two values by `+`, `-`, `*`, `/` and `%`; the result is NULL if one of them is not a number.

Exact numbers are Java longs, and overflow like them. An operation on an exact and an approximate number is approximate.
A quotient is approximate even for exact numbers, as in ActiveMQ: existing selectors rely on `7 / 2 = 3.5`. No operation
raises an error: a division by zero is NULL, so that a comparison with it is UNKNOWN.
"""

import math
from collections.abc import Callable, Mapping

from pybroker.broker.core.selector.fields import Value
from pybroker.broker.core.selector.subject import Subject

_LONG_MIN = -(2**63)
_LONG_MASK = 2**64 - 1


def arithmetic(operator: str, left: Value, right: Value) -> Value:
    """Return the function that computes `left operator right`."""
    compute = _OPERATIONS[operator]

    def value(subject: Subject) -> float | None:
        a = left(subject)
        b = right(subject)
        if (type(a) is int or type(a) is float) and (type(b) is int or type(b) is float):
            return compute(a, b)
        return None

    return value


def signed(operator: str, operand: Value) -> Value:
    """Return the function that computes `operator operand` for a unary plus or minus."""

    def value(subject: Subject) -> float | None:
        number = operand(subject)
        if type(number) is int or type(number) is float:
            return with_sign(operator, number)
        return None

    return value


def with_sign(operator: str, number: float) -> float:
    """Return the number, negated when the operator is a minus."""
    return _in_range(-number) if operator == "-" else number


def _in_range(number: float) -> float:
    """Return the number as a Java long or double holds it."""
    if type(number) is int and not _LONG_MIN <= number < -_LONG_MIN:
        return (number - _LONG_MIN & _LONG_MASK) + _LONG_MIN
    return number


def _quotient(a: float, b: float) -> float | None:
    return float(a) / float(b) if b else None


def _remainder(a: float, b: float) -> float | None:
    """Return the remainder as Java's `%` computes it, with the sign of the dividend."""
    if not b:
        return None
    if type(a) is int and type(b) is int:
        return abs(a) % abs(b) * (-1 if a < 0 else 1)
    return math.fmod(a, b) if math.isfinite(a) else math.nan


_OPERATIONS: Mapping[str, Callable[[float, float], float | None]] = {
    "+": lambda a, b: _in_range(a + b),
    "-": lambda a, b: _in_range(a - b),
    "*": lambda a, b: _in_range(a * b),
    "/": _quotient,
    "%": _remainder,
}
