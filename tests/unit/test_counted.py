import pytest

from pybroker.counted import counted


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (1, "message", "1 message"),
        (0, "message", "0 messages"),
        (1200, "batch", "1,200 batches"),
        (1, "batch", "1 batch"),
    ],
)
def test_a_noun_agrees_with_its_number(number: int, noun: str, text: str) -> None:
    assert counted(number, noun) == text
