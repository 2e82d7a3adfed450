"""Evaluation of selectors: JMS 1.1, 3.8.1, its own examples included."""

import pytest

from pybroker.broker.core.selector import compile_selector
from pybroker.broker.domain.destination import Destination, DestinationType, queue, topic
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.ids import OpenWireMessageId
from pybroker.broker.domain.openwire.values import Byte, Char, Float, Long, Short
from pybroker.broker.domain.transaction import LocalTransactionId

NAMES = {True: "t", False: "f", None: "u"}


class TestTheSpecificationsExamples:
    def test_the_first_example(self, truth):
        selector = "JMSType = 'car' AND color = 'blue' AND weight > 2500"
        assert truth(selector, color="blue", weight=3000) is None  # no JMSType: UNKNOWN

    @pytest.mark.parametrize(("weight", "expected"), [(2500, False), (2501, True), (2500.5, True)])
    def test_the_first_example_with_its_type(self, message, weight, expected):
        selector = compile_selector("JMSType = 'car' AND color = 'blue' AND weight > 2500")
        assert selector.matches(message({"color": "blue", "weight": weight}, jms_type="car")) is expected

    @pytest.mark.parametrize("selector", ["age BETWEEN 15 AND 19", "age >= 15 AND age <= 19"])
    @pytest.mark.parametrize(("age", "expected"), [(14, False), (15, True), (19, True), (20, False), (None, None)])
    def test_between_includes_both_ends(self, truth, selector, age, expected):
        assert truth(selector, age=age) is expected

    @pytest.mark.parametrize("selector", ["age NOT BETWEEN 15 AND 19", "age < 15 OR age > 19"])
    @pytest.mark.parametrize(("age", "expected"), [(14, True), (15, False), (19, False), (20, True), (None, None)])
    def test_not_between_excludes_both_ends(self, truth, selector, age, expected):
        assert truth(selector, age=age) is expected

    @pytest.mark.parametrize(
        ("country", "expected"), [("UK", True), ("US", True), ("France", True), ("Peru", False), (None, None)]
    )
    def test_in(self, truth, country, expected):
        opposite = None if expected is None else not expected
        assert truth("Country IN ('UK', 'US', 'France')", Country=country) is expected
        assert truth("(Country = 'UK') OR (Country = 'US') OR (Country = 'France')", Country=country) is expected
        assert truth("Country NOT IN ('UK', 'US', 'France')", Country=country) is opposite
        assert truth("NOT ((Country = 'UK') OR (Country = 'US') OR (Country = 'France'))", Country=country) is opposite

    @pytest.mark.parametrize(
        ("selector", "text", "expected"),
        [
            ("phone LIKE '12%3'", "123", True),
            ("phone LIKE '12%3'", "12993", True),
            ("phone LIKE '12%3'", "1234", False),
            ("phone LIKE 'l_se'", "lose", True),
            ("phone LIKE 'l_se'", "loose", False),
            ("phone LIKE '\\_%' ESCAPE '\\'", "_foo", True),
            ("phone LIKE '\\_%' ESCAPE '\\'", "bar", False),
            ("phone NOT LIKE '12%3'", "123", False),
            ("phone NOT LIKE '12%3'", "12993", False),
            ("phone NOT LIKE '12%3'", "1234", True),
            ("phone LIKE '12%3'", None, None),
            ("phone NOT LIKE '12%3'", None, None),
        ],
    )
    def test_like(self, truth, selector, text, expected):
        assert truth(selector, phone=text) is expected

    def test_null_tests(self, truth):
        assert truth("prop_name IS NULL") is True
        assert truth("prop_name IS NULL", prop_name=0) is False
        assert truth("prop_name IS NOT NULL") is False
        assert truth("prop_name IS NOT NULL", prop_name="") is True


