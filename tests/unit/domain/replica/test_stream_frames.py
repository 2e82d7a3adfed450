"""Frames of the replication stream: round trips, limits, and bytes that are none."""

import json
import struct
import tracemalloc
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.domain.replica.frame_texts import TEXT_BYTES_MAX
from pybroker.broker.domain.replica.frames import (
    FRAME_BYTES_MAX,
    FROM_FOLLOWER,
    FROM_MASTER,
    PIECE_BYTES,
    BatchPiece,
    Compare,
    Compared,
    Confirm,
    FrameBody,
    FrameType,
    HandOver,
    Hello,
    Leave,
    MasterPlan,
    Measure,
    Measured,
    Ping,
    ReadRecord,
    RecordPiece,
    RefusedFrame,
    RepairRequest,
    ReplacePiece,
    StatusReport,
    StatusRequest,
    StreamDecoder,
    StreamFrame,
    StreamLive,
    Verified,
    VerifyRequest,
    encode_frame,
    encode_operation,
    sealed,
)
from pybroker.broker.domain.replica.manifest import (
    MANIFEST_FILES_MAX,
    MalformedFrame,
    ManifestFile,
    decode_manifest,
    encode_manifest,
)
from pybroker.broker.domain.replica.operations import (
    MARKER,
    BeginFile,
    CutFile,
    Journal,
    RemoveFiles,
    ReplaceFile,
    WriteBatch,
)
from pybroker.broker.domain.replica.plan import PlanAction, PlanEntry
from pybroker.broker.domain.replica.ports import FollowerWishes, RegisterSnapshot, ReplicaMember
from pybroker.broker.domain.replica.reports import ClusterReport, ComparisonResult, FileDifference, MemberProgress
from pybroker.broker.domain.replica.seals import CrcSeal, FrameSeal, HmacSeal
from pybroker.store.journal.format import EOF_MARKER

MEMBER = ReplicaMember(cluster="c", store="s", run="l", name="Zoë")
MANIFEST = [ManifestFile(Journal.MESSAGES, 3, 100, 7), ManifestFile(Journal.SCHEDULER, 1, 0, 0)]
PLAN = [
    PlanEntry(Journal.MESSAGES, 3, PlanAction.FETCH, 100, 2**31),
    PlanEntry(Journal.SCHEDULER, 1, PlanAction.KEEP, 0, 0),
]

BODIES_OF_MASTER: Sequence[FrameBody] = [
    MasterPlan(1, 43, MEMBER, RegisterSnapshot(9, '{"name": "ö"}'.encode()), PLAN),
    BatchPiece(Journal.MESSAGES, 3, 100, 0, b"batch", is_live=False),
    BatchPiece(Journal.SCHEDULER, 2**31, 2**32 - 1, 5, b"x" * PIECE_BYTES, is_live=True),
    StreamLive(),
    BeginFile(Journal.SCHEDULER, 9),
    CutFile(Journal.MESSAGES, 9, 2**31),
    ReplacePiece(Journal.MESSAGES, 4, 105, 2**32 - 1, 100, MARKER),
    RemoveFiles(Journal.MESSAGES, [1, 2, 9]),
    RemoveFiles(Journal.SCHEDULER, []),
    Ping(2**63, 17),
    HandOver("to you"),
    RefusedFrame(""),
    Measure([(Journal.MESSAGES, 3, 100), (Journal.SCHEDULER, 4, 0)]),
    StatusReport(
        ClusterReport(9, [MemberProgress("Zoë", "s", is_master=True), MemberProgress("b", "t", lag_seconds=0.5)])
    ),
    Compare(Journal.SCHEDULER, 2**31, 2**32 - 1, 4 << 20, 2**40),
    Verified(ComparisonResult(3, 2**40, [FileDifference(Journal.SCHEDULER, 7, is_masters=True)], "not whole")),
    Verified(ComparisonResult(differences=[])),
    ReadRecord(Journal.MESSAGES, 3, 2**31 - 1),
]
BODIES_OF_FOLLOWER: Sequence[FrameBody] = [
    Hello(1, 2, MEMBER, 9, MANIFEST),
    Hello(1, 1, MEMBER, 0, []),
    Confirm(9, 2**63, has_promised=True),
    Confirm(9, 0, has_promised=False, is_short_of_space=True),
    Confirm(9, 0, has_promised=False, wishes=FollowerWishes(may_stand=False)),
    Confirm(9, 0, has_promised=True, wishes=FollowerWishes(wants_to_serve=True)),
    Leave("enough"),
    RefusedFrame("no"),
    Measured([0, 2**32 - 1]),
    StatusRequest(),
    VerifyRequest(),
    Compared(None),
    Compared(2**32 - 1),
    RepairRequest([(Journal.MESSAGES, 3), (Journal.SCHEDULER, 2**32 - 1)]),
    RecordPiece(7, b"a piece of a record"),
    RecordPiece(0, b""),
]
SIDES = [(body, FROM_MASTER) for body in BODIES_OF_MASTER] + [(body, FROM_FOLLOWER) for body in BODIES_OF_FOLLOWER]


