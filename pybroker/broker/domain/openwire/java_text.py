"""Property values in Java's text form, for protocols that have text only: clients compare it with ActiveMQ's.

Source: Java SE, `String.valueOf`, `Double.toString` and `Float.toString`.
"""

from decimal import Decimal

from pybroker.broker.domain.big_endian import FLOAT
from pybroker.broker.domain.openwire.values import Float, Value


def java_text(value: Value) -> str:
    """Return a property's value in the form of Java's `String.valueOf`: `true`, `null`, `1.0E10`."""
    if isinstance(value, str):
        return value
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _java_number(value)
    return str(value)


def _java_number(number: float) -> str:
    """Return a double or float: plain from 0.001 to 10 million, else one digit, a point and an exponent."""
    if number != number:
        return "NaN"
    if number in (float("inf"), float("-inf")):
        return "Infinity" if number > 0 else "-Infinity"
    digits = _shortest_float(number) if isinstance(number, Float) else repr(float(number))
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return digits
    sign, figures, point = Decimal(digits).as_tuple()
    text = "".join(map(str, figures)).rstrip("0") or "0"
    exponent = int(point) + len(figures) - 1
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{exponent}"


def _shortest_float(number: float) -> str:
    """Return the shortest decimal that rounds to that single-precision number."""
    for precision in range(1, _SINGLE_DIGITS_MAX):
        shorter = float(f"{number:.{precision}g}")
        if abs(shorter) <= _SINGLE_MAX and FLOAT.unpack(FLOAT.pack(shorter))[0] == number:
            return repr(shorter)
    return repr(float(f"{number:.{_SINGLE_DIGITS_MAX}g}"))


_SINGLE_MAX = 3.4028235677973366e38
"""The limit from which on a number rounds to infinity."""
_SINGLE_DIGITS_MAX = 9
"""The number of digits that distinguish any two single-precision numbers."""
