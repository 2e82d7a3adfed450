"""A sample of the language of selectors, over the wire."""

from typing import Any

import pytest

from tests.java.checks import Laboratory, parametrized, verify

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(300)]

EXPECTED: dict[str, Any] = {
    "disputed": {"NOT n = 2": "[0, 1, 3, 4, 5]", "missing = missing": "[]"},
    "emptySelectorSelectsAll": ["m0", "m1"],
    "onATopic": ["4", "5"],
    "sample": {
        "n = 2": "[2]",
        "n <> 2": "[0, 1, 3, 4, 5]",
        "n > 2": "[3, 4, 5]",
        "n >= 2 AND n < 4": "[2, 3]",
        "n BETWEEN 1 AND 3": "[1, 2, 3]",
        "n NOT BETWEEN 1 AND 3": "[0, 4, 5]",
        "n + 1 = 3": "[2]",
        "n * 2 > 6": "[4, 5]",
        "n / 2 = 1": "[2]",
        "n - 1 < 0": "[0]",
        "-n = -3": "[3]",
        "n = 1e0": "[1]",
        "price > 2.4": "[1, 4, 5]",
        "price = 2.5": "[1]",
        "color = 'red'": "[0]",
        "color <> 'red'": "[1, 2, 4, 5]",
        "color IN ('red', 'blue')": "[0, 2]",
        "color NOT IN ('red', 'blue')": "[1, 4, 5]",
        "color LIKE 'r%'": "[0]",
        "color LIKE '_e_'": "[0]",
        "color NOT LIKE '%e%'": "[4, 5]",
        "color LIKE 'a!_%' ESCAPE '!'": "[4]",
        "color IS NULL": "[3]",
        "color IS NOT NULL": "[0, 1, 2, 4, 5]",
        "flag": "[0, 3]",
        "flag = TRUE": "[0, 3]",
        "NOT flag": "[1, 5]",
        "flag OR n = 0": "[0, 3]",
        "missing = 1": "[]",
        "missing <> 1": "[]",
        "missing IS NULL AND n = 0": "[0]",
        "color = 'it''s'": "[5]",
        "JMSPriority = 8": "[2]",
        "JMSType = 'special'": "[2]",
        "JMSCorrelationID = 'c1'": "[2]",
        "JMSDeliveryMode = 'PERSISTENT' AND n = 0": "[0]",
        "JMSDeliveryMode = 'NON_PERSISTENT'": "[5]",
        "JMSRedelivered = FALSE AND n = 0": "[0]",
        "JMSXGroupID = 'g'": "[3]",
        "(n = 0 OR n = 1) AND NOT (n = 1)": "[0]",
        "n = 1 OR n = 2 AND n = 3": "[1]",
        "color = 5": "[]",
        "n = '2'": "[]",
        "big = 5000000000": "[4]",
        "big > 2147483647": "[4]",
        "n % 2 = 0": "[0, 2, 4]",
    },
}


@parametrized("Selectors", EXPECTED)
def test_outcome(laboratory: Laboratory, broker: str, area: str, check: str) -> None:
    verify(laboratory, broker, area, check, EXPECTED)
