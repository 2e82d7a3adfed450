"""Comparison of two values by `=`, `<>`, `<`, `<=`, `>` and `>=` (JMS 1.1, 3.8.1.1 and 3.8.1.2).

- NULL with anything is UNKNOWN (None).
- Values of different types compare as FALSE, by `<>` too; exact and approximate numbers are one type, and meet as
  approximate numbers.
- Only numbers have an order: other types compare as FALSE there.

Where strings are converted (`convert_string_expressions:`, ActiveMQ's for STOMP, whose properties are all strings) a
string takes the type of what it is compared with. A string that does not read as that type differs from it: `<>` is
TRUE, everything else FALSE. A string of more than `NUMBER_CHARACTERS_MAX` reads as no number.

Two equal long strings are compared to their end, which is charged to the `WorkLimit` of the evaluation. When that is
used up, the comparison is UNKNOWN.
"""

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from pybroker.broker.core.selector.fields import Condition, Value
from pybroker.broker.core.selector.like import WorkLimit
from pybroker.broker.core.selector.subject import Subject

Test = Callable[[Any, Any], bool]
Decision = Callable[[object, object], bool | None]

_TESTS: Mapping[str, Test] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MIRRORED: Mapping[str, str] = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ORDERED_TYPES: frozenset[type] = frozenset((int, float))
_TYPES: frozenset[type] = _ORDERED_TYPES | {bool, str}

NUMBER_CHARACTERS_MAX: Final = 1_000
"""Characters of a string that may be a number: more than a double needs to be exact, and read in some microseconds. A
selector may compare a property a thousand times, and each time it would read a text of megabytes."""

_COMPARED_PER_STEP: Final = 16
"""Characters of two equal strings that are compared in the time of a step."""

_UNCHARGED_MAX: Final = 1_024
"""Characters of two equal strings up to which a comparison is not charged."""

# Java's Long.valueOf and Double.valueOf, without hexadecimal and names such as NaN. No text can be divided in two ways
# between neighbouring repetitions, or reading would take time in the square of its length.
_EXACT = re.compile(r"([+-]?)0*([1-9][0-9]{0,18}|0)")
_APPROXIMATE = re.compile(r"[\x00-\x20]*([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?[\x00-\x20]*")
_LONG = range(-(2**63), 2**63)
_TRUE = "true"


def compare(symbol: str, left: Value, right: Value, *, convert: bool, limit: WorkLimit | None) -> Condition:
    """Return the condition `left symbol right`.

    Args:
        symbol: the operator.
        left: its left side.
        right: its right side.
        convert: a string is read as what the other side is.
        limit: the work that a comparison of two strings is charged to; None: one of them is a constant, and short.
    """
    decide = _converting_decision(symbol) if convert else _decision(symbol)
    if limit is None or symbol not in ("=", "<>"):
        return lambda subject: decide(left(subject), right(subject))
    limit.is_needed = True

    def condition(subject: Subject) -> bool | None:
        a = left(subject)
        b = right(subject)
        size = len(a) if isinstance(a, str) and isinstance(b, str) and len(a) == len(b) else 0
        if size > _UNCHARGED_MAX and not limit.charge(size // _COMPARED_PER_STEP):
            return None
        return decide(a, b)

    return condition


def compare_with_constant(symbol: str, value: Value, constant: float | str) -> Condition:
    """Return the condition `value symbol constant`, optimised because nearly every selector consists of these."""
    test = _TESTS[symbol]
    kind = type(constant)
    if kind not in _comparable_types(symbol):
        return lambda subject: None if value(subject) is None else False
    if isinstance(constant, int | float) and not isinstance(constant, bool):
        return _compare_with_number(test, value, constant)

    def condition(subject: Subject) -> bool | None:
        found = value(subject)
        if type(found) is kind:
            return test(found, constant)
        return None if found is None else False

    return condition


def mirrored(symbol: str) -> str:
    """Return the operator for exchanged sides: `5 < a` is `a > 5`."""
    return _MIRRORED[symbol]


def _compare_with_number(test: Test, value: Value, constant: float) -> Condition:
    exact = constant if type(constant) is int else None
    approximate = float(constant)

    def condition(subject: Subject) -> bool | None:
        found = value(subject)
        if type(found) is int:
            return test(float(found), approximate) if exact is None else test(found, exact)
        if type(found) is float:
            return test(found, approximate)
        return None if found is None else False

    return condition


def _comparable_types(symbol: str) -> frozenset[type]:
    return _TYPES if symbol in ("=", "<>") else _ORDERED_TYPES


def _decision(symbol: str) -> Decision:
    """Return the comparison of two values."""
    test = _TESTS[symbol]
    comparable = _comparable_types(symbol)

    def decide(a: object, b: object) -> bool | None:
        if type(a) is type(b) and type(a) in comparable:
            return test(a, b)
        if type(a) is int and type(b) is float:
            return test(float(a), b)
        if type(a) is float and type(b) is int:
            return test(a, float(b))
        return None if a is None or b is None else False

    return decide


def _converting_decision(symbol: str) -> Decision:
    """Return the comparison of two values after a string has been read as what the other is."""
    decide = _decision(symbol)
    differ = symbol == "<>"

    def decide_converted(a: object, b: object) -> bool | None:
        if type(a) is type(b) or a is None or b is None:
            return decide(a, b)
        if isinstance(a, str):
            a = _read(a, type(b))
        elif isinstance(b, str):
            b = _read(b, type(a))
        return differ if a is None or b is None else decide(a, b)

    return decide_converted


def _read(text: str, kind: type) -> bool | int | float | None:
    """Return the text as a value of that type, None if it cannot be read as such."""
    if kind is bool:
        return len(text) == len(_TRUE) and text.lower() == _TRUE
    if len(text) > NUMBER_CHARACTERS_MAX:
        return None
    if kind is int and (match := _EXACT.fullmatch(text)):
        number = int(match[1] + match[2])
        return number if number in _LONG else None
    if kind is float and (match := _APPROXIMATE.fullmatch(text)):
        return float(match[1])
    return None
