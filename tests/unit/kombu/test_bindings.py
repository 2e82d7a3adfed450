"""Bindings: the broker's patterns and the check on receipt take together exactly what AMQP routes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.domain.destination import matches, queue, topic
from pybroker.kombu.bindings import Binding, ExchangeKind, matches_key, publish_destination, queue_destination

DIRECT, TOPIC, FANOUT = ExchangeKind


def binding(key: str, kind: ExchangeKind = TOPIC, exchange: str = "ev") -> Binding:
    return Binding(queue="q.1", exchange=exchange, kind=kind, key=key)


@pytest.mark.parametrize(
    ("kind", "key", "pattern"),
    [
        (DIRECT, "d1", "d1"),
        (DIRECT, "*.#", "%2A.#"),
        (DIRECT, "", "%"),
        (FANOUT, "ignored", ">"),
        (TOPIC, "#", ">"),
        (TOPIC, "task.*", "task.*"),
        (TOPIC, "task.#", "task.>"),
        (TOPIC, "a.#.b", "a.>"),
    ],
)
def test_a_binding_is_a_queue_of_a_virtual_topic(kind, key, pattern):
    bound = binding(key, kind)
    assert bound.topic == topic(f"VirtualTopic.kombu.ev.{pattern}")
    assert bound.destination == queue(f"Consumer.q%2E1.VirtualTopic.kombu.ev.{pattern}")


def test_an_exchange_is_one_level():
    """Otherwise `#` of an exchange `celery` took what is published to `celery.pidbox`."""
    wide = binding("#", exchange="celery").topic.name
    assert not matches(wide, publish_destination("celery.pidbox", FANOUT, "").name)


def test_a_queue_keeps_its_name():
    assert queue_destination("celery") == queue("celery")


@pytest.mark.parametrize(
    ("pattern", "key", "expected"),
    [
        ("#", "", True),
        ("#", "a.b", True),
        ("*", "a", True),
        ("*", "", False),
        ("a.*", "a", False),
        ("a.#", "a", True),
        ("#.a", "a", True),
        ("a.#.b", "a.b", True),
        ("a.#.b", "a.x.y.b", True),
        ("a.#.b", "a.x", False),
        ("#.#", "", True),
        ("", "", True),
        ("", "a", False),
        ("a#", "ab", False),
    ],
)
def test_a_pattern_matches_as_in_amqp(pattern, key, expected):
    assert matches_key(pattern, key) is expected


WORDS = st.lists(st.sampled_from("ab"), min_size=1, max_size=5).map(".".join)
PATTERNS = st.lists(st.sampled_from("ab*#"), min_size=1, max_size=5).map(".".join)


def by_recursion(wanted: list[str], words: list[str]) -> bool:
    """Return what `matches_key` does, in as few lines as possible."""
    if not wanted:
        return not words
    if wanted[0] == "#":
        return any(by_recursion(wanted[1:], words[start:]) for start in range(len(words) + 1))
    return bool(words) and wanted[0] in ("*", words[0]) and by_recursion(wanted[1:], words[1:])


@given(PATTERNS, WORDS)
def test_matches_key_agrees_with_the_definition(pattern, key):
    assert matches_key(pattern, key) == by_recursion(pattern.split("."), key.split("."))


@given(PATTERNS, WORDS)
def test_broker_and_receiver_take_what_amqp_routes(pattern, key):
    bound = binding(pattern)
    is_sent = matches(bound.topic.name, publish_destination("ev", TOPIC, key).name)
    assert (is_sent and bound.accepts(key)) == matches_key(pattern, key)


@given(st.text(max_size=8), st.text(max_size=8))
def test_a_direct_binding_takes_its_key_alone(bound_key, key):
    is_sent = matches(binding(bound_key, DIRECT).topic.name, publish_destination("ev", DIRECT, key).name)
    assert is_sent == (bound_key == key)


@given(st.text(max_size=8))
def test_a_fanout_binding_takes_every_key(key):
    """Also from a publisher that has not declared the exchange, and takes it for a direct one."""
    for kind in ExchangeKind:
        assert matches(binding("", FANOUT).topic.name, publish_destination("ev", kind, key).name)
