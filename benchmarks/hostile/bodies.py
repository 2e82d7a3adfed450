"""Bodies and properties that cost much to decode, to render for STOMP, or to inflate."""

import zlib

from benchmarks.hostile.attacks import attack
from benchmarks.hostile.target import FORMAT, OpenWire, Refused, Target, common, message, queue, topic
from pybroker.broker.domain.big_endian import INT
from pybroker.broker.domain.openwire import commands as wire
from pybroker.broker.domain.openwire.values import Value, encode_map, encode_stream

_QUEUE = queue("HOSTILE.BODIES")
_STOMP_QUEUE = "/queue/HOSTILE.BODIES"
_PRODUCER = wire.ProducerId("hostile-bodies", 1, 1)


async def _rendered(target: Target, *commands: wire.ActiveMQMessage, headers: str = "") -> str:
    """Send messages that a STOMP client consumes; `headers` are of its SUBSCRIBE."""
    producer, consumer = await target.openwire(), await target.stomp()
    frames = [_frame_of(producer, command) for command in commands]
    del commands
    await target.begin()
    await consumer.subscribe(_STOMP_QUEUE, headers=headers)
    for frame in frames:
        await producer.write(frame)
    await producer.settle(60)
    refused = sum(producer.errors.values())
    await consumer.until(lambda: consumer.messages + sum(consumer.errors.values()) + refused >= len(frames), 10)
    refused += sum(consumer.errors.values())
    target.depth.reach(consumer.messages, len(frames) - refused, "messages received")
    return f"{consumer.messages} of {len(frames)} received; {common(producer.errors + consumer.errors)}"


def _frame_of(producer: OpenWire, command: wire.ActiveMQMessage) -> bytes:
    """Return a message's frame, sent by that client."""
    assert command.message_id is not None
    command.producer_id = producer.producer
    command.message_id = command.message_id._replace(producer_id=producer.producer)
    return FORMAT.encode_frame(command)


def _text(encoded: bytes) -> wire.ActiveMQMessage:
    """Return a text message with a body that is already modified UTF-8."""
    return message(_QUEUE, producer=_PRODUCER, sequence=1, content=INT.pack(len(encoded)) + encoded)


@attack("text-surrogates")
async def surrogates(target: Target) -> str:
    """A text of 48 MB of surrogate pairs, in Java's modified UTF-8, to a STOMP consumer."""
    return await _rendered(target, _text(b"\xed\xa0\xbd\xed\xb8\x80" * target.sized(8_000_000, 500_000)))


@attack("text-lone-surrogates", quick=True)
async def lone_surrogates(target: Target) -> str:
    """A text of 48 MB of surrogates without partners to a STOMP consumer."""
    return await _rendered(target, _text(b"\xed\xa0\xbd" * target.sized(16_000_000, 1_000_000)))


@attack("text-zeros")
async def zeros(target: Target) -> str:
    """A text of 48 MB of U+0000 in modified UTF-8 to a STOMP consumer."""
    return await _rendered(target, _text(b"\xc0\x80" * target.sized(24_000_000, 1_000_000)))


@attack("property-surrogates")
async def property_surrogates(target: Target) -> str:
    """A property of 16 MB of surrogates to a STOMP consumer."""
    encoded = b"\xed\xa0\xbd\xed\xb8\x80" * target.sized(2_700_000, 300_000)
    values = INT.pack(1) + b"\x00\x01p\x0d" + INT.pack(len(encoded)) + encoded
    return await _rendered(
        target, message(_QUEUE, producer=_PRODUCER, sequence=1, text="x", marshalled_properties=values)
    )


@attack("property-nulls", quick=True, refused="MessageFormatException")
async def nulls(target: Target) -> str:
    """A property that is a list of 20 million nulls, against a selector and to a STOMP consumer."""
    return await _rendered(target, _nulls(target.sized(20_000_000, 2_000_000)), headers="selector:q IS NULL\n")


def _nulls(count: int) -> wire.ActiveMQMessage:
    values = INT.pack(1) + b"\x00\x01p\x0c" + INT.pack(count) + bytes(count)
    return message(_QUEUE, producer=_PRODUCER, sequence=1, text="x", marshalled_properties=values)


