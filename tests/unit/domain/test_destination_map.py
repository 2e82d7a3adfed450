"""Maps by the levels of names: they find exactly what `matches` covers, in the order of adding."""

from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.domain import destination as destinations
from pybroker.broker.domain.destination import Destination, DestinationType, matches, patterns_overlap, queue, topic
from pybroker.broker.domain.destination_map import NameMap, PatternMap

NAMES = st.lists(st.sampled_from(["a", "b", "", "*", ">"]), min_size=1, max_size=4).map(".".join)
DESTINATIONS = st.builds(Destination, st.sampled_from([DestinationType.QUEUE, DestinationType.TOPIC]), NAMES)


def covers(pattern: Destination, destination: Destination) -> bool:
    return pattern.type is destination.type and matches(pattern.name, destination.name)


@given(patterns=st.lists(DESTINATIONS), removed=st.sets(st.integers(0, 20)), name=DESTINATIONS)
def test_values_of_a_name_are_those_of_the_patterns_that_cover_it(patterns, removed, name):
    found: PatternMap[int] = PatternMap()
    for number, pattern in enumerate(patterns):
        found.add(pattern, number)
    for number in removed & set(range(len(patterns))):
        found.remove(patterns[number], number)
    expected = [number for number, pattern in enumerate(patterns) if number not in removed and covers(pattern, name)]
    assert found.covering(name) == expected
    assert found.covers(name) == bool(expected)


@given(patterns=st.lists(DESTINATIONS), wanted=DESTINATIONS)
def test_values_of_a_pattern_are_those_of_the_patterns_that_cover_it(patterns, wanted):
    found: PatternMap[int] = PatternMap()
    for number, pattern in enumerate(patterns):
        found.add(pattern, number)
    assert found.covering_pattern(wanted) == [
        number
        for number, pattern in enumerate(patterns)
        if pattern.type is wanted.type and destinations.covers(pattern.name, wanted.name)
    ]


@given(names=st.lists(DESTINATIONS, unique=True), removed=st.sets(st.integers(0, 20)), pattern=DESTINATIONS)
def test_values_of_a_pattern_are_those_of_the_names_it_covers(names, removed, pattern):
    found: NameMap[int] = NameMap()
    for number, name in enumerate(names):
        found.add(name, number)
    for number in removed & set(range(len(names))):
        found.remove(names[number])
    expected = [number for number, name in enumerate(names) if number not in removed and covers(pattern, name)]
    assert found.covered_by(pattern) == expected


@given(patterns=st.lists(DESTINATIONS, max_size=5), wanted=DESTINATIONS)
def test_patterns_overlap_as_each_with_each(patterns, wanted):
    found: PatternMap[Destination] = PatternMap()
    for pattern in patterns:
        found.add(pattern, pattern)
    expected = {each for each in patterns if each.type is wanted.type and patterns_overlap(each.name, wanted.name)}
    assert set(found.overlapping(wanted)) == expected


def test_value_of_several_patterns_is_found_once_at_its_first_place():
    found: PatternMap[str] = PatternMap()
    found.add(queue("A.>"), "first")
    found.add(queue("A.B"), "second")
    found.add(queue("*.B"), "first")
    assert found.covering(queue("A.B")) == ["first", "second"]
    found.remove(queue("A.>"), "first")
    assert found.covering(queue("A.B")) == ["second", "first"]


def test_removal_of_what_is_not_there_changes_nothing():
    patterns: PatternMap[str] = PatternMap()
    names: NameMap[str] = NameMap()
    patterns.add(topic("A.B.>"), "x")
    names.add(topic("A.B.C"), "x")
    for other in (topic("A"), topic("A.B"), topic("A.B.C.D"), topic("Z.>"), queue("A.B.C"), queue("A.B.>")):
        patterns.remove(other, "x")
        names.remove(other)
    patterns.remove(topic("A.B.>"), "y")
    assert patterns.covering(topic("A.B.C")) == names.covered_by(topic("A.>")) == ["x"]


def test_maps_forget_the_levels_of_what_is_removed():
    patterns: PatternMap[str] = PatternMap()
    names: NameMap[str] = NameMap()
    for number in range(100):
        patterns.add(queue(f"A.{number}.>"), "x")
        names.add(queue(f"A.{number}.B"), "x")
    for number in range(100):
        patterns.remove(queue(f"A.{number}.>"), "x")
        names.remove(queue(f"A.{number}.B"))
    assert not patterns._roots[DestinationType.QUEUE].children
    assert not names._roots[DestinationType.QUEUE].children
