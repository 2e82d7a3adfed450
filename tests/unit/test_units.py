"""Sizes and durations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.units import format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("65536", 65536),
        (7, 7),
        ("1b", 1),
        ("2k", 2048),
        ("512kb", 524288),
        ("64MB", 64 << 20),
        (" 2 gb ", 2 << 30),
    ],
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("0.5s", 0.5),
        ("30", 30),
        (1.5, 1.5),
        ("30 s", 30),
        ("5m", 300),
        ("5min", 300),
        ("1h", 3600),
        ("1d", 86400),
    ],
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "mb", "-1", "1.5mb", "1 tb", "0x10", "1e3", "٣", "9" * 40])
def test_what_is_no_size(text):
    with pytest.raises(ValueError, match="is not a size: write for example"):
        parse_size(text)


@pytest.mark.parametrize("text", ["", "s", "-1s", "1y", "nan", "inf", "1:30"])
def test_what_is_no_duration(text):
    with pytest.raises(ValueError, match="is not a duration: write for example"):
        parse_duration(text)


@given(st.integers(0, 1 << 50))
def test_a_formatted_size_means_the_same(size):
    assert parse_size(format_size(size)) == size


@given(st.integers(0, 10**7))
def test_a_formatted_duration_means_the_same(milliseconds):
    assert parse_duration(format_duration(milliseconds / 1000)) == pytest.approx(milliseconds / 1000, rel=1e-5)
