"""The subprotocol is one that was offered, of the family of the last one that is known."""

import pytest

from pybroker.transports.websocket.subprotocols import AMQP, MQTT, STOMP, SubprotocolFamily, choose

OTHER = SubprotocolFamily(name="other", subprotocols=("o2", "o1"), sends_text=False, error_prefix=b"")


@pytest.mark.parametrize(
    ("offered", "family", "name"),
    [
        ([], STOMP, None),
        (["v12.stomp"], STOMP, "v12.stomp"),
        (["v10.stomp", "v12.stomp", "v11.stomp"], STOMP, "v12.stomp"),
        (["stomp", "v10.stomp"], STOMP, "v10.stomp"),
        (["stomp"], STOMP, "stomp"),
        (["o1", "v12.stomp"], STOMP, "v12.stomp"),
        (["v12.stomp", "o1"], OTHER, "o1"),
        (["o1", "v12.stomp", "o2"], OTHER, "o2"),
        (["v12.stomp", "xstomp"], STOMP, "v12.stomp"),
    ],
)
def test_choice_is_the_best_offered_name(offered, family, name):
    chosen = choose(offered, [STOMP, OTHER])
    assert chosen is not None
    assert chosen.family is family
    assert chosen.name == name


def test_mqtt_is_chosen_by_its_names() -> None:
    """As by ActiveMQ, the last one decides among several protocols, and `mqttv3.1` is preferred."""
    served = [STOMP, MQTT]
    assert choose(["mqtt"], served) == (MQTT, "mqtt")
    assert choose(["mqtt", "mqttv3.1"], served) == (MQTT, "mqttv3.1")
    assert choose(["mqtt", "v12.stomp"], served) == (STOMP, "v12.stomp")
    assert choose(["v12.stomp", "mqtt"], served) == (MQTT, "mqtt")
    assert choose([], served) == (STOMP, None)


def test_amqp_is_chosen_by_its_name() -> None:
    assert choose(["amqp"], [STOMP, MQTT, AMQP]) == (AMQP, "amqp")


@pytest.mark.parametrize("offered", [["xstomp"], ["mqtt"], ["V12.STOMP"], ["v12.stomp2", "chat"]])
def test_unknown_names_have_no_choice(offered):
    assert choose(offered, [STOMP]) is None
