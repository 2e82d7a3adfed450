"""JMS clients and MQTT devices read one another's messages, and answer one another's requests."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from paho.mqtt.client import MQTTMessage
from paho.mqtt.enums import MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.integration.cluster import free_port
from tests.integration.test_mqtt import Device, Paho
from tests.java.checks import Outcomes, Programs
from tests.java.installations import FollowedBroker

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(300)]

BINARY = b"\xff\0\xfe"
QUEUE = "Consumer.device:AT_LEAST_ONCE.VirtualTopic.devices.*.queue"
EXPECTED: dict[str, Any] = {
    "published": [
        {
            "topic": f"topic://devices.published.{qos}",
            "body": "00ff",
            "persistent": qos > 0,
            "priority": 4,
            "expires": False,
            "properties": {"ActiveMQ.MQTT.QoS": f"Integer {qos}"},
        }
        for qos in range(3)
    ],
    "properties": {
        "reply to": "topic://answers.1",
        "correlation id": "request 1",
        "expires within the minute": True,
        "properties": {
            "ActiveMQ.MQTT.QoS": "Integer 1",
            "MQTT_CONTENT_TYPE": "String text/plain",
            "MQTT_PAYLOAD_FORMAT": "Integer 1",
            "MQTT_USER_PROPERTIES": 'String [["colour","red"],["colour","blue"],["not legal","x"]]',
            "colour": "String red",
        },
    },
    "names": [
        "devices.names.a.b",
        "devices.names.a/b",
        "devices.names..a",
        "devices.names.a.",
        "devices.names.a#b",
        "devices.names.a+b",
        "devices.names.topic:..z",
    ],
    "sent": [
        ["devices/sent", "4772c3bcc39f65", 1, []],
        ["devices/sent", "00ff", 0, []],
        ["devices/sent", b"{n=5}".hex(), 0, []],
        ["devices/sent", "", 2, [["colour", "red"]]],
    ],
    "service": [["FIRST", b"request 1".hex()], ["SECOND", BINARY.hex()]],
    "client": {"body": "PING", "correlation id": "7"},
    "clientWithTemporaryTopic": None,
    "queueOfSession": {
        "destination": f"queue://{QUEUE}",
        "original": "topic://VirtualTopic.devices.a.queue",
        "body": "waits",
    },
}


class Acts:
    """The device: does what the checks ask for."""

    def __init__(self, port: int, virtual_port: int, stack: ExitStack) -> None:
        self._virtual_port = virtual_port
        self._device = stack.enter_context(Paho(port, "paho", version=MQTTProtocolVersion.MQTTv5))
        self._acts: dict[str, Callable[[], Any]] = {
            "publish": self._publish,
            "publish with properties": self._publish_with_properties,
            "publish names": self._publish_names,
            "subscribe": lambda: self._device.subscribe("devices/sent", 2),
            "received": lambda: [self._seen(self._device.receive()) for _ in range(4)],
            "request": self._request,
            "answers": lambda: [self._answer(self._device.receive()) for _ in range(2)],
            "serve": lambda: self._device.subscribe("devices/client/requests", 1),
            "answer": self._serve,
            "response topic": lambda: getattr(self._device.receive().properties, "ResponseTopic", None),
            "leave a session behind": self._leave_session,
        }

    def do(self, _check: str, act: str) -> Any:
        return self._acts[act]()

    def _send(self, topic: str, payload: bytes, qos: int = 1, **values: Any) -> None:
        properties = Properties(PacketTypes.PUBLISH)
        for name, value in values.items():
            setattr(properties, name, value)
        self._device.client.publish(topic, payload, qos, properties=properties).wait_for_publish(30)

    def _publish(self) -> None:
        for qos in range(3):
            self._send(f"devices/published/{qos}", b"\0\xff", qos)

    def _publish_with_properties(self) -> None:
        self._send(
            "devices/properties",
            b"x",
            ResponseTopic="answers/1",
            CorrelationData=b"request 1",
            ContentType="text/plain",
            PayloadFormatIndicator=1,
            MessageExpiryInterval=60,
            UserProperty=[("colour", "red"), ("colour", "blue"), ("not legal", "x")],
        )

    def _publish_names(self) -> None:
        for name in ("a/b", "a.b", "/a", "a/", "a>b", "a*b", "topic://z"):
            self._send(f"devices/names/{name}", b"x")
        self._send("devices/names/end", b"")

    def _request(self) -> None:
        self._device.subscribe("answers/+", 1)
        for payload, data in ((b"first", b"request 1"), (b"second", BINARY)):
            self._send("devices/service", payload, ResponseTopic="answers/1", CorrelationData=data)

    def _serve(self) -> None:
        request = self._device.receive()
        properties = vars(request.properties)
        payload = bytes(request.payload).upper()
        self._send(properties["ResponseTopic"], payload, CorrelationData=properties["CorrelationData"])

    def _leave_session(self) -> None:
        with Device([self._virtual_port], "device") as device:
            device.subscribe(("devices/+/queue", 1))
        with Device([self._virtual_port], "sender", clean=True) as sender:
            sender.publish("devices/a/queue", b"waits", 1)

    @staticmethod
    def _seen(message: MQTTMessage) -> list[object]:
        return [message.topic, message.payload.hex(), message.qos, getattr(message.properties, "UserProperty", [])]

    @staticmethod
    def _answer(message: MQTTMessage) -> list[object]:
        return [message.payload.decode(), vars(message.properties)["CorrelationData"].hex()]


@pytest.fixture(scope="module")
def outcomes(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcomes]:
    openwire, port, virtual_port = free_port(), free_port(), free_port()
    file = tmp_path_factory.mktemp("devices") / "pybroker.toml"
    file.write_text(
        f'[[listeners]]\nprotocol = "mqtt"\nport = {virtual_port}\n'
        'mqtt_subscription_strategy = "mqtt-virtual-topic-subscriptions"\n'
    )
    extra = ("--config", str(file), "--openwire", str(openwire), "--mqtt", str(port))
    member = FollowedBroker("memory:", name="a", port=free_port(), extra=extra)
    try:
        member.wait_for("listening on")
        with ExitStack() as stack:
            acts = Acts(port, virtual_port, stack)
            yield programs.area("Devices", f"tcp://127.0.0.1:{openwire}", answer=acts.do)
    finally:
        member.close()


@pytest.mark.parametrize("check", EXPECTED)
def test_devices_and_jms_clients(outcomes: Outcomes, check: str) -> None:
    assert outcomes.keys() == EXPECTED.keys()
    assert outcomes[check] == EXPECTED[check]
