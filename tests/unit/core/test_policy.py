"""Policies: which entry is chosen, and what its values are."""

import itertools
from dataclasses import replace

import pytest

from pybroker.broker.core.policy import DestinationPolicy, PolicyEntry, PolicyMap
from pybroker.broker.domain.destination import Destination, DestinationType, queue, topic

DEFAULT = DestinationPolicy(memory_limit=1)


def policy_map(*patterns: str) -> tuple[PolicyMap, dict[int, str]]:
    """A map with an entry per pattern, each with its number."""
    numbers = dict(enumerate(patterns, 2))
    entries = [PolicyEntry(queue(pattern), DestinationPolicy(memory_limit=n)) for n, pattern in numbers.items()]
    return PolicyMap(entries, DEFAULT), numbers | {1: "default"}


def chosen(name: str, *patterns: str) -> str:
    """The entry that is chosen, whatever the order in which they stand."""
    found = set()
    for order in itertools.permutations(patterns):
        policies, names = policy_map(*order)
        found.add(names[policies.for_destination(queue(name)).memory_limit])
    assert len(found) == 1, found
    return found.pop()


@pytest.mark.parametrize(
    ("name", "patterns", "entry"),
    [
        ("A.B.C", ("A.B.C", "A.B.*", "A.B.C.>", ">"), "A.B.C"),
        ("A.B.C", ("A.B.C.>", "A.B.>"), "A.B.C.>"),
        ("A.B.C", ("A.B.>", "A.*.>"), "A.B.>"),
        ("A.B.C", ("A.B.*", "A.B.>", "A.*.>", "A.>", ">"), "A.B.*"),
        ("A.B.C", ("A.B.>", "A.*.>", "A.>", ">"), "A.B.>"),
        ("A.B.C", ("A.*.>", "A.>", ">"), "A.*.>"),
        ("A.B", ("A.*", "A.*.>", "A.>"), "A.*"),
        ("A.B", ("A.>", ">"), "A.>"),
        ("A.B", ("*.>", ">"), "*.>"),
        ("A.B", ("A.>", "A.>.>", ">"), "A.>"),
        ("A.B.C", ("A.*.C", "A.B.*"), "A.*.C"),
        ("A.B.C", ("*.B.C", "A.*.C", "A.B.*"), "*.B.C"),
        ("A.B.C", ("*.B.C", "A.>", "A.B.>"), "*.B.C"),
        ("A.B.C", ("A.B.>", "*.*.C", ">"), "*.*.C"),
        ("A.B", ("A", "A.B.C", "B.>", "a.b", "A.B.*"), "default"),
        ("A", ("A.*",), "default"),
        ("A", ("A.>",), "A.>"),
        ("A.>", ("A.B", "A.*", ">"), "A.*"),
        ("A.>", ("A.>", "A.*"), "A.>"),
        ("anything", (), "default"),
    ],
)
def test_the_most_specific_entry_is_chosen(name: str, patterns: tuple[str, ...], entry: str) -> None:
    assert chosen(name, *patterns) == entry


def test_of_two_entries_for_the_same_the_last_counts() -> None:
    entries = [PolicyEntry(queue("A.>"), DestinationPolicy(memory_limit=n)) for n in (5, 6)]
    assert PolicyMap(entries).for_destination(queue("A.B")).memory_limit == 6


def test_entries_are_not_merged() -> None:
    wide = PolicyEntry(queue(">"), DestinationPolicy(memory_limit=5, prioritized_messages=True))
    narrow = PolicyEntry(queue("A"), DestinationPolicy(max_redeliveries=2))
    found = PolicyMap([wide, narrow], DEFAULT).for_destination(queue("A"))
    assert found == DestinationPolicy(max_redeliveries=2)


@pytest.mark.parametrize("kind", DestinationType)
def test_an_entry_is_for_destinations_of_its_type(kind: DestinationType) -> None:
    policies = PolicyMap([PolicyEntry(Destination(kind, ">"), DestinationPolicy(memory_limit=5))], DEFAULT)
    limits = {other: policies.for_destination(Destination(other, "ID:1")).memory_limit for other in DestinationType}
    assert limits == {other: 5 if other is kind else 1 for other in DestinationType}


def test_advisory_topics_are_topics() -> None:
    policies = PolicyMap([PolicyEntry(topic(">"), DestinationPolicy(memory_limit=5))])
    assert policies.for_destination(topic("ActiveMQ.Advisory.Connection")).memory_limit == 5


def test_without_entries_all_is_as_in_the_library() -> None:
    assert PolicyMap().for_destination(queue("A")) == DestinationPolicy()


@pytest.mark.parametrize(
    ("multiplier", "prefetch", "limit"), [(None, 10, 1000), (0.5, 10, 5), (2.5, 3, 7), (0.0, 10, 0), (0.5, 1, 0)]
)
def test_the_pending_limit_may_follow_the_prefetch(multiplier: float | None, prefetch: int, limit: int) -> None:
    policy = replace(DestinationPolicy(), pending_message_limit_multiplier=multiplier)
    assert policy.pending_limit(prefetch) == limit