def seals(kind: str) -> tuple[FrameSeal, FrameSeal]:
    """Return the seals of both ends."""
    return (CrcSeal(), CrcSeal()) if kind == "crc" else (HmacSeal(b"key"), HmacSeal(b"key"))


@pytest.mark.parametrize("kind", ["crc", "hmac"])
@pytest.mark.parametrize(("body", "limits"), SIDES, ids=lambda value: type(value).__name__)
def test_every_frame_comes_back(body: FrameBody, limits: Mapping[int, int], kind: str) -> None:
    send, receive = seals(kind)
    frames = [StreamFrame(0, body), StreamFrame(2**64 - 1, body)]
    data = b"".join(encode_frame(send, frame) for frame in frames)
    decoder = StreamDecoder(limits, receive)
    got: list[StreamFrame] = []
    step = 1 if len(data) < 10_000 else 99_991
    for start in range(0, len(data), step):
        got += decoder.receive(data[start : start + step])
    assert got == frames


@pytest.mark.parametrize(("body", "limits"), SIDES, ids=lambda value: type(value).__name__)
def test_frame_of_the_other_side_is_refused(body: FrameBody, limits: Mapping[int, int]) -> None:
    if isinstance(body, RefusedFrame):
        return  # either side sends it
    data = encode_frame(CrcSeal(), StreamFrame(1, body))
    other = FROM_FOLLOWER if limits is FROM_MASTER else FROM_MASTER
    with pytest.raises(MalformedFrame, match="does not come from this side"):
        StreamDecoder(other, CrcSeal()).receive(data[:5])


@pytest.mark.parametrize(("body", "limits"), SIDES, ids=lambda value: type(value).__name__)
def test_truncated_payload_is_refused(body: FrameBody, limits: Mapping[int, int]) -> None:
    """A payload with a byte less or more, in a frame that is sound, is either another value or refused."""
    whole = encode_frame(CrcSeal(), StreamFrame(1, body))
    kind, payload = whole[4], whole[13:-4]
    for changed in (payload[:-1], payload + b"\0"):
        data = b"".join(sealed(CrcSeal(), kind, 1, (changed,)))
        try:
            frames = StreamDecoder(limits, CrcSeal()).receive(data)
        except MalformedFrame:
            continue
        assert frames != [StreamFrame(1, body)] or changed == payload


