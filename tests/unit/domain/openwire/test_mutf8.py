"""Modified UTF-8: the operations on slices give what Python's codecs give, in linear time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.domain.openwire import mutf8
from pybroker.broker.domain.openwire.body import decode_text_utf8, encode_text_utf8, text_pieces, utf8_pieces
from pybroker.broker.domain.openwire.loose import MalformedOpenWire, decode_mutf8, encode_mutf8

HARD = [
    *("a", "\0", "\xe9", "\u20ac", "\U00010000", "\U0001f600", "\U0010ffff"),
    *("\ud7ff", "\ud800", "\ud83d", "\udbff", "\udc00", "\ude00", "\udfff", "\ue000", "\uc800", "\ucfff", "\ud000"),
]
"""Characters at the borders of all ranges that the operations distinguish."""

texts = st.lists(st.sampled_from(HARD) | st.characters(), max_size=40).map("".join)


def units(text: str) -> str:
    """Return a text with each supplementary character as two surrogates."""
    data = text.encode("utf-16-be", "surrogatepass")
    return "".join(chr(int.from_bytes(data[at : at + 2])) for at in range(0, len(data), 2))


def joined(text: str) -> str:
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")


@given(texts)
def test_encode_mutf8_is_what_java_writes(text: str) -> None:
    assert encode_mutf8(text) == units(text).encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")


@given(texts, st.booleans(), st.integers(-1, 4))
def test_decode_mutf8_is_what_codecs_give(text: str, is_modified: bool, few: int) -> None:
    data = encode_mutf8(text) if is_modified else text.encode("utf-8", "surrogatepass")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mutf8, "_FEW", few)
        assert decode_mutf8(data) == joined(text)


@given(texts, st.integers(8, 40))
def test_slices_do_not_cut_characters_or_pairs(text: str, size: int) -> None:
    data = encode_mutf8(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mutf8, "SLICE_BYTES", size)
        patch.setattr(mutf8, "_SHORT_BYTES", 0)
        assert "".join(mutf8.decoded_slices(data)) == joined(text)
        assert b"".join(mutf8.encoded_slices(text.encode("utf-8", "surrogatepass"))) == data


@given(texts)
def test_text_for_stomp_shows_single_surrogates_as_question_marks(text: str) -> None:
    content = encode_mutf8(text)
    expected = joined(text).encode("utf-8", "replace")
    content = len(content).to_bytes(4) + content
    assert decode_text_utf8(content) == expected
    assert b"".join(utf8_pieces(b"\xe4<" + content + b"\xa4>", 2, 2 + len(content))) == expected


@given(texts)
def test_text_of_stomp_becomes_modified_utf8(text: str) -> None:
    clean = text.encode("utf-8", "replace")
    assert encode_text_utf8(clean)[4:] == encode_mutf8(clean.decode())
    assert b"".join(text_pieces(clean)) == encode_text_utf8(clean)


def test_text_that_is_the_same_in_modified_utf8_is_not_copied() -> None:
    text = "plain \xe9\u20ac".encode() * mutf8.SLICE_BYTES
    assert text_pieces(text)[1] is text


@given(st.binary(max_size=30), st.integers(-1, 2))
def test_other_bytes_are_refused_as_codecs_refuse_them(data: bytes, few: int) -> None:
    try:
        expected = joined(data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass"))
    except UnicodeDecodeError:
        expected = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mutf8, "_FEW", few)
        if expected is None:
            with pytest.raises(MalformedOpenWire):
                decode_mutf8(data)
        else:
            assert decode_mutf8(data) == expected


@pytest.mark.parametrize("repeated", ["\ud83d\ude00", "\ud800", "\ude00a", "\ud83d\ude00a\0"])
def test_no_codec_runs_over_a_text_of_many_surrogates(monkeypatch: pytest.MonkeyPatch, repeated: str) -> None:
    """The codecs call a function for each surrogate, which makes 48 MB of them take 8 to 19 s."""

    def decoded_by_codecs(data: bytes) -> str:
        raise AssertionError(f"{len(data)} bytes went through Python's codecs")

    monkeypatch.setattr(mutf8, "_decoded_by_codecs", decoded_by_codecs)
    data = repeated.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80") * 50_000

    assert decode_mutf8(data) == joined(repeated) * 50_000
