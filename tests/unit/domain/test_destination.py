"""Destinations: names, kinds, and which names a wildcard covers."""

import pytest

from pybroker.broker.domain.destination import (
    PARTS_MAX,
    Destination,
    DestinationType,
    checked,
    covers,
    matches,
    parse,
    parts,
    parts_to_consume,
    patterns_overlap,
    queue,
    topic,
)
from pybroker.broker.domain.errors import InvalidDestination, RequestError

TEMP_QUEUE = Destination(DestinationType.TEMP_QUEUE, "ID:h:1:1")
TEMP_TOPIC = Destination(DestinationType.TEMP_TOPIC, "ID:h:1:2")


@pytest.mark.parametrize(
    ("text", "destination"),
    [
        ("queue://ORDERS", queue("ORDERS")),
        ("topic://PRICES.>", topic("PRICES.>")),
        ("temp-queue://ID:h:1:1", TEMP_QUEUE),
        ("temp-topic://ID:h:1:2", TEMP_TOPIC),
    ],
)
def test_qualified_form_reads_back(text: str, destination: Destination) -> None:
    assert parse(text) == destination
    assert str(destination) == text


def test_a_bare_name_is_a_queue() -> None:
    assert parse("ORDERS") == queue("ORDERS")


@pytest.mark.parametrize("text", ["queue:// A.B ", "queue://A.B?consumer.prefetchSize=1", "queue://A.B ?x=1?y"])
def test_names_lose_blanks_and_options(text: str) -> None:
    assert parse(text) == queue("A.B")


@pytest.mark.parametrize("text", ["", "  ", "queue://", "topic:// ", "queue://?x=1"])
def test_a_name_cannot_be_empty(text: str) -> None:
    with pytest.raises(InvalidDestination, match="empty"):
        parse(text)


def test_a_bare_name_may_be_something_else_by_default() -> None:
    assert parse("PRICES", DestinationType.TOPIC) == topic("PRICES")
    assert parse("queue://PRICES", DestinationType.TOPIC) == queue("PRICES")


def test_a_checked_name_is_no_qualified_form() -> None:
    assert checked(DestinationType.TOPIC, "queue://A") == topic("queue://A")


def test_a_bad_name_is_the_clients_error() -> None:
    assert issubclass(InvalidDestination, RequestError)


@pytest.mark.parametrize(
    ("destination", "is_queue", "is_temporary"),
    [(queue("A"), True, False), (topic("A"), False, False), (TEMP_QUEUE, True, True), (TEMP_TOPIC, False, True)],
)
def test_kinds(destination: Destination, is_queue: bool, is_temporary: bool) -> None:
    assert destination.is_queue is is_queue
    assert destination.is_topic is not is_queue
    assert destination.is_temporary is is_temporary


def test_queues_and_topics_of_one_name_differ() -> None:
    assert queue("A") != topic("A")
    assert len({queue("A"), topic("A"), queue("A")}) == 2


@pytest.mark.parametrize(
    ("name", "is_pattern"),
    [
        ("A.B", False),
        ("*", True),
        (">", True),
        ("A.*.B", True),
        ("A.>", True),
        ("A.>.B", False),
        ("A*", False),
        ("A.B>", False),
        ("A.>,B.>", False),
        ("*,B", False),
    ],
)
def test_patterns_are_distinguished_from_names(name: str, is_pattern: bool) -> None:
    assert topic(name).is_pattern is is_pattern