class TestThreeValuedLogic:
    """The tables of JMS 1.1, 3.8.1.2; u is NULL, so that a condition of it is UNKNOWN."""

    @pytest.mark.parametrize(
        ("left", "right", "conjunction", "disjunction"),
        [
            (True, True, True, True),
            (True, False, False, True),
            (True, None, None, True),
            (False, True, False, True),
            (False, False, False, False),
            (False, None, False, None),
            (None, True, None, True),
            (None, False, False, None),
            (None, None, None, None),
        ],
    )
    def test_and_and_or(self, truth, left, right, conjunction, disjunction):
        for neutral in ("", "{} AND ", "{} OR "):
            # A third operand takes the general path, two have one of their own.
            pad_and = neutral.format("TRUE") if "AND" in neutral else ""
            pad_or = neutral.format("FALSE") if "OR" in neutral else ""
            assert truth(f"{pad_and}{NAMES[left]} AND {NAMES[right]}", t=True, f=False) is conjunction
            assert truth(f"{pad_or}{NAMES[left]} OR {NAMES[right]}", t=True, f=False) is disjunction

    @pytest.mark.parametrize(("operand", "expected"), [(True, False), (False, True), (None, None)])
    def test_not(self, truth, operand, expected):
        assert truth(f"NOT {NAMES[operand]}", t=True, f=False) is expected

    @pytest.mark.parametrize(
        "condition",
        [
            "n = 1", "n <> 1", "n < 1", "n <= 1", "n > 1", "n >= 1", "1 = n", "1 < n", "n = n", "n <> 's'", "n = TRUE",
            "n + 1 > 0", "1 - n > 0", "-n < 0", "+n > 0", "n * 0 = 0", "n BETWEEN 1 AND 2", "1 BETWEEN n AND 2",
            "n NOT BETWEEN 1 AND 2", "n IN ('a')", "n NOT IN ('a')", "n LIKE '%'", "n NOT LIKE '%'", "n", "n = (1 = 2)",
            "n > n",
        ],
    )  # fmt: skip
    def test_null_makes_every_comparison_unknown(self, truth, condition):
        assert truth(condition) is None
        assert truth(condition, n=None) is None

    def test_a_half_known_between_may_still_be_false(self, truth):
        assert truth("5 BETWEEN 10 AND n") is False
        assert truth("5 NOT BETWEEN 10 AND n") is True


class TestPrecedence:
    @pytest.mark.parametrize(
        ("condition", "expected"),
        [
            ("TRUE OR FALSE AND FALSE", True),
            ("(TRUE OR FALSE) AND FALSE", False),
            ("NOT FALSE AND FALSE", False),
            ("NOT (FALSE AND FALSE)", True),
            ("NOT TRUE OR TRUE", True),
            ("NOT n = 5", False),
            ("NOT n = 6", True),
            ("NOT NOT n = 5", True),
            ("NOT n IS NULL", True),
            ("NOT n BETWEEN 6 AND 7", True),
            ("NOT s LIKE 'b%'", True),
            ("NOT s IN ('b')", True),
            ("n BETWEEN 1 AND 9 AND s = 'abc'", True),
            ("1 + 2 * 3 = 7", True),
            ("(1 + 2) * 3 = 9", True),
            ("10 - 4 - 3 = 3", True),
            ("16 / 4 / 2 = 2", True),
            ("2 * -3 = -6", True),
            ("1 - -1 = 2", True),
            ("1--1 = 2", True),
            ("1---1 = 0", True),
            ("1--1\n = 1", True),
            (f"1 --{'-' * 3000}\r = 1", True),
            ("- - 1 = 1", True),
            ("n > 4 = TRUE", True),
            ("(n = 5) = (s = 'abc')", True),
            ("(n = 5) <> (s = 'abc')", False),
            ("n = 5 = TRUE", True),
            ("n = 5 IS NULL", False),
        ],
    )
    def test_precedence(self, truth, condition, expected):
        assert truth(condition, n=5, s="abc") is expected


