"""Clients of the libraries paho and aiomqtt that publish numbered messages, or receive them, whichever member serves.

Each runs in a thread of its own until it is stopped. A publisher ends once everything has been confirmed; subscribers
have a session, and a filter for everything that publishers send.
"""

import asyncio
import itertools
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import aiomqtt
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

FILTER: Final = "kills/#"
SECONDS: Final = 60.0
WINDOW: Final = 20
PER_SECOND: Final = 50
"""Messages of a publisher: so many that subscribers keep up."""

NEVER: Final = 0xFFFF_FFFF
_KEEP_ALIVE_SECONDS: Final = 5
_RETRY_SECONDS: Final = 0.01
_LOOK_SECONDS: Final = 0.02
"""How often a client that waits looks if there is something to do."""
_CONFIRMED_SECONDS: Final = 2.0
"""aiomqtt notices only then that the connection ended while it was waiting for PUBACK."""


class CountingClient(threading.Thread):
    """A client.

    Attributes:
        confirmed: the numbers of messages that the broker has confirmed.
        received: how often each message came, by its publisher and number.
        connections: how often it was connected.
        is_subscribed: the session has its subscription.
    """

    def __init__(self, role: str, name: str, ports: Sequence[int], qos: int) -> None:
        super().__init__(name=f"{role}-{name}", daemon=True)
        self.failure: BaseException | None = None
        self.confirmed: set[int] = set()
        self.received: Counter[tuple[str, int]] = Counter()
        self.connections = 0
        self.is_subscribed = threading.Event()
        self.stopping = threading.Event()
        self.pause = threading.Event()
        self.is_publisher = role == "publisher"
        self.topic = f"kills/{name}"
        self.qos = qos
        self._own_name = name
        self._ports = ports
        self._begun_at = time.monotonic()
        self.start()

    def run(self) -> None:
        try:
            for port in itertools.cycle(self._ports):
                if self.is_done():
                    return
                self.work(port)
        except BaseException as error:  # reported by the test
            self.failure = error

    def stop(self) -> None:
        """Have it finish its work, and end."""
        self.stopping.set()
        self.join(SECONDS)
        assert not self.is_alive(), f"{self.name} hangs"
        if self.failure is not None:
            raise AssertionError(f"{self.name} has failed") from self.failure

    def is_done(self) -> bool:
        """Return True if there is nothing more to do."""
        return self.stopping.is_set()

    def work(self, port: int) -> None:
        """Work until the connection ends, or there is nothing more to do."""
        raise NotImplementedError

    def due(self) -> int:
        """Return how many messages a publisher may have published by now."""
        return int((time.monotonic() - self._begun_at) * PER_SECOND)

    def payload(self, number: int) -> bytes:
        return b"%s %d " % (self._own_name.encode(), number)

    def take(self, payload: bytes) -> None:
        """Count a message."""
        publisher, number, *_ = payload.split(b" ")
        self.received[publisher.decode(), int(number)] += 1


class PahoCounting(CountingClient):
    """A client of paho, which sends again what was not confirmed, with a window."""

    def __init__(self, role: str, name: str, ports: Sequence[int], qos: int, version: MQTTProtocolVersion) -> None:
        options: dict[str, Any] = {} if version is MQTTProtocolVersion.MQTTv5 else {"clean_session": False}
        self._client = paho.Client(
            CallbackAPIVersion.VERSION2,
            f"{role}-{name}",
            protocol=version,
            reconnect_on_failure=False,
            **options,
        )
        self._client.on_connect = self._connected
        self._client.on_message = lambda _client, _data, message: self.take(bytes(message.payload))
        self._client.on_publish = lambda _client, _data, identifier, *_: self._confirmed(identifier)
        self._client.on_subscribe = lambda *_: self.is_subscribed.set()
        self._options: dict[str, Any] = {}
        if version is MQTTProtocolVersion.MQTTv5:
            properties = Properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = NEVER
            self._options = {"clean_start": False, "properties": properties}
        self._open: dict[int, int] = {}
        self._number = 0
        super().__init__(role, name, ports, qos)

    def is_done(self) -> bool:
        return super().is_done() and not self._open

    def work(self, port: int) -> None:
        try:
            self._client.connect("127.0.0.1", port, keepalive=_KEEP_ALIVE_SECONDS, **self._options)
        except OSError:
            self.pause.wait(_RETRY_SECONDS)
        else:
            while self._client.loop(timeout=_LOOK_SECONDS) == MQTTErrorCode.MQTT_ERR_SUCCESS:
                if self.is_done():
                    self._client.disconnect()
                elif self.is_publisher and self._client.is_connected():
                    self._fill()

    def _connected(self, _client: object, _data: object, flags: Any, reason: Any, _properties: object) -> None:
        assert not reason.is_failure, reason
        self.connections += 1
        if self.is_publisher:
            return
        if not self.is_subscribed.is_set():
            self._client.subscribe(FILTER, self.qos)
        else:
            assert flags.session_present, f"the session of {self.name} is lost"

    def _confirmed(self, identifier: int) -> None:
        self.confirmed.add(self._open.pop(identifier))

    def _fill(self) -> None:
        while len(self._open) < WINDOW and self._number < self.due() and not self.stopping.is_set():
            self._number += 1
            identifier = self._client.publish(self.topic, self.payload(self._number), self.qos).mid
            self._open[identifier] = self._number


class _Received(asyncio.Queue[aiomqtt.Message]):
    """The queue of a client of aiomqtt; what is in it when the connection ends must not be lost."""

    owner: CountingClient

    def put_nowait(self, item: aiomqtt.Message) -> None:
        assert isinstance(item.payload, bytes)
        self.owner.take(item.payload)
        super().put_nowait(item)


class AiomqttCounting(CountingClient):
    """A client of aiomqtt, which has a new object for each connection: it waits for each message to be confirmed."""

    number = 1

    def work(self, port: int) -> None:
        asyncio.run(self._work(port))

    async def _work(self, port: int) -> None:
        queue = type("_Queue", (_Received,), {"owner": self})
        client = aiomqtt.Client(
            "127.0.0.1",
            port,
            identifier=self.name,
            clean_session=False,
            keepalive=_KEEP_ALIVE_SECONDS,
            queue_type=queue,
            timeout=_CONFIRMED_SECONDS,
        )
        try:
            async with client:
                self.connections += 1
                await (self._publish(client) if self.is_publisher else self._receive(client))
        except aiomqtt.MqttError:
            self.pause.wait(_RETRY_SECONDS)

    async def _publish(self, client: aiomqtt.Client) -> None:
        while not self.stopping.is_set():
            if self.number < self.due():
                await client.publish(self.topic, self.payload(self.number), self.qos)
                self.confirmed.add(self.number)
                self.number += 1
            else:
                await asyncio.sleep(_LOOK_SECONDS)

    async def _receive(self, client: aiomqtt.Client) -> None:
        if not self.is_subscribed.is_set():
            await client.subscribe(FILTER, self.qos)
            self.is_subscribed.set()
        messages = aiter(client.messages)
        following = asyncio.ensure_future(anext(messages))
        try:
            while not self.stopping.is_set():
                done, _ = await asyncio.wait([following], timeout=0.2)
                if done:
                    following.result()
                    following = asyncio.ensure_future(anext(messages))
        finally:
            if not following.cancel() and following.done():
                following.exception()