@pytest.mark.parametrize(
    ("pattern", "covered", "not_covered"),
    [
        ("A.B", ["A.B"], ["A", "A.B.C", "A.b", "", "A.B."]),
        ("*", ["A", ""], ["A.B"]),
        ("A.*", ["A.B", "A."], ["A", "A.B.C", "B.A"]),
        ("*.B", ["A.B", ".B"], ["B", "A.A.B"]),
        ("A.*.C", ["A.B.C", "A..C"], ["A.C", "A.B.B.C"]),
        (">", ["A", "A.B", ""], []),
        ("A.>", ["A", "A.B", "A.B.C", "A."], ["B", "AB", "B.A"]),
        ("A.*.>", ["A.B", "A.B.C.D"], ["A", "B.B"]),
        ("A.>.C", ["A.>.C"], ["A.B.C"]),
        ("A.>.>", ["A", "A.B", "A.B.C"], ["B"]),
        ("A.*.>.>", ["A.B", "A.B.C.D"], ["A", "B.B"]),
        (">.>.>", ["A", "A.B", ""], []),
        ("A*", ["A*"], ["AB"]),
        ("A.B>", ["A.B>"], ["A.BC"]),
    ],
)
def test_matches(pattern: str, covered: list[str], not_covered: list[str]) -> None:
    assert [name for name in covered if not matches(pattern, name)] == []
    assert [name for name in not_covered if matches(pattern, name)] == []


@pytest.mark.parametrize(
    ("composite", "listed"),
    [
        (queue("A"), [queue("A")]),
        (queue("A,B"), [queue("A"), queue("B")]),
        (topic("B,A"), [topic("B"), topic("A")]),
        (queue("A,topic://B"), [queue("A"), topic("B")]),
        (topic("A,queue://B"), [topic("A"), queue("B")]),
        (queue("queue://A,topic://A"), [queue("A"), topic("A")]),
        (queue(" A , B,A,,queue://A"), [queue("A"), queue("B")]),
        (queue("A,"), [queue("A")]),
        (topic("A.>,B.*"), [topic("A.>"), topic("B.*")]),
        (topic("A,temp-topic://ID:h:1:2"), [topic("A"), TEMP_TOPIC]),
        (Destination(DestinationType.TEMP_QUEUE, "ID:h:1:1,queue://B"), [TEMP_QUEUE, queue("B")]),
    ],
)
def test_a_composite_lists_its_parts(composite: Destination, listed: list[Destination]) -> None:
    assert list(parts(composite)) == listed
    assert composite.is_composite is ("," in composite.name)


@pytest.mark.parametrize("name", [",", " , ", "A,queue://", ",".join(map(str, range(PARTS_MAX + 1)))])
def test_bad_composites_are_refused(name: str) -> None:
    with pytest.raises(InvalidDestination):
        parts(queue(name))


def test_a_composite_may_have_as_many_parts_as_are_allowed() -> None:
    assert len(parts(queue(",".join(map(str, range(PARTS_MAX)))))) == PARTS_MAX


def test_a_consumer_takes_from_queues_or_from_topics() -> None:
    assert parts_to_consume(queue("A,temp-queue://ID:h:1:1")) == (queue("A"), TEMP_QUEUE)
    assert parts_to_consume(topic("A,B")) == (topic("A"), topic("B"))
    assert parts_to_consume(topic("queue://A,queue://B")) == (queue("A"), queue("B"))
    with pytest.raises(InvalidDestination, match="queues and topics"):
        parts_to_consume(queue("A,topic://B"))


@pytest.mark.parametrize(
    ("wide", "narrow", "does"),
    [
        (">", "A.*", True),
        (">", "*.>", True),
        ("*.>", ">", False),
        ("A.>", "A.B.>", True),
        ("A.>", "A", True),
        ("A.*.>", "A.*", True),
        ("A.*.>", "A.B.>", True),
        ("A.*", "A.>", False),
        ("A.*", "A.B", True),
        ("A.B", "A.*", False),
        ("A.*.C", "A.B.*", False),
        ("A.*.C", "A.B", False),
    ],
)
def test_one_pattern_covers_another(wide: str, narrow: str, does: bool) -> None:
    assert covers(wide, narrow) is does


@pytest.mark.parametrize(
    ("one", "other", "do"),
    [
        ("A.*.C", "A.B.*", True),
        ("A.*", "A.>", True),
        ("A", "A.>", True),
        ("A.>", "*.B.C", True),
        (">", "X", True),
        ("A.*", "A", False),
        ("A.>", "B.>", False),
        ("A.*.>", "A", False),
        ("A.B", "A.C", False),
    ],
)
def test_patterns_meet(one: str, other: str, do: bool) -> None:
    assert patterns_overlap(one, other) is patterns_overlap(other, one) is do