@attack("property-many", refused="MessageFormatException")
async def many(target: Target) -> str:
    """A message of 1,000,000 properties to a STOMP consumer."""
    values: dict[str, Value] = {f"p{number}": number for number in range(target.sized(1_000_000, 100_000))}
    return await _rendered(target, message(_QUEUE, producer=_PRODUCER, sequence=1, text="x", values=values))


@attack("property-nested", refused="MessageFormatException")
async def nested(target: Target) -> str:
    """Maps in maps, 30 deep, and a list of 1,000,000 empty maps, to a STOMP consumer."""
    inner: Value = 1
    for _ in range(30):
        inner = {"m": inner}
    wide = INT.pack(1) + b"\x00\x01p\x0c" + INT.pack(1_000_000) + b"\x0b\x00\x00\x00\x00" * 1_000_000
    return await _rendered(
        target,
        message(_QUEUE, producer=_PRODUCER, sequence=1, text="x", values={"p": inner}),
        message(_QUEUE, producer=_PRODUCER, sequence=2, text="x", marshalled_properties=wide),
    )


@attack("map-to-stomp")
async def map_to_stomp(target: Target) -> str:
    """A MapMessage of 1,000,000 entries to a STOMP consumer that wants JSON."""
    content = encode_map({f"p{number}": number for number in range(target.sized(1_000_000, 100_000))})
    made = message(_QUEUE, producer=_PRODUCER, sequence=1, content=content, kind=wire.ActiveMQMapMessage)
    return await _rendered(target, made, headers="transformation:jms-map-json\n")


@attack("stream-to-stomp")
async def stream_to_stomp(target: Target) -> str:
    """A StreamMessage of 5,000,000 values to a STOMP consumer."""
    content = encode_stream([1]) * target.sized(5_000_000, 300_000)
    made = message(_QUEUE, producer=_PRODUCER, sequence=1, content=content, kind=wire.ActiveMQStreamMessage)
    return await _rendered(target, made, headers="transformation:jms-json\n")


@attack("json-from-stomp")
async def json_from_stomp(target: Target) -> str:
    """A STOMP message of 40 MB of JSON that is to become a MapMessage, and one of nested brackets."""
    entries = ",".join(f'{{"string":["k{number}","v{number}"]}}' for number in range(target.sized(1_000_000, 50_000)))
    body = ('{"map":{"entry":[' + entries + "]}}").encode()
    deep = b"[" * 1_000_000
    await target.begin()
    client = await target.stomp()
    outcomes = []
    for each in (body, deep):
        head = (
            f"SEND\ndestination:{_STOMP_QUEUE}\ntransformation:jms-map-json\nreceipt:r\ncontent-length:{len(each)}\n\n"
        )
        try:
            await client.request(head.encode() + each + b"\0", 60)
            outcomes.append("accepted")
        except (Refused, OSError) as error:
            outcomes.append(str(error))
            client = await target.stomp()
    return "; ".join(outcomes)


@attack("inflate-one", quick=True)
async def inflate_one(target: Target) -> str:
    """A compressed text of 100 KB that inflates to 90 MB, to a STOMP consumer."""
    return await _rendered(target, _compressed(1, target.sized(90, 30)))


def _compressed(sequence: int, megabytes: int, destination: wire.Destination = _QUEUE) -> wire.ActiveMQMessage:
    content = zlib.compress(INT.pack(megabytes << 20) + b"a" * (megabytes << 20))
    return message(destination, producer=_PRODUCER, sequence=sequence, content=content, compressed=True)


@attack("inflate-bomb", refused="ERROR")
async def inflate_bomb(target: Target) -> str:
    """Compressed texts that inflate to 1 GB, which is over the frame limit, to a STOMP consumer."""
    return await _rendered(target, *(_compressed(number, 1000) for number in range(3)))


@attack("inflate-many", memory_limit_mb=256, seconds_max=120.0)
async def inflate_many(target: Target) -> str:
    """60 messages that inflate to 50 MB each, to a STOMP subscriber and to a slow OpenWire subscriber of a topic."""
    destination = topic("HOSTILE.INFLATED")
    producer, slow, stomp = await target.openwire(), await target.openwire(), await target.stomp()
    frames = [_frame_of(producer, _compressed(number, 50, destination)) for number in range(target.sized(60, 6))]
    await target.begin()
    await slow.consume(destination, prefetch=1)
    await stomp.subscribe("/topic/HOSTILE.INFLATED")
    for frame in frames:
        await producer.write(frame)
    await producer.settle(50)
    await stomp.messages_reach(len(frames), 60)
    return f"{stomp.messages} of {len(frames)} received; {common(producer.errors + stomp.errors)}"


