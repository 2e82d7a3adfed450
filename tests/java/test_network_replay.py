"""Acceptance check 9 of networks: messages that are stuck at one end of two bridges go back, in any pair of brokers."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from pybroker.client.errors import Timeout
from tests.java.bridged import QUIET_SECONDS, BridgedEnd, Connector, read
from tests.java.checks import Programs

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(180)]

KINDS = {
    "activemq and pybroker": ("activemq", "pybroker"),
    "pybroker and activemq": ("pybroker", "activemq"),
    "pybroker and pybroker": ("pybroker", "pybroker"),
}
"""The kinds of the broker that messages come from, and of the one where they get stuck."""

COUNT = 100
DELAYS_MS = {"pybroker": 300, "activemq": 1}
"""An ActiveMQ does not look again once the delay is over, but at the next event of the queue, up to 30 s later."""


@pytest.mark.parametrize("has_replay", [False, True])
@pytest.mark.parametrize("kinds", KINDS)
def test_stranded_messages_go_back_only_with_replay(
    kinds: str, has_replay: bool, programs: Programs, tmp_path: Path
) -> None:
    near, far = BridgedEnd(), BridgedEnd()
    delay = DELAYS_MS[KINDS[kinds][1]] if has_replay else 0
    expected = [str(number) for number in range(COUNT)]
    with ExitStack() as stack:
        for end, name, other, kind in ((near, "near", far, KINDS[kinds][0]), (far, "far", near, KINDS[kinds][1])):
            connector = Connector(name=f"from-{name}", address=other.uri, replay_delay=delay if end is far else 0)
            stack.enter_context(end.start(kind, name, connector, tmp_path, programs.class_path))
        with far.consumer("Q", ack="individual") as consumer:
            near.texts("Q", *expected)
            assert read(consumer, COUNT) == expected, "which it does not acknowledge"
        with near.consumer("Q") as consumer:
            if has_replay:
                assert read(consumer, COUNT) == expected
            with pytest.raises(Timeout):
                consumer.receive(timeout=QUIET_SECONDS)
