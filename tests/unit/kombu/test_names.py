"""Names as destinations: every name has one, no two have the same, and a broker reads none of it as something else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.domain.destination import checked, queue
from pybroker.kombu.names import decode_name, encode_level, encode_name

NAMES = st.text(st.sampled_from("ab.,?*>%# \u00e9\u2003\x00\n2E5"), min_size=0, max_size=12)


@pytest.mark.parametrize(
    ("name", "encoded"),
    [
        ("celery", "celery"),
        ("orders.new", "orders.new"),
        ("a,b?c", "a%2Cb%3Fc"),
        ("50%", "50%25"),
        ("*", "%2A"),
        ("a.>", "a.%3E"),
        (" a b ", "%20a b%20"),
        ("a..b.", "a.%.b.%"),
        ("", "%"),
        ("größe", "größe"),
    ],
)
def test_a_name_keeps_its_levels(name, encoded):
    assert encode_name(name) == encoded


def test_a_name_as_one_level_has_no_dots():
    assert encode_level("gen1@host.celery.pidbox") == "gen1@host%2Ecelery%2Epidbox"


@given(NAMES)
def test_an_encoded_name_is_a_plain_destination(name):
    for encoded in (encode_name(name), encode_level(name)):
        destination = queue(encoded)
        assert checked(destination.type, encoded) == destination
        assert not destination.is_composite
        assert not destination.is_pattern
    assert "." not in encode_level(name)


@given(NAMES)
def test_an_encoded_name_decodes_to_the_name(name):
    assert decode_name(encode_name(name)) == name
    assert decode_name(encode_level(name)) == name