@attack("inflate-unread", memory_limit_mb=256)
async def inflate_unread(target: Target) -> str:
    """60 messages that inflate to 50 MB each, to a STOMP subscriber that reads nothing."""
    destination = topic("HOSTILE.INFLATED")
    producer, stomp = await target.openwire(), await target.stomp()
    frames = [_frame_of(producer, _compressed(number, 50, destination)) for number in range(target.sized(60, 6))]
    await target.begin()
    await stomp.subscribe("/topic/HOSTILE.INFLATED")
    stomp.stop_reading()
    for frame in frames:
        await producer.write(frame)
    await producer.settle(50)
    return f"sent; {common(producer.errors)}"


@attack("stomp-header-escapes")
async def header_escapes(target: Target) -> str:
    """STOMP messages whose headers consist of escapes, 400 kB each, to a STOMP consumer."""
    value = "\\c" * 4000
    head = "".join(f"h{number}:{value}\n" for number in range(100))
    frame = f"SEND\ndestination:{_STOMP_QUEUE}\n{head}\nx\0".encode()
    await target.begin()
    producer, consumer = await target.stomp(), await target.stomp()
    await consumer.subscribe(_STOMP_QUEUE)
    count = await producer.flood(frame, target.sized(4, 1))
    return f"{count} sent; {common(producer.errors)}"


@attack("stomp-headers-many", quick=True, refused="ERROR The ")
async def headers_many(target: Target) -> str:
    """STOMP frames with 100,000 headers, and with a header line without end."""
    many_headers = "".join(f"h{number}:v\n" for number in range(100_000)).encode()
    await target.begin()
    outcomes = []
    for data in (b"SEND\ndestination:/queue/X\n" + many_headers + b"\n\0", b"SEND\nx:" + b"y" * 20_000_000):
        client = await target.stomp()
        await client.flood(data, 1.0)
        await client.until(lambda client=client: bool(client.errors), 2.0)  # type: ignore[misc]
        outcomes.append(common(client.errors) or "no ERROR")
    return "; ".join(outcomes)


@attack("stomp-body-without-end", quick=True)
async def body_without_end(target: Target) -> str:
    """A STOMP body without length or NUL, 90 MB in small pieces; and the same with its end."""
    pieces = b"x" * 1400
    await target.begin()
    client = await target.stomp()
    await client.write(b"SEND\ndestination:/queue/X\nreceipt:r\n\n")
    for _ in range(target.sized(64_000, 5_000)):
        await client.write(pieces)
    await client.request(b"\0", 30)
    return common(client.errors) or "accepted"


@attack("openwire-body-dribbled")
async def body_dribbled(target: Target) -> str:
    """An OpenWire frame of 90 MB in pieces of 1,400 bytes."""
    pieces = b"x" * 1400
    await target.begin()

    client = await target.openwire()
    await client.write((90 << 20).to_bytes(4, "big") + bytes([wire.ActiveMQTextMessage.DATA_TYPE]))
    for _ in range(target.sized(64_000, 5_000)):
        await client.write(pieces)
    return common(client.errors) or "read"


@attack("malformed-counts", quick=True)
async def malformed_counts(target: Target) -> str:
    """Messages whose maps, lists, strings and arrays announce billions of entries."""
    await target.begin()
    outcomes = []
    for tag, name in ((b"\x0c", "list"), (b"\x0b", "map"), (b"\x0a", "bytes"), (b"\x0d", "string")):
        values = INT.pack(1) + b"\x00\x01p" + tag + INT.pack(2_000_000_000)
        client, consumer = await target.openwire(), await target.stomp()
        await consumer.subscribe(_STOMP_QUEUE, headers="selector:p IS NULL\n")
        outcomes.append(f"{name}: {await _sent_malformed(client, values)}")
    return "; ".join(outcomes)


async def _sent_malformed(client: OpenWire, values: bytes) -> str:
    made = message(_QUEUE, producer=client.producer, sequence=1, text="x", marshalled_properties=values)
    try:
        await client.request(made, 20)
    except (Refused, OSError) as error:
        return str(error)[:40]
    return "accepted"
