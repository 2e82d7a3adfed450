"""Topic names and filters, and the JMS names that they stand for."""

import pytest

from pybroker.broker.domain.mqtt.topics import (
    InvalidTopic,
    SharedFilter,
    check_filter,
    check_name,
    jms_name,
    matches_every_first_level,
    mqtt_name,
    shared,
)


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("a/b", "a.b"),
        ("a.b", "a/b"),
        ("/a", ".a"),
        ("a/", "a."),
        ("a//b", "a..b"),
        ("a>b", "a#b"),
        ("a*b", "a+b"),
        ("t/+/x", "t.*.x"),
        ("a/#", "a.>"),
        ("$share/g/t", "$share.g.t"),
        ("topic://z", "topic:..z"),
    ],
)
def test_names_are_exchanged_both_ways(topic: str, name: str) -> None:
    assert jms_name(topic) == name
    assert mqtt_name(name) == topic


def test_blanks_around_a_name_are_dropped() -> None:
    assert jms_name(" x ") == "x"
    assert jms_name(" a/b c ") == "a.b c"


@pytest.mark.parametrize("topic", ["a", "/", "a/b", " x", "a>b", "$x", "é"])
def test_valid_names(topic: str) -> None:
    check_name(topic)


@pytest.mark.parametrize(
    ("topic", "text"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("a/+", "wildcard"),
        ("a#", "wildcard"),
        ("a,b", "composite"),
        ("a?b", "options"),
        ("x" * 1025, "1025 characters: 1024 are allowed"),
    ],
)
def test_invalid_names(topic: str, text: str) -> None:
    with pytest.raises(InvalidTopic, match=text):
        check_name(topic)


@pytest.mark.parametrize("text", ["#", "+", "/", "+/+", "a/#", "+/a/#", "a/+/b", "a>b/#"])
def test_valid_filters(text: str) -> None:
    check_filter(text)


@pytest.mark.parametrize("text", ["", "a#", "#/a", "a/#/b", "a+", "+a/b", "a/b+", "##", "a,b", "a?b"])
def test_invalid_filters(text: str) -> None:
    with pytest.raises(InvalidTopic):
        check_filter(text)


def test_shared_filters() -> None:
    assert shared("a/b") == SharedFilter(None, "a/b")
    assert shared("$share/g/a/#") == SharedFilter("g", "a/#")
    assert shared("$share/g//x") == SharedFilter("g", "/x")
    for text in ("$share/", "$share/g", "$share/g/", "$share//a", "$share/+/a", "$share/g#/a"):
        with pytest.raises(InvalidTopic, match="write \\$share/group/filter"):
            shared(text)


def test_wildcards_at_the_beginning_leave_out_reserved_names() -> None:
    assert [each for each in ("#", "+/a", "a/#", "$SYS/#") if matches_every_first_level(each)] == ["#", "+/a"]
