"""Numbers of fixed width, read without `struct`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.domain.big_endian import INT, int_at


@given(st.binary(max_size=3), st.integers(-(1 << 31), (1 << 31) - 1), st.binary(max_size=3))
def test_an_int_is_read_where_it_stands(before: bytes, number: int, after: bytes) -> None:
    assert int_at(before + INT.pack(number) + after, len(before)) == number


@pytest.mark.parametrize("length", range(4))
def test_an_int_that_the_data_ends_in_is_refused(length: int) -> None:
    with pytest.raises(IndexError):
        int_at(b"1234567"[: 3 + length], 3)