class TestComparison:
    @pytest.mark.parametrize(
        ("value", "symbols"),
        [
            (4, {"<", "<=", "<>"}),
            (5, {"=", "<=", ">="}),
            (6, {">", ">=", "<>"}),
            (4.5, {"<", "<=", "<>"}),
            (5.0, {"=", "<=", ">="}),
            (5.5, {">", ">=", "<>"}),
            (float("inf"), {">", ">=", "<>"}),
            (float("-inf"), {"<", "<=", "<>"}),
            (float("nan"), {"<>"}),
            ("5", set()),
            (True, set()),
            (b"5", set()),
        ],
    )
    @pytest.mark.parametrize("symbol", ["=", "<>", "<", "<=", ">", ">="])
    @pytest.mark.parametrize("constant", ["5", "5.0", "five"])
    def test_with_a_number(self, truth, value, symbols, symbol, constant):
        """The same if the other side is a constant or a property, exact or approximate, left or right."""
        assert truth(f"x {symbol} {constant}", x=value, five=5) is (symbol in symbols)
        mirrored = symbol.translate(str.maketrans("<>", "><")) if symbol != "<>" else symbol
        assert truth(f"{constant} {mirrored} x", x=value, five=5) is (symbol in symbols)

    @pytest.mark.parametrize(
        ("condition", "expected"),
        [
            ("s = 'abc'", True), ("s = 'ABC'", False), ("s <> 'abd'", True), ("s <> 'abc'", False), ("s = s", True),
            ("s <> s", False), ("s = 5", False), ("s <> 5", False), ("s <> b", False), ("s < s", False),
            ("s <= s", False), ("s >= 5", False),
            ("b = TRUE", True), ("b <> TRUE", False), ("b = FALSE", False), ("b <> FALSE", True), ("b = b", True),
            ("b = 1", False), ("b <> 0", False), ("b >= b", False), ("n = TRUE", False), ("one = TRUE", False),
            ("raw = raw", False), ("raw = 'abc'", False), ("raw <> 'abc'", False), ("raw IS NOT NULL", True),
            ("TRUE = TRUE", True), ("5 = 'a'", False), ("5 <> 'a'", False), ("'a' = 'a'", True), ("'it''s' = q", True),
            ("s IN ('abd', 'abc')", True), ("n IN ('5')", False), ("n NOT IN ('5')", True),
            ("n LIKE '5'", False), ("n NOT LIKE '5'", True), ("b LIKE '%'", False),
        ],
    )  # fmt: skip
    def test_types_do_not_mix(self, truth, condition, expected):
        assert truth(condition, s="abc", b=True, n=5, one=1, raw=b"abc", q="it's") is expected

    def test_a_value_alone_is_true_only_when_it_is_the_boolean(self, truth):
        assert truth("x", x=True) is True
        assert truth("x", x=False) is False
        assert truth("x", x=1) is False
        assert truth("x", x="true") is False
        assert truth("TRUE") is True
        assert truth("FALSE") is False

    def test_exact_and_approximate_meet_as_approximate(self, truth):
        """Java promotes the long, so that 2^53 + 1 equals the double 2^53; two longs stay apart."""
        properties = {"exact": 2**53 + 1, "approximate": 2.0**53}
        assert truth("exact = approximate", **properties) is True
        assert truth("approximate = exact", **properties) is True
        assert truth("exact = 9007199254740992.0", **properties) is True
        assert truth("approximate = 9007199254740993", **properties) is True
        assert truth("exact = 9007199254740992", **properties) is False


class TestArithmetic:
    @pytest.mark.parametrize(
        ("condition", "expected"),
        [
            ("n + 1 = 6", True), ("n - 7 = -2", True), ("n * 3 = 15", True), ("n / 2 = 2.5", True),
            ("7 / 2 = 3.5", True),
            ("n % 3 = 2", True), ("-7 % 3 = -1", True), ("7 % -3 = 1", True), ("-7.5 % 2 = -1.5", True),
            ("n + 0.5 = 5.5", True), ("d * 2 = 5", True), ("d + d = n", True), ("+n = 5", True), ("-n = -5", True),
            ("-d = -2.5", True), ("-(n + 1) = -6", True), ("big + 1 < 0", True), ("-low = low", True),
            ("low - 1 > 0", True), ("big * 2 = -2", True), ("big + 1.0 > 9E18", True), ("inf % 2 = 0", False),
            ("n % inf = 5", True), ("inf - inf = 0", False), ("9e307 * n > 1e308", True),
        ],
    )  # fmt: skip
    def test_numbers(self, truth, condition, expected):
        properties = {"n": 5, "d": 2.5, "big": 2**63 - 1, "low": -(2**63), "inf": float("inf")}
        assert truth(condition, **properties) is expected

    @pytest.mark.parametrize(
        "condition",
        [
            "n / 0 > 5", "n / 0 = n / 0", "n / 0.0 > 5", "n % 0 = 0", "n % 0.0 = 0", "0 / 0 = 0", "d / zero > 1",
            "s + 1 = 1", "1 + s = 1", "b * 2 = 2", "-s = 1", "+b = 1", "s - s = 0", "raw + 1 = 1",
        ],
    )  # fmt: skip
    def test_what_cannot_be_computed_is_unknown(self, truth, condition):
        assert truth(condition, n=5, d=2.5, s="5", b=True, zero=0, raw=b"1") is None

    @pytest.mark.parametrize(
        ("literal", "value"),
        [
            ("57", 57), ("007", 7), ("010", 8), ("0", 0), ("0x1F", 31), ("0Xff", 255), ("31L", 31), ("0x1fl", 31),
            ("9223372036854775807", 2**63 - 1), ("-9223372036854775808", -(2**63)), ("7.", 7.0), (".5", 0.5),
            ("7E3", 7000.0), ("-57.9E2", -5790.0), ("1.e2", 100.0), ("7e-1", 0.7), ("+6.2", 6.2), ("1.5d", 1.5),
            ("1.1f", 1.100000023841858), ("1e-999", 0.0),
        ],
    )  # fmt: skip
    def test_literals(self, truth, literal, value):
        assert truth(f"x = {literal}", x=value) is True
        assert truth(f"x <> {literal}", x=value) is False


