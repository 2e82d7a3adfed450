"""An acknowledgement in another thread, between the look for room and the note that a message is held back."""

from types import SimpleNamespace

import pytest

from pybroker.kombu.channel import Channel
from pybroker.kombu.subscriptions import KombuSubscription
from pybroker.kombu.transport import Transport


def test_room_made_while_a_message_is_held_back_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    transport = Transport(SimpleNamespace(transport_options={}))
    channel = Channel(transport)
    looks: list[str] = []
    subscription = KombuSubscription("tasks", no_ack=False, callback=lambda _: None)
    monkeypatch.setattr(subscription, "poll", lambda: looks.append("polled"))
    monkeypatch.setattr(channel, "_subscriptions", {"1": subscription})
    has_room = False

    def can_consume() -> bool:
        nonlocal has_room
        if has_room:
            return True
        has_room = True
        channel.qos.ack(1)  # as another thread does, just after this look
        return False

    monkeypatch.setattr(channel.qos, "can_consume", can_consume)
    channel.deliver_waiting(1)
    assert looks or transport.wakeup.wait(0)
