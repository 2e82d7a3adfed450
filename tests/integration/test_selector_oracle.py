"""The same questions to the stock ActiveMQ's selectors and to ours: equal answers, except where we mean to differ."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.core.selector import compile_selector
from pybroker.broker.core.selector.portability import is_refused_by_activemq
from pybroker.broker.domain.destination import parse
from pybroker.broker.domain.errors import InvalidSelector
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.ids import OpenWireMessageId
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, to_message
from pybroker.broker.domain.openwire.values import Byte, Float, Long, Short, encode_map

ORACLE = Path(__file__).parent / "java" / "SelectorOracle.java"

Properties = Mapping[str, Any]
Question = tuple[str, Properties]
Evaluate = Callable[[list[Question]], list[str]]

HEADERS = {
    "JMSCorrelationID": "correlation_id",
    "JMSExpiration": "expiration",
    "JMSPriority": "priority",
    "JMSTimestamp": "timestamp",
    "JMSType": "jms_type",
    "JMSXGroupID": "group_id",
    "JMSXGroupSeq": "group_sequence",
    "JMSXUserID": "user_id",
}
"""Header fields by their names in `OpenWireMessage`, where both sides have the same kind of value."""

ABOUT: Properties = {
    "i": 5,
    "zero": 0,
    "low": -7,
    "l": 2**40,
    "d": 2.5,
    "y": Byte(5),
    "h": Short(5),
    "g": Long(5),
    "f": Float(2.5),
    "s": "abc",
    "e": "",
    "five": "5",
    "half": "7.5",
    "padded": " 5 ",
    "yes": "true",
    "odd": "a%b_c\\d'e\nf",
    "t": True,
    "n": False,
    "list": ["x"],
    "$a_1": 1,
}

OPERANDS = (
    "i", "y", "h", "g", "l", "d", "f", "s", "five", "half", "yes", "t", "n", "list", "missing", "5", "2.5", "'5'",
)  # fmt: skip
"""Pairs of operands."""

TEXTS = {"s", "five", "half", "yes", "'5'"}
BOOLEANS = {"t", "n"}


def comparisons() -> Iterator[str]:
    """Every operand compared with every other."""
    for left, symbol, right in itertools.product(OPERANDS, ("=", "<", ">="), OPERANDS):
        yield f"{left} {symbol} {right}"


def is_known_deviation(comparison: str, *, converting: bool) -> bool:
    """Return True if ActiveMQ compares two operands in its own way."""
    left, symbol, right = comparison.split(" ")
    if left == right and left in ("list", "missing"):
        return symbol == "="
    if right in ("y", "h", "f") and left in ("i", "h", "g", "l", "d", "f", "5", "2.5"):
        return True
    if converting and {left, right} & BOOLEANS and {left, right} & TEXTS:
        return True
    return symbol != "=" and ({left, right} <= TEXTS or {left, right} <= BOOLEANS)


SAME_ANSWERS = r"""
TRUE
FALSE
t
n
s
missing
i
NOT t
NOT n
NOT s
NOT i
NOT missing
(t)
t AND n
t AND missing
n AND missing
missing AND n
missing AND missing
t OR missing
missing OR t
n OR missing
NOT (n OR missing)
NOT (t AND missing)
NOT (n AND missing)
t AND t AND n OR t
t OR t AND n
NOT n AND n
NOT t OR t
NOT NOT t
i <> 5
i <> 6
d <> 2.5
s <> 'abc'
s <> 'x'
missing <> 5
i = 5 = TRUE
(i = 5) = (d = 2.5)
i > 5 = FALSE
i = 5 IS NULL
5 IS NULL
i BETWEEN 1 AND missing
i BETWEEN 10 AND missing
i NOT BETWEEN 10 AND missing
i BETWEEN 1 AND 10 AND s = 'abc'
s IN ('abc')
s IN ('a', 'abc', 'x')
s NOT IN ('a', 'x')
s IN ('''')
missing IN ('a')
missing NOT IN ('a')
i IN ('5')
s LIKE 'abc'
s LIKE 'a%'
s LIKE 'A%'
s LIKE '%c'
s LIKE 'a_c'
s LIKE '_%_'
s LIKE '____'
s LIKE ''
e LIKE ''
e LIKE '%'
s LIKE '.*'
s NOT LIKE 'b%'
missing LIKE '%'
missing NOT LIKE '%'
i LIKE '5'
i NOT LIKE '5'
odd LIKE 'a\%b\_c\\d''e_f' ESCAPE '\'
odd LIKE 'ax%bx_c\d''e_f' ESCAPE 'x'
odd LIKE 'a%f'
odd LIKE '%b_c%'
s LIKE 'axbc' ESCAPE 'x'
s LIKE 'abcx' ESCAPE 'x'
s LIKE 'a%' ESCAPE 'ab'
s LIKE 'a%' ESCAPE ''
i + 1 = 6
i - 10 = -5
i * d = 12.5
i / 2 = 2.5
7 / 2 = 3.5
low % 3 = -1
7 % -3 = 1
7.5 % 2 = 1.5
low + 0.5 = -6.5
-i = -5
+i = 5
- - i = 5
--i = 5
i--3 = 8
l + l = 2199023255552
l * 2 > 2000000000000
1 + 2 * 3 = 7
(1 + 2) * 3 = 9
10 - 4 - 3 = 3
16 / 4 / 2 = 2
2 * -3 = -6
missing + 1 = 1
-missing = 1
s - 1 = 1
i + s = 5
-s = 1
010 = 8
08 = 8
0x1F = 31
0X1f = 31
31L = 31
5l = i
1. = 1
.5 = 0.5
7E3 = 7000
7e-1 = 0.7
1.e2 = 100
9223372036854775807 = 9223372036854775807
-9223372036854775808 < 0
9007199254740993 = 9007199254740992.0
9007199254740993 = 9007199254740992
0xFFFFFFFFFFFFFFFFFF > 5
i=5and s='abc'
(i=5)AND(s='abc')
i>3and(t)
I = 5
$a_1 = 1
i = 5 -- all that follows⏎
i = 5 -- but a comment ends with its line
i = 5 /* or a * that / ends */
/* here */ i /**/ = 5
a-b IS NULL
(s) LIKE 'a%'
(s) IN ('abc')
((i)) = ((5))
5 = TRUE
5 = 'a'
'a' = 'a'
TRUE = TRUE
i ⏎=⏎⏎5
i
5
'x'
i +
i = 5 OR
AND
()
(i = 5
i = 5)
i = 5;
i == 5
i != 5
i > 3 > 2
i = NULL
NULL = NULL
i IN (5)
s IN ()
s IN ('abc',)
'abc' IN ('abc')
s > 'abb'
5 > 'b'
5 > TRUE
TRUE > FALSE
s BETWEEN 'a' AND 'b'
NOT 5
5 AND TRUE
a.b IS NULL
s = 'abc
s = "abc"
"i" = 5
foo(1)
JMSDeliveryMode = 'PERSISTENT'
JMSDeliveryMode = 2
JMSPriority = 0
JMSRedelivered
JMSXDeliveryCount = 1
JMSXGroupSeq = 0
JMSXGroupID IS NULL
JMSXGroupFirstForConsumer = FALSE
JMSXProducerTXID IS NULL
JMSActiveMQBrokerInTime = 0
JMSActiveMQBrokerOutTime = 0
JMSExpiration = 0
JMSTimestamp = 0
JMSType IS NULL
JMSReplyTo IS NULL
JMSMessageID = 'ID:oracle-1:1:1:1'
JMSDestination = 'queue://ORACLE'
jmspriority IS NULL
convert_string_expressions:
 convert_string_expressions:five = 5
CONVERT_STRING_EXPRESSIONS:five = 5
convert_string_expressions:convert_string_expressions:five = 5
convert_string_expressions: five = 5
convert_string_expressions:s <> 5
convert_string_expressions:i <> 'x'
convert_string_expressions:five > '4'
convert_string_expressions:five IN ('5')
convert_string_expressions:'+5' = 5
convert_string_expressions:'0x5' = 5
convert_string_expressions:'005' = 5
convert_string_expressions:'5' = 5.0
convert_string_expressions:'5d' = 5.0
convert_string_expressions:'.5e1f' = 5.0
convert_string_expressions:padded = 5
convert_string_expressions:padded = 5.0
convert_string_expressions:five - 1 = 4
convert_string_expressions:-five = -5
"""

HEADER_QUESTIONS: list[Question] = [
    ("JMSDeliveryMode = 'NON_PERSISTENT'", {"JMSDeliveryMode": "NON_PERSISTENT"}),
    ("JMSPriority BETWEEN 5 AND 9", {"JMSPriority": 7}),
    ("JMSTimestamp > 1600000000000", {"JMSTimestamp": 1_700_000_000_000}),
    ("JMSExpiration > 0", {"JMSExpiration": 1_700_000_000_000}),
    ("JMSCorrelationID LIKE 'c-%'", {"JMSCorrelationID": "c-1"}),
    ("JMSType = 'car' AND color = 'blue' AND weight > 2500", {"JMSType": "car", "color": "blue", "weight": 2600}),
    ("JMSReplyTo = 'queue://R'", {"JMSReplyTo": "queue://R"}),
    ("JMSReplyTo = 'temp-queue://ID:x'", {"JMSReplyTo": "temp-queue://ID:x"}),
    ("JMSDestination = 'topic://T'", {"JMSDestination": "topic://T"}),
    ("JMSRedelivered", {"JMSXDeliveryCount": 2}),
    ("JMSXDeliveryCount = 3", {"JMSXDeliveryCount": 3}),
    ("JMSXGroupID = 'g' AND JMSXGroupSeq = 2", {"JMSXGroupID": "g", "JMSXGroupSeq": 2}),
    ("JMSXUserID = 'mo'", {"JMSXUserID": "mo"}),
]

# Selector, ActiveMQ's answer, ours: the table in pybroker.broker.core.selector.selector, checked.
DEVIATIONS = r"""
NOT i = 6                               | false   | true
NOT i IS NULL                           | false   | true
NOT i BETWEEN 6 AND 7                   | invalid | true
i = NOT t                               | false   | invalid
s <> 5                                  | true    | false
s >= s                                  | true    | false
t > n                                   | true    | false
list <> 'x'                             | true    | false
list = list                             | true    | false
missing = missing                       | true    | false
i = h                                   | false   | true
2.5 = f                                 | error   | true
s + 'd' = 'abcd'                        | true    | invalid
s + 1 = 'abc1'                          | true    | false
TRUE + 1 = 2                            | error   | invalid
i NOT IN ('a')                          | false   | true
2147483647 + 1 < 0                      | true    | false
i / 0 > 3                               | true    | false
i % 0 > 3                               | true    | false
nan = nan                               | true    | false
nan > 5                                 | true    | false
99999999999999999999 > 5                | false   | invalid
1e999 > 5                               | true    | invalid
1.5f = 1.5                              | invalid | true
0x1FL = 31                              | invalid | true
größe = 1                               | invalid | true
xpath = 5                               | invalid | false
'abc' LIKE 'a%'                         | true    | invalid
i + 1 LIKE '6'                          | false   | invalid
NULL IS NULL                            | true    | invalid
NULL                                    | false   | invalid
XPATH '//a'                             | false   | invalid
XQUERY '//a'                            | false   | invalid
REGEX('a.*', s)                         | true    | invalid
INLIST(MAKELIST('a', 'abc'), s)         | true    | invalid
REPLACE(s, 'a', 'b') = 'bbc'            | true    | invalid
JMSActiveMQBrokerPath IS NULL           | false   | true
convert_string_expressions:t = 'true'   | error   | true
convert_string_expressions:t <> 'x'     | error   | true
convert_string_expressions:five + 1 = '51' | true | false
"""


# Selectors that are valid here, of the kinds that ActiveMQ may refuse.
PORTABLE = r"""
NOT 5 = i
NOT 'abc' = s
NOT -i = 5
NOT + i = 5
NOT NOT i > 5
NOT i > 5
NOT (i) > 5
NOT (i > 5) = TRUE
NOT i NOT BETWEEN 6 AND 7
NOT s IN ('a')
NOT s NOT IN ('a')
NOT (s IN ('a'))
NOT s LIKE 'a%'
NOT s NOT LIKE 'a%'
NOT (i + 1) = 6
NOT (-i) = 6
NOT ((i > 5) OR t)
NOT (s = 'a') AND i > 5
s IS NOT NULL
s NOT IN ('x') AND s NOT LIKE 'x' AND i NOT BETWEEN 6 AND 7
i = 010L OR i = 0L
i = 1.5D OR i = 1e1F OR i = 1e1
i = 31l AND i = 0x1F
"xpath" = 'x' OR s = 'größe'
XQUERY = 5
t AND (NOT i >= 5)
convert_string_expressions:NOT five > 4
"""


@pytest.fixture(scope="module")
def evaluate(java):
    """Evaluate selectors in ActiveMQ, all at once."""

    def answers(questions: list[Question]) -> list[str]:
        lines = ("\t".join((escaped(text), *map(written, about.items()))) for text, about in questions)
        return java.run(ORACLE, stdin="".join(line + "\n" for line in lines)).splitlines()

    return answers


def ours(text: str, about: Properties) -> str:
    """Answer as the oracle does."""
    try:
        return str(compile_selector(text).matches(message(about))).lower()
    except InvalidSelector:
        return "invalid"


def message(about: Properties) -> Message:
    """Make the message the oracle makes."""
    fields = OpenWireMessage(
        type=MessageType.MESSAGE,
        message_id=OpenWireMessageId("ID:oracle-1:1:1:1", None, 0),
        destination=parse(about.get("JMSDestination", "queue://ORACLE")),
        persistent=about.get("JMSDeliveryMode", "PERSISTENT") == "PERSISTENT",
        reply_to=parse(about["JMSReplyTo"]) if "JMSReplyTo" in about else None,
        redelivery_counter=about.get("JMSXDeliveryCount", 1) - 1,
        priority=0,
        marshalled_properties=encode_map({name: value for name, value in about.items() if not name.startswith("JMS")}),
    )
    for name in HEADERS.keys() & about.keys():
        setattr(fields, HEADERS[name], about[name])
    return to_message(fields)


def escaped(text: str) -> str:
    """Write a text on one line, as a Java string literal has it."""
    for character, letter in (("\\", "\\"), ("\t", "t"), ("\n", "n"), ("\r", "r"), ("\f", "f")):
        text = text.replace(character, "\\" + letter)
    return text


def written(entry: tuple[str, Any]) -> str:
    """Write a field as the oracle reads it."""
    name, value = entry
    match value:
        case bool():
            return f"{name}:b:{str(value).lower()}"
        case Byte() | Short() | Long() | Float():
            return f"{name}:{'yhlf'[(Byte, Short, Long, Float).index(type(value))]}:{value!r}"
        case int():
            return f"{name}:{'i' if -(2**31) <= value < 2**31 else 'l'}:{value}"
        case float():
            return f"{name}:d:{'NaN' if value != value else value}"
        case list():
            return f"{name}:x:{escaped(value[0])}"
        case _:
            return f"{name}:s:{escaped(value)}"


def agree(evaluate: Evaluate, questions: list[Question]) -> None:
    """Evaluate on both sides and compare."""
    answers = evaluate(questions)
    assert len(answers) == len(questions)
    differing = [
        (text, answer, ours(text, about))
        for (text, about), answer in zip(questions, answers, strict=True)
        # An evaluation that throws in ActiveMQ is no match there.
        if answer.replace("error", "false") != ours(text, about)
    ]
    assert differing == []


@pytest.mark.component("activemq")
def test_activemq_gives_the_same_answers(evaluate):
    agree(evaluate, [(text.replace("⏎", "\n"), ABOUT) for text in SAME_ANSWERS.strip("\n").splitlines()])


@pytest.mark.component("activemq")
def test_header_fields_have_the_same_values(evaluate):
    agree(evaluate, HEADER_QUESTIONS)


@pytest.mark.component("activemq")
@pytest.mark.parametrize("converting", [False, True])
def test_every_kind_of_value_compares_alike(evaluate, converting):
    prefix = "convert_string_expressions:" if converting else ""
    texts = [text for text in comparisons() if not is_known_deviation(text, converting=converting)]
    agree(evaluate, [(prefix + text, ABOUT) for text in texts])


@pytest.mark.component("activemq")
@pytest.mark.parametrize("form", ["{} IS NULL", "{} IS NOT NULL", "{} BETWEEN 2 AND 9", "{} NOT BETWEEN 3 AND 4"])
def test_every_kind_of_value_is_tested_alike(evaluate, form):
    agree(evaluate, [(form.format(operand), ABOUT) for operand in OPERANDS])


@pytest.mark.component("activemq")
def test_deviations_are_those_we_know(evaluate):
    rows = [[cell.strip() for cell in row.split(" | ")] for row in DEVIATIONS.strip().splitlines()]
    about = {**ABOUT, "nan": float("nan"), "größe": 1}
    answers = evaluate([(text, {**ABOUT, "nan": float("nan")}) for text, _, _ in rows])
    assert [[text, answer, ours(text, about)] for (text, _, _), answer in zip(rows, answers, strict=True)] == rows


@pytest.mark.component("activemq")
def test_what_activemq_refuses_is_known(evaluate):
    texts = [
        *SAME_ANSWERS.strip("\n").splitlines(),
        *(row.split(" | ")[0].strip() for row in DEVIATIONS.splitlines()[1:]),
    ]
    texts += PORTABLE.strip().splitlines()
    texts = [text.replace("⏎", "\n") for text in texts if ours(text.replace("⏎", "\n"), ABOUT) != "invalid"]
    answers = evaluate([(text, ABOUT) for text in texts])
    expected = [(text, answer == "invalid") for text, answer in zip(texts, answers, strict=True)]
    assert sum(is_refused for _, is_refused in expected) > 20
    assert [(text, is_refused_by_activemq(text)) for text in texts] == expected