class TestLike:
    @pytest.mark.parametrize(
        ("pattern", "matching", "others"),
        [
            ("", [""], ["a"]),
            ("%", ["", "a", "a\nb"], []),
            ("_", ["a", "\n", "€", "😀"], ["", "ab"]),
            ("%%", ["", "abc"], []),
            ("_%", ["a", "ab"], [""]),
            ("%_", ["a", "ab"], [""]),
            ("a%", ["a", "abc", "a\nb"], ["", "ba", "A"]),
            ("%a", ["a", "cba", "aa", "aba"], ["", "ab"]),
            ("a%a", ["aa", "aba", "aaa"], ["a", "ab"]),
            ("%a%", ["a", "bab"], ["", "b"]),
            ("%ab%ab", ["abab", "xabxab", "ababab"], ["ab", "aab", "abb"]),
            ("%a%b%", ["ab", "aba", "xaxbxa"], ["ba", "a"]),
            ("%a_c%e", ["abce", "xabcabce", "aacacce"], ["abe", "ace"]),
            ("a_%_b", ["axxb", "axyzb"], ["axb", "ab"]),
            (".*", [".*"], ["abc", ""]),
            ("[a-z]", ["[a-z]"], ["a"]),
            ("^a$", ["^a$"], ["a"]),
            ("a\\_", ["a\\x"], ["a_"]),
            ("(a|b)+?{2}", ["(a|b)+?{2}"], ["a"]),
        ],
    )
    def test_without_escape(self, truth, pattern, matching, others):
        for text in matching:
            assert truth(f"s LIKE '{pattern}'", s=text) is True, text
        for text in others:
            assert truth(f"s LIKE '{pattern}'", s=text) is False, text

    @pytest.mark.parametrize(
        ("pattern", "escape", "matching", "others"),
        [
            ("a\\_c", "\\", ["a_c"], ["abc", "a\\bc"]),
            ("a\\%", "\\", ["a%"], ["abc", "a"]),
            ("10x%%", "x", ["10%", "10% off"], ["10", "10x%"]),
            ("a\\\\", "\\", ["a\\"], ["a\\\\"]),
            ("axbc", "x", ["axbc"], ["abc"]),
            ("abx", "x", ["abx"], ["ab"]),
            ("%%_", "%", ["%x"], ["x", "abc"]),
            ("__%", "_", ["_", "_abc"], ["a", ""]),
            ("a''_", "''", ["a_"], ["ab"]),
        ],
    )
    def test_with_escape(self, truth, pattern, escape, matching, others):
        for text in matching:
            assert truth(f"s LIKE '{pattern}' ESCAPE '{escape}'", s=text) is True, text
        for text in others:
            assert truth(f"s LIKE '{pattern}' ESCAPE '{escape}'", s=text) is False, text

    @pytest.mark.timeout(5)
    def test_many_wildcards_take_no_time(self, truth):
        """Backtracking over thirty `%` would outlast the universe."""
        assert truth(f"s LIKE '{'%a' * 30}b'", s="a" * 5000) is False


