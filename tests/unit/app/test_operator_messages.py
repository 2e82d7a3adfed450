"""Messages as `pybroker messages` shows them: bodies of bytes that are texts."""

import base64

import pytest

from pybroker.broker.app.operator_messages import described_whole

TEXT = '{"city": "Köln"}'


@pytest.mark.parametrize(
    ("data", "is_cut", "shown"),
    [
        (TEXT.encode(), False, TEXT),
        (TEXT.encode() + b" \xc3", True, TEXT + " "),
        (TEXT.encode() + b" \xc3", False, None),
        (b"\xff\xfe", False, None),
        (b"\0abc", False, None),
        (b"", False, ""),
    ],
)
def test_bytes_are_shown_as_the_text_that_they_are(data: bytes, is_cut: bool, shown: str | None) -> None:
    body = base64.b64encode(data).decode()
    message = {"message_id": "ID:a:1", "holder": None, "body_type": "bytes", "body": body, "body_is_cut": is_cut}
    assert [*described_whole(message)][-1] == (body if shown is None else shown)


def test_a_text_that_looks_like_base64_stays() -> None:
    message = {"message_id": "ID:a:1", "holder": None, "body_type": "text", "body": "YWJj", "body_is_cut": False}
    assert [*described_whole(message)][-1] == "YWJj"