@pytest.mark.parametrize("kind", ["crc", "hmac"])
def test_every_flipped_bit_is_found(kind: str) -> None:
    whole = encode_frame(seals(kind)[0], StreamFrame(5, Confirm(5, 6, has_promised=True)))
    for at in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[at // 8] ^= 1 << at % 8
        decoder = StreamDecoder(FROM_FOLLOWER, seals(kind)[1])
        try:
            assert decoder.receive(bytes(flipped)) == []  # a longer frame, whose rest does not come
        except MalformedFrame:
            continue


@pytest.mark.parametrize("limits", [FROM_MASTER, FROM_FOLLOWER], ids=["master", "follower"])
def test_oversized_frame_is_refused_by_its_head(limits: Mapping[int, int]) -> None:
    for kind, limit in limits.items():
        assert limit + 29 < FRAME_BYTES_MAX
        head = struct.pack(">IB", 1 + 8 + limit + 4 + 1, kind)
        with pytest.raises(MalformedFrame, match=f"type {kind} with"):
            StreamDecoder(limits, CrcSeal()).receive(head)
        shortest = struct.pack(">IB", 1 + 8 + 4 - 1, kind)
        with pytest.raises(MalformedFrame, match=f"type {kind} with 12"):
            StreamDecoder(limits, CrcSeal()).receive(shortest)


def test_manifest_of_too_many_files_is_refused_unread() -> None:
    most = [ManifestFile(Journal.MESSAGES, number + 1, 5, 5) for number in range(MANIFEST_FILES_MAX)]
    data = encode_manifest(most)
    assert decode_manifest(data) == most
    assert len(data) == FROM_FOLLOWER[FrameType.HELLO] - 4 - TEXT_BYTES_MAX
    more = struct.pack(">I", MANIFEST_FILES_MAX + 1) + data[4:] + data[4:17]
    tracemalloc.start()
    try:
        with pytest.raises(MalformedFrame, match="100001 data files: at most 100000"):
            decode_manifest(more)
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()


def test_hello_of_too_many_files_is_refused_by_its_head() -> None:
    files = [ManifestFile(Journal.MESSAGES, number + 1, 5, 5) for number in range(MANIFEST_FILES_MAX + 2000)]
    data = encode_frame(CrcSeal(), StreamFrame(0, Hello(1, 1, MEMBER, 0, files)))
    with pytest.raises(MalformedFrame, match="type 1 with"):
        StreamDecoder(FROM_FOLLOWER, CrcSeal()).receive(data[:5])


@pytest.mark.parametrize(
    "files",
    [
        [ManifestFile(Journal.MESSAGES, 2, 0, 0), ManifestFile(Journal.MESSAGES, 1, 0, 0)],
        [ManifestFile(Journal.MESSAGES, 2, 0, 0), ManifestFile(Journal.MESSAGES, 2, 0, 0)],
        [ManifestFile(Journal.SCHEDULER, 1, 0, 0), ManifestFile(Journal.MESSAGES, 2, 0, 0)],
    ],
)
def test_manifest_out_of_order_is_refused(files: Sequence[ManifestFile]) -> None:
    with pytest.raises(MalformedFrame, match="out of order"):
        decode_manifest(encode_manifest(files))


@pytest.mark.parametrize("text", [b"", b"[]", b"nul", b'{"version_min": "1"}', b"[" * 10_000, b'{"a":"\\ud800"}'])
def test_text_that_is_no_member_is_refused(text: bytes) -> None:
    payload = struct.pack(">I", len(text)) + text + encode_manifest([])
    data = b"".join(sealed(CrcSeal(), FrameType.HELLO, 0, (payload,)))
    with pytest.raises(MalformedFrame):
        StreamDecoder(FROM_FOLLOWER, CrcSeal()).receive(data)


def test_unknown_fields_of_a_newer_member_are_ignored() -> None:
    """A rolling upgrade has members of two versions, of which the newer one may say more of itself."""
    plan = MasterPlan(1, 43, MEMBER, RegisterSnapshot(9, b"{}"), PLAN)
    for frame, kind, limits in (
        (Hello(1, 2, MEMBER, 9, MANIFEST), FrameType.HELLO, FROM_FOLLOWER),
        (plan, FrameType.PLAN, FROM_MASTER),
    ):
        payload = encode_frame(CrcSeal(), StreamFrame(0, frame))[13:-4]
        (length,) = struct.unpack_from(">I", payload)
        longer = json.dumps({"zone": {"name": "b"}, **json.loads(payload[4 : 4 + length])}).encode()
        changed = struct.pack(">I", len(longer)) + longer + payload[4 + length :]
        data = b"".join(sealed(CrcSeal(), kind, 0, (changed,)))
        assert StreamDecoder(limits, CrcSeal()).receive(data) == [StreamFrame(0, frame)]


def test_frames_that_somebody_still_looks_at_do_not_stop_the_next_ones() -> None:
    """A profiler or a debugger keeps the memory views of a call for a moment."""

    class Keeping(CrcSeal):
        def next(self, pieces: Sequence[bytes | memoryview]) -> bytes:
            kept.extend(pieces)
            return super().next(pieces)

    kept: list[bytes | memoryview] = []
    frames = [StreamFrame(number, Confirm(number, 0, has_promised=False)) for number in range(1, 4)]
    data = b"".join(encode_frame(CrcSeal(), frame) for frame in frames)
    decoder = StreamDecoder(FROM_FOLLOWER, Keeping())
    found = [frame for at in range(0, len(data), 7) for frame in decoder.receive(data[at : at + 7])]
    assert found == frames
    assert kept


def test_frames_of_another_order_or_key_are_refused() -> None:
    send = HmacSeal(b"key")
    one, two = (encode_frame(send, StreamFrame(0, Ping(number, 0))) for number in range(2))
    for key, data in ((b"key", two), (b"key", one + one), (b"other", one)):
        with pytest.raises(MalformedFrame, match="damaged"):
            StreamDecoder(FROM_MASTER, HmacSeal(key)).receive(data)
    assert len(StreamDecoder(FROM_MASTER, HmacSeal(b"key")).receive(one + two)) == 2


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_give_frames_or_the_declared_error(data: bytes, from_master: bool) -> None:
    limits = FROM_MASTER if from_master else FROM_FOLLOWER
    try:
        StreamDecoder(limits, CrcSeal()).receive(data)
    except MalformedFrame:
        return
    assert len(data) < 4 + FRAME_BYTES_MAX


@given(
    st.sampled_from(sorted(FROM_MASTER.keys() | FROM_FOLLOWER.keys())),
    st.binary(max_size=200),
    st.integers(0, 2**64 - 1),
)
def test_any_payload_gives_a_frame_or_the_declared_error(kind: int, payload: bytes, sequence: int) -> None:
    """A peer that knows the secret may still send anything."""
    limits = FROM_MASTER if kind in FROM_MASTER else FROM_FOLLOWER
    data = b"".join(sealed(CrcSeal(), kind, sequence, (payload,)))
    try:
        (frame,) = StreamDecoder(limits, CrcSeal()).receive(data)
    except MalformedFrame:
        return
    again = StreamDecoder(limits, CrcSeal()).receive(encode_frame(CrcSeal(), frame))
    assert again == [frame]


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES, 2_500_000])
def test_long_batch_comes_in_pieces_that_are_all_of_it(size: int) -> None:
    content = [b"h" * 28, bytes(size // 2), b"x" * (size - size // 2)]
    operation = WriteBatch(Journal.MESSAGES, 4, 1000, content)
    decoder = StreamDecoder(FROM_MASTER, CrcSeal())
    frames = [
        frame for pieces in encode_operation(CrcSeal(), 9, operation) for frame in decoder.receive(b"".join(pieces))
    ]
    whole, at = b"".join(content), 1000
    for frame in frames:
        assert isinstance(frame.body, BatchPiece)
        assert (frame.sequence, frame.body.offset, frame.body.is_live) == (9, at, True)
        at += len(frame.body.content)
        assert frame.body.left == 1000 + len(whole) - at
    assert b"".join(bytes(frame.body.content) for frame in frames if isinstance(frame.body, BatchPiece)) == whole
    assert len(frames) == -(-len(whole) // PIECE_BYTES)


def test_replacement_has_length_and_checksum_in_each_piece() -> None:
    content = [b"a" * (PIECE_BYTES + 5), MARKER]
    decoder = StreamDecoder(FROM_MASTER, CrcSeal())
    operation = ReplaceFile(Journal.MESSAGES, 4, content)
    frames = [
        frame for pieces in encode_operation(CrcSeal(), 9, operation) for frame in decoder.receive(b"".join(pieces))
    ]
    bodies = [frame.body for frame in frames if isinstance(frame.body, ReplacePiece)]
    assert [body.offset for body in bodies] == [0, PIECE_BYTES]
    assert {(body.length, body.crc) for body in bodies} == {(PIECE_BYTES + 10, bodies[0].crc)}
    assert b"".join(bytes(body.content) for body in bodies) == b"".join(content)


def test_marker_is_that_of_the_journal() -> None:
    assert MARKER == EOF_MARKER


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b'{"members": 1}',
        b'{"members": [1]}',
        b'{"members": [{"name": 1}]}',
        b'{"members": [{"lag_bytes": -1}]}',
        b'{"members": [{"lag_seconds": 1' + b"0" * 400 + b"}]}",
    ],
)
def test_reports_that_are_none_are_refused(text: bytes) -> None:
    with pytest.raises(MalformedFrame):
        ClusterReport.decode(text)


@pytest.mark.parametrize(
    "found", [b"1", b"[1]", b"[[0, 1]]", b"[[7, 1, true]]", b"[[true, 1, true]]", b"[[0, 4294967296, true]]"]
)
def test_results_that_are_none_are_refused(found: bytes) -> None:
    with pytest.raises(MalformedFrame):
        ComparisonResult.decode(b'{"different": ' + found + b"}")


def test_a_result_names_a_limited_number_of_files() -> None:
    many = [FileDifference(Journal.MESSAGES, number, is_masters=False) for number in range(1, 2000)]
    data = encode_frame(CrcSeal(), StreamFrame(0, Verified(ComparisonResult(2000, 1, many))))
    (frame,) = StreamDecoder(FROM_MASTER, CrcSeal()).receive(data)
    assert frame.body == Verified(ComparisonResult(2000, 1, many[:500]))


def test_report_of_members_with_long_names_fits_a_frame() -> None:
    long = "\N{SNOWMAN}" * 5000
    report = ClusterReport(1, [MemberProgress(long, long)] * 40)
    data = encode_frame(CrcSeal(), StreamFrame(0, StatusReport(report)))
    (frame,) = StreamDecoder(FROM_MASTER, CrcSeal()).receive(data)
    assert frame.body == StatusReport(ClusterReport(1, [MemberProgress(long[:100], long[:100])] * 32))
