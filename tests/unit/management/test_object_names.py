"""Object names and their patterns."""

import time

import pytest

from pybroker.management.object_names import DOMAIN, MalformedObjectName, ObjectName, encoded

QUEUE = {"type": "Broker", "brokerName": "B", "destinationType": "Queue", "destinationName": "A.b"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [("A.b", "A.b"), ("ID:h,1'2\"", "ID_h_1_2_"), ("a?b=c*", "a&qe;b&amp;c&ast;"), ("ID_h", "ID_h")],
)
def test_values_are_replaced_as_activemq_does(value: str, expected: str) -> None:
    assert encoded(value) == expected
    assert encoded(expected) == expected


@pytest.mark.parametrize(
    ("pattern", "is_match"),
    [
        ("org.apache.activemq:type=Broker,brokerName=B,destinationType=Queue,destinationName=A.b", True),
        ("org.apache.activemq:destinationName=A.b,destinationType=Queue,type=Broker,brokerName=B", True),
        ("org.apache.activemq:type=Broker,brokerName=*,destinationType=Queue,destinationName=*", True),
        ("org.apache.activemq:type=Broker,*", True),
        ("org.apache.activemq:*", True),
        ("org.apache.activemq:*,destinationName=?.?", True),
        ("*:*", True),
        ("org.apache.*:type=Broker,*", True),
        ('org.apache.activemq:destinationName="A.b",*', True),
        ('org.apache.activemq:destinationName="A.*",*', False),
        ("org.apache.activemq:type=Broker,brokerName=B", False),
        ("org.apache.activemq:type=Broker,brokerName=B,destinationType=Queue", False),
        ("org.apache.activemq:destinationName=?,*", False),
        ("org.apache.activemq:endpoint=Consumer,*", False),
        ("java.lang:*", False),
    ],
)
def test_patterns_match_by_keys_in_any_order(pattern: str, is_match: bool) -> None:
    assert ObjectName.parse(pattern).matcher()(DOMAIN, QUEUE) is is_match


@pytest.mark.parametrize(
    ("text", "canonical", "is_pattern"),
    [
        ("d:type=Broker,brokerName=B", "d:brokerName=B,type=Broker", False),
        ("d:type=Broker,*", "d:type=Broker,*", True),
        ("d:a=x*", "d:a=x*", True),
        ('d:a="x*"', 'd:a="x*"', False),
        ("d:name=ID:h:1", "d:name=ID:h:1", False),
        (r'd:a="x\",y",b=1', r'd:a="x\",y",b=1', False),
    ],
)
def test_canonical_names_have_their_keys_in_order(text: str, canonical: str, is_pattern: bool) -> None:
    name = ObjectName.parse(text)
    assert (name.canonical, name.is_pattern) == (canonical, is_pattern)


@pytest.mark.parametrize("text", ["", "d", "d:", "d:a", "d:a=1,a=2", "d:=1", "d:a=1,,b=2", 'd:a="x', "d:" + "x" * 9000])
def test_other_texts_are_no_names(text: str) -> None:
    with pytest.raises(MalformedObjectName):
        ObjectName.parse(text)


def test_a_value_is_looked_up_by_what_activemq_makes_of_it() -> None:
    assert ObjectName.parse("d:a=ID:h:1").plain("a") == "ID_h_1"
    assert ObjectName.parse(r'd:a="x\*y"').plain("a") == "x&ast;y"


def test_a_pattern_of_many_stars_takes_no_long_time() -> None:
    pattern = ObjectName.parse("d:a=" + "*x" * 1000)
    matches, began_at = pattern.matcher(), time.process_time()
    assert not matches("d", {"a": "x" * 999 + "y"})
    assert matches("d", {"a": "x" * 1024})
    assert time.process_time() - began_at < 1.0
