"""A master's questions for records of a follower's copy: answers in pieces, and peers that answer without an end."""

import asyncio

import pytest

from pybroker.broker.domain.replica.frames import FrameBody, ReadRecord, RecordPiece
from pybroker.broker.domain.replica.manifest import MalformedFrame
from pybroker.broker.domain.replica.operations import Journal
from pybroker.transports.replica.questions import RECORD_BYTES_MAX, RecordQuestions

QUESTION = ReadRecord(Journal.MESSAGES, 1, 10)


def test_pieces_make_the_record_of_the_oldest_question() -> None:
    async def scenario() -> None:
        sent: list[FrameBody] = []
        questions = RecordQuestions(sent.append)
        asking = [asyncio.ensure_future(questions.ask(QUESTION)) for _ in range(2)]
        await asyncio.sleep(0)
        for piece in (RecordPiece(3, b"ab"), RecordPiece(1, b"cd"), RecordPiece(0, b"e"), RecordPiece(0, b"")):
            assert questions.take(piece)
        assert await asyncio.gather(*asking) == [b"abcde", b""]
        assert not questions.take(RecordPiece(0, b"")), "none is awaited"
        assert sent == [QUESTION, QUESTION]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(RecordPiece(7, b""), id="nothing"),
        pytest.param(RecordPiece(7, b"x"), id="the same is left"),
        pytest.param(RecordPiece(9, b"x"), id="more is left"),
        pytest.param(RecordPiece(RECORD_BYTES_MAX + 1, b"x"), id="too much is left"),
    ],
)
def test_answer_without_an_end_is_refused(second: RecordPiece) -> None:
    async def scenario() -> None:
        questions = RecordQuestions(lambda _: None)
        asking = asyncio.ensure_future(questions.ask(QUESTION))
        await asyncio.sleep(0)
        assert questions.take(RecordPiece(7, b"x"))
        with pytest.raises(MalformedFrame):
            questions.take(second)
        questions.end()
        assert await asking == b""

    asyncio.run(scenario())