class TestConversion:
    @pytest.mark.parametrize(
        ("condition", "expected"),
        [
            ("n = 7", True), ("n <> 7", False), ("n > 5", True), ("n > 5.5", True), ("5 < n", True), ("n < 5", False),
            ("n BETWEEN 5 AND 9", True), ("n = 7.0", True), ("d > 7.0", True), ("d = 7.5", True),
            ("padded = 7.0", True),
            ("n = exact", True), ("exact = n", True), ("exact = '7'", True), ("'7' = exact", True),
            ("approximate = '7.5'", True), ("n = '7'", True), ("yes = TRUE", True), ("yes = b", True),
            ("b = yes", True),
            ("s = FALSE", True), ("plus = 7", True), ("zeros = 7", True), ("low = -9223372036854775808", True),
            # An exact number reads only exact text, as in Java.
            ("d > 5", False), ("d <> 5", True), ("padded = 7", False), ("hexadecimal = 7", False), ("huge > 5", False),
            ("s = 5", False), ("s <> 5", True), ("s > 5", False), ("s > 5.0", False), ("s <> exact", True),
            ("empty = 0", False), ("long > 5", False),
            # Only comparisons convert, and only to numbers and booleans.
            ("n > n", False), ("yes > b", False), ("n IN ('7')", True), ("exact IN ('7')", False), ("raw = 7", False),
            ("raw = s", False),
        ],
    )  # fmt: skip
    def test_strings_compare_with_numbers(self, truth, condition, expected):
        properties = {
            "n": "7", "d": "7.5", "padded": " 7 ", "yes": "TRUE", "s": "abc", "plus": "+7", "zeros": "007", "empty": "",
            "hexadecimal": "0x7", "huge": "9223372036854775808", "low": str(-(2**63)), "long": "1" * 10_000,
            "exact": 7, "approximate": 7.5, "b": True, "raw": b"7",
        }  # fmt: skip
        assert truth("convert_string_expressions:" + condition, **properties) is expected

    def test_null_stays_unknown_and_arithmetic_does_not_convert(self, truth):
        assert truth("convert_string_expressions:missing > 5", n="7") is None
        assert truth("convert_string_expressions:n + 1 = 8", n="7") is None

    def test_without_the_prefix_nothing_converts(self, truth):
        assert truth("n = 7", n="7") is False

    @pytest.mark.parametrize(
        ("text", "is_approximate", "is_exact"),
        [
            ("5", True, True), ("5.", True, False), (".5e1", True, False), ("5.0f", True, False), ("0005", True, True),
            ("\t5D\n", True, False), ("+5", True, True), ("000", False, False), ("5 5", False, False),
            ("5.0.", False, False), (".", False, False), ("5e", False, False), ("5ff", False, False),
            ("0" * 999 + "5", True, True), ("0" * 1000 + "5", False, False),
        ],
    )  # fmt: skip
    def test_texts_read_as_java_reads_numbers(self, truth, text, is_approximate, is_exact):
        assert truth("convert_string_expressions:t = 5.0", t=text) is is_approximate
        assert truth("convert_string_expressions:t = 5", t=text) is is_exact

    @pytest.mark.timeout(5)
    @pytest.mark.parametrize("condition", ["t > 1.5", "t > 1", "t = TRUE"])
    @pytest.mark.parametrize(
        "text", ["1" * 1_000_000 + "x", "0" * 1_000_000 + "x", " " * 1_000_000 + "x", "1" * 999 + "x"]
    )
    def test_long_texts_that_are_no_numbers_take_no_time(self, truth, condition, text):
        """An ambiguous expression takes time in the square of the digits."""
        many = " OR ".join([condition] * 500)
        assert truth(f"convert_string_expressions:{many}", t=text) is False


class TestLongTexts:
    def test_equal_properties_match(self, truth):
        text = "a" * 1_000_000
        assert truth("s = t", s=text + "b", t=text + "b") is True
        assert truth("s <> t", s=text + "b", t=text + "c") is True

    @pytest.mark.parametrize("prefix", ["", "convert_string_expressions:"])
    def test_many_comparisons_of_them_are_unknown(self, truth, prefix):
        text = "a" * 1_000_000
        many = " AND ".join(["s = t"] * 500)
        assert truth(prefix + many, s=text, t=text) is None
        assert truth(prefix + many, s=text[:1000], t=text[:1000]) is True


