"""Property values in text, as Java writes them (outputs of Java 17's `String.valueOf`)."""

import pytest

from pybroker.broker.domain.openwire.java_text import java_text
from pybroker.broker.domain.openwire.values import Byte, Char, Float, Long, Value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        (Char("x"), "x"),
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (5, "5"),
        (Long(-9), "-9"),
        (Byte(3), "3"),
        (1.5, "1.5"),
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (100.0, "100.0"),
        (0.001, "0.001"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (1.25e10, "1.25E10"),
        (-1.2345e-5, "-1.2345E-5"),
        (1e100, "1.0E100"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (Float(2.5), "2.5"),
        (Float(0.10000000149011612), "0.1"),
        (Float(3.4028234663852886e38), "3.4028235E38"),
    ],
)
def test_value_is_written_as_java_writes_it(value: Value, text: str) -> None:
    assert java_text(value) == text
