"""The `xid` column, as ActiveMQ 5.17.2 on PostgreSQL 15 wrote it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.domain.errors import ResourceLimit
from pybroker.broker.domain.transaction import XATransactionId
from pybroker.store.jdbc.xid import SENT_PREFIX, TEXT_LENGTH_MAX, MalformedXid, Mark, MarkKind, decode, encode, key_of

FIRST = XATransactionId(4660, b"first", b"first")
SECOND = XATransactionId(4660, b"second", b"second")
CAPTURED = [
    ("KwAAAAAAAAAAAAAAEjQABWZpcnN0Zmlyc3Q=", Mark(FIRST, MarkKind.SENT)),
    ("LQAAAAAAAAAAAAAAEjQABWZpcnN0Zmlyc3Q=", Mark(FIRST, MarkKind.CONSUMED)),
    ("AAAAAAAAAAACAAAAEjQABnNlY29uZHNlY29uZA==", Mark(SECOND, MarkKind.ACKNOWLEDGED, 2, 0)),
]
IDS = st.binary(max_size=64)
TRANSACTIONS = st.builds(XATransactionId, st.integers(-(2**31), 2**31 - 1), IDS, IDS)
MARKS = st.builds(Mark, TRANSACTIONS, st.sampled_from(MarkKind), st.integers(-(2**63), 2**63 - 1), st.integers(0, 255))


@pytest.mark.parametrize(("text", "mark"), CAPTURED)
def test_as_activemq_wrote_it(text: str, mark: Mark) -> None:
    assert decode(text) == mark
    assert encode(mark) == text


@given(MARKS)
def test_what_was_encoded_decodes(mark: Mark) -> None:
    text = encode(mark)
    assert decode(text) == mark
    assert len(text) <= TEXT_LENGTH_MAX
    if mark.sequence == 0:
        assert text.startswith(SENT_PREFIX) is (mark.kind is MarkKind.SENT)


@given(st.one_of(st.text(max_size=60), st.binary(max_size=60).map(lambda data: data.hex())))
def test_other_texts_are_malformed_or_mean_something(text: str) -> None:
    try:
        mark = decode(text)
    except MalformedXid:
        return
    assert decode(encode(mark)) == mark


@pytest.mark.parametrize("size", [171, 172])
def test_ids_that_are_too_long_for_the_column(size: int) -> None:
    transaction = XATransactionId(1, b"g" * (size - 1), b"b")
    if size + 16 <= TEXT_LENGTH_MAX // 4 * 3:
        assert len(key_of(transaction)) <= TEXT_LENGTH_MAX
    with pytest.raises(ResourceLimit):
        key_of(transaction._replace(branch_qualifier=b"b" * 10))