class TestHeaderFields:
    @pytest.mark.parametrize(
        ("condition", "headers"),
        [
            ("JMSDeliveryMode = 'PERSISTENT'", {"persistent": True}),
            ("JMSDeliveryMode = 'NON_PERSISTENT'", {"persistent": False}),
            ("JMSPriority > 5", {"priority": 6}),
            ("JMSMessageID = 'ID:x:1:1:1'", {"message_id": OpenWireMessageId("ID:x:1:1:1", None, 0)}),
            ("JMSTimestamp >= 1700000000000", {"timestamp": 1_700_000_000_000}),
            ("JMSCorrelationID = 'c'", {"correlation_id": "c"}),
            ("JMSCorrelationID IS NULL", {"correlation_id": None}),
            ("JMSType LIKE 'c%'", {"jms_type": "car"}),
            ("JMSDestination = 'queue://A.B'", {"destination": queue("A.B")}),
            ("JMSDestination LIKE 'topic://%'", {"destination": topic("A.B")}),
            ("JMSReplyTo = 'temp-queue://ID:x'", {"reply_to": Destination(DestinationType.TEMP_QUEUE, "ID:x")}),
            ("JMSReplyTo IS NULL", {"reply_to": None}),
            ("JMSExpiration = 0", {"expiration": 0}),
            ("JMSRedelivered AND JMSXDeliveryCount = 3", {"redelivery_counter": 2}),
            ("NOT JMSRedelivered AND JMSXDeliveryCount = 1", {"redelivery_counter": 0}),
            ("JMSXGroupID = 'g' AND JMSXGroupSeq = 2", {"group_id": "g", "group_sequence": 2}),
            ("JMSXUserID = 'mo'", {"user_id": "mo"}),
            (
                "JMSDestination = 'queue://A'",
                {"destination": queue("ActiveMQ.DLQ"), "original_destination": queue("A")},
            ),
            ("JMSXProducerTXID = 'TX:ID:c:7'", {"transaction_id": LocalTransactionId("ID:c", 7)}),
            ("JMSXGroupFirstForConsumer = TRUE", {"group_first_for_consumer": True}),
            (
                "JMSActiveMQBrokerInTime = 1 AND JMSActiveMQBrokerOutTime = 2",
                {"broker_in_time": 1, "broker_out_time": 2},
            ),
        ],
    )
    def test_header_fields_by_their_jms_names(self, message, condition, headers):
        assert compile_selector(condition).matches(message(**headers))
        assert not compile_selector(f"NOT ({condition})").matches(message(**headers))

    def test_a_property_does_not_hide_a_header_field(self, message):
        assert not compile_selector("JMSPriority = 9").matches(message({"JMSPriority": 9}, priority=4))

    def test_names_are_case_sensitive_and_keywords_are_not(self, truth):
        assert truth("Color = 'red'", color="red") is None
        assert truth("color Like 'r%' aNd Not color iS nUlL oR fAlSe", color="red") is True

    def test_names_are_javas(self, truth):
        assert truth("$a_1 = 1 AND _b = 2 AND größe = 3 AND नाम = 4 AND android = 5", **{
            "$a_1": 1, "_b": 2, "größe": 3, "नाम": 4, "android": 5,
        }) is True  # fmt: skip


def test_a_selector_is_compiled_once():
    assert compile_selector("cached = 1") is compile_selector("cached = 1")
    assert repr(compile_selector("cached = 1")) == "Selector('cached = 1')"


@pytest.mark.parametrize(
    ("value", "condition"),
    [
        (Byte(7), "x = 7 AND x + 1 = 8"),
        (Short(7), "x < 8 AND -x = -7"),
        (Long(7), "x BETWEEN 7 AND 7.5"),
        (Long(2**40), "x = 1099511627776"),
        (Float(1.5), "x = 1.5 AND x * 2 = 3"),
        (Char("c"), "x = 'c' AND x LIKE '_' AND x IN ('c')"),
    ],
)
def test_javas_kinds_of_numbers_are_numbers(truth, value, condition):
    assert truth(condition, x=value) is True


@pytest.mark.parametrize("value", [b"7", [7], {"seven": 7}])
def test_other_types_are_only_not_null(truth, value):
    assert truth("x IS NOT NULL", x=value) is True
    for condition in ("x", "x = 7", "x <> 7", "x = x", "x > 6", "x LIKE '%'", "x IN ('7')", "x = TRUE", "x <> 's'"):
        assert truth(condition, x=value) is False


def test_brokers_delivery_count_overrides_the_messages(message):
    seen = message(redelivery_counter=0)
    again = compile_selector("JMSRedelivered AND JMSXDeliveryCount = 3")
    assert again.matches(seen, 2)
    assert not again.matches(seen)


def test_a_message_that_does_not_decode_matches_nothing(message):
    torn = message({"a": 1})
    torn = Message(message_id="torn", destination=torn.destination, data=torn.data[:20], persistent=True)
    for condition in ("a = 1", "a IS NULL", "TRUE"):
        assert not compile_selector(condition).matches(torn)


def test_properties_that_do_not_decode_match_nothing(message):
    torn = message(marshalled_properties=b"\x00\x00\x00\x05\xff")
    assert not compile_selector("a IS NULL").matches(torn)
