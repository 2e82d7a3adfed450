"""Properties of names, patterns and composites."""

from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.core.policy import DestinationPolicy, PolicyEntry, PolicyMap
from pybroker.broker.core.virtual import VirtualTopic
from pybroker.broker.domain.destination import (
    Destination,
    DestinationType,
    covers,
    matches,
    parts,
    patterns_overlap,
    queue,
)

LEVELS = st.sampled_from(["A", "B", "C"])
NAMES = st.lists(LEVELS, min_size=1, max_size=4).map(".".join)
PATTERNS = st.builds(
    lambda levels, end: ".".join(levels + end),
    st.lists(st.one_of(LEVELS, st.just("*")), min_size=1, max_size=3),
    st.sampled_from([[], [">"]]),
) | st.just(">")
DESTINATIONS = st.builds(Destination, st.sampled_from(DestinationType), NAMES)


@given(PATTERNS, PATTERNS, NAMES)
def test_what_a_narrow_pattern_covers_a_wide_one_covers_too(wide: str, narrow: str, name: str) -> None:
    if covers(wide, narrow) and matches(narrow, name):
        assert matches(wide, name)


@given(PATTERNS, PATTERNS)
def test_two_patterns_that_cover_each_other_are_the_same(one: str, other: str) -> None:
    assert (covers(one, other) and covers(other, one)) is (one == other)


@given(PATTERNS, PATTERNS, NAMES)
def test_patterns_that_cover_the_same_name_meet(one: str, other: str, name: str) -> None:
    if matches(one, name) and matches(other, name):
        assert patterns_overlap(one, other)


@given(PATTERNS, PATTERNS)
def test_patterns_that_meet_cover_the_same_name(one: str, other: str) -> None:
    if patterns_overlap(one, other):
        ours, theirs = (pattern.removesuffix(">").removesuffix(".").split(".") for pattern in (one, other))
        longer, shorter = (ours, theirs) if len(ours) >= len(theirs) else (theirs, ours)
        padded = [*shorter, *["*"] * (len(longer) - len(shorter))]
        name = ".".join(a if a not in ("*", "") else b for a, b in zip(longer, padded, strict=True)).replace("*", "X")
        name = name or "X"
        assert matches(one, name)
        assert matches(other, name)


@given(st.lists(PATTERNS, max_size=6), NAMES)
def test_the_chosen_policy_has_the_narrowest_entry(patterns: list[str], name: str) -> None:
    entries = [PolicyEntry(queue(pattern), DestinationPolicy(memory_limit=n)) for n, pattern in enumerate(patterns, 1)]
    limit = PolicyMap(entries).for_destination(queue(name)).memory_limit
    candidates = [pattern for pattern in patterns if matches(pattern, name)]
    if not candidates:
        assert limit == 0
    else:
        entry = patterns[limit - 1]
        assert entry in candidates
        assert not any(covers(entry, other) for other in candidates if other != entry)


@given(st.lists(DESTINATIONS, min_size=1, max_size=6), st.sampled_from(DestinationType))
def test_a_composite_of_qualified_names_lists_them(listed: list[Destination], kind: DestinationType) -> None:
    composite = Destination(kind, ",".join(map(str, [*listed, listed[0]])))
    assert list(parts(composite)) == list(dict.fromkeys(listed))


@given(
    st.sampled_from(["Consumer.*.", "VQ.", "*.*.", "Q-", ""]),
    st.sampled_from(["", ".q", "-q"]),
    NAMES,
    st.lists(st.one_of(LEVELS, st.just("*")), min_size=1, max_size=6).map(".".join) | PATTERNS,
)
def test_a_queue_is_fed_by_the_topics_in_its_name(prefix: str, postfix: str, topic_name: str, queue_name: str) -> None:
    """Finding the topic in the queue's name agrees with comparing the names of both."""
    found = VirtualTopic(name=">", prefix=prefix, postfix=postfix).topics_of(queue_name)
    is_fed = found is not None and matches(found, topic_name)
    assert not is_fed or patterns_overlap(queue_name, prefix + topic_name + postfix)
    assert is_fed or not matches(prefix + topic_name + postfix, queue_name)
