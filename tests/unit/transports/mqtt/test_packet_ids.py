"""A set of packet identifiers is the set that Python has, in a bounded memory."""

import random

from pybroker.transports.mqtt.packet_ids import BITS_BYTES, FEW_MAX, PacketIds


def test_set_is_that_of_python() -> None:
    chooser = random.Random(1)
    ids, model = PacketIds(), set[int]()
    for most in (10, FEW_MAX * 2, 65_535, 3):
        for _ in range(2_000):
            packet_id = chooser.randrange(1, most + 1)
            if chooser.random() < 0.6:
                ids.add(packet_id)
                model.add(packet_id)
            else:
                ids.discard(packet_id)
                model.discard(packet_id)
            assert len(ids) == len(model)
            assert (packet_id in ids) is (packet_id in model)
        assert [each for each in range(1, 65_536) if each in ids] == sorted(model)
    for packet_id in [*model]:
        ids.discard(packet_id)
    assert (len(ids), ids.size) == (0, 0)


def test_all_packet_ids_take_a_bit_each() -> None:
    ids = PacketIds()
    for packet_id in range(1, 65_536):
        ids.add(packet_id)
        assert ids.size <= BITS_BYTES
    assert len(ids) == 65_535
    assert 0 not in ids
