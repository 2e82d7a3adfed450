"""Scheduled messages: their properties, and the messages that their jobs send.

| property             | type   | meaning                                                        |
|----------------------|--------|----------------------------------------------------------------|
| AMQ_SCHEDULED_DELAY  | long   | milliseconds until the first delivery                          |
| AMQ_SCHEDULED_PERIOD | long   | milliseconds between deliveries; without a delay, also before  |
| AMQ_SCHEDULED_REPEAT | int    | further deliveries; negative: for ever                         |
| AMQ_SCHEDULED_CRON   | string | crontab entry, see `cron`                                      |
| scheduledJobId       | string | set on a message that was scheduled, which is not scheduled again |
| redeliveryDelay      | long   | set on a message that the broker redelivers: the delay, see `redelivery` |

A message with a delay, a period or a cron entry is scheduled. Numbers may be strings, because STOMP has no others.

Source: ActiveMQ 5.17, `ScheduledMessage`, `SchedulerBroker`.
"""

from collections.abc import Generator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple

from pybroker.broker.core import cron
from pybroker.broker.core.cron import UtcOffset
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.jobs import FOR_EVER, TIME_MAX, InvalidSchedule, Job
from pybroker.broker.domain.message import RESENT, Message
from pybroker.broker.domain.openwire import ids
from pybroker.broker.domain.openwire.heads import place
from pybroker.broker.domain.openwire.ids import OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.loose import Reader, UnencodableOpenWire
from pybroker.broker.domain.openwire.message import (
    OpenWireMessage,
    encode,
    outline,
    outline_of,
    to_large_message,
    to_message,
)
from pybroker.broker.domain.openwire.routing import routing
from pybroker.broker.domain.openwire.spotting import may_have
from pybroker.broker.domain.openwire.values import Value, encode_map, with_entry

DELAY: Final = "AMQ_SCHEDULED_DELAY"
PERIOD: Final = "AMQ_SCHEDULED_PERIOD"
REPEAT: Final = "AMQ_SCHEDULED_REPEAT"
CRON: Final = "AMQ_SCHEDULED_CRON"
JOB_ID: Final = "scheduledJobId"
REDELIVERY_DELAY: Final = "redeliveryDelay"

TIMETABLE_PROPERTIES: Final = (DELAY, PERIOD, REPEAT, CRON)
"""The properties that make a message scheduled, which its job's messages do not have."""

REPEAT_MAX: Final = 1000
"""Limit of the repetitions that one send can cause; ActiveMQ's `maxSchedulerRepeatAllowed`."""
PERIOD_MIN: Final = 100
"""Shortest time in milliseconds between runs of a repeating job, so that one send cannot flood the broker. ActiveMQ's
scheduler has the same interval."""

_NAMES_BEGIN: Final = b"AMQ_SCHEDULE"
"""Prefix of the names of the properties above, and of `AMQ_SCHEDULER_ACTION` in scheduler commands."""


class Timetable(NamedTuple):
    """The scheduling properties of a message; durations in milliseconds."""

    cron: str
    delay: int
    period: int
    repeat: int

    def first_time(self, now: int, offset_at: UtcOffset) -> int:
        """Return the time of the first run of a message scheduled now; `offset_at` is the time zone of cron entries."""
        start = cron.parse(self.cron).next_after(now, offset_at) if self.cron else now
        return TIME_MAX if start is None else min(start + (self.delay or self.period), TIME_MAX)


# ---------------------------------------------------------------- detecting


def is_scheduled(message: Message) -> bool:
    """Return True if a message may be for the scheduler; a fast check, after which `Scheduler.accepts` decides."""
    return may_have(message, _NAMES_BEGIN)


# ---------------------------------------------------------------- reading


def timetable(properties: Mapping[str, Value]) -> Timetable | None:
    """Return the timetable in a message's properties, None if it is not to be scheduled.

    Raises:
        InvalidSchedule: the properties are invalid, or exceed a limit.
    """
    entry = properties.get(CRON)
    if properties.get(JOB_ID) is not None:
        return None
    if entry is None and properties.get(DELAY) is None and properties.get(PERIOD) is None:
        return None
    repeat = number(properties, REPEAT) or 0
    if repeat > REPEAT_MAX:
        raise InvalidSchedule("The scheduled repeat value is too large")  # ActiveMQ's text, which clients may compare
    text = "" if entry is None else str(entry)
    if text:
        cron.parse(text)
    return Timetable(
        cron=text,
        delay=max(0, number(properties, DELAY) or 0),
        period=max(0, number(properties, PERIOD) or 0),
        repeat=max(repeat, FOR_EVER),
    )


def number(properties: Mapping[str, Value], name: str) -> int | None:
    """Return a property that is a whole number or a string of one; None when it is not there.

    Raises:
        InvalidSchedule: it is something else, or does not fit 64 bits.
    """
    value = properties.get(name)
    if value is None:
        return None
    if isinstance(value, str) and len(value) <= 40:
        with suppress(ValueError):  # reported below
            value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not -TIME_MAX <= value <= TIME_MAX:
        raise InvalidSchedule(f"property {name} is {str(value)[:100]!r}, where a whole number belongs")
    return int(value)


# ---------------------------------------------------------------- delivering


def outside_transaction(message: Message) -> bytes:
    """Return a message's bytes without the transaction in which it was sent, which has ended.

    An ActiveMQ that takes over the job would otherwise store the message in that transaction, and lose it.
    """
    fields = outline(message)
    if fields.transaction_id is None and fields.original_transaction_id is None:
        return message.data
    return encode(replace(fields, transaction_id=None, original_transaction_id=None))


def delivered(job: Job, data: bytes, now: int, fresh_id: OpenWireMessageId, *, is_resent: bool = False) -> Message:
    """Return the message that a job's run sends.

    It is the scheduled message without its scheduling properties, with the job's id, and with its time to live
    beginning now. The message of a job that runs once keeps the message id that clients see (`_own_id`); others get a
    new id. If an earlier master may have sent it, it has the property `RESENT`.

    Raises:
        MalformedOpenWire: the job's message does not decode.
        RequestError: a required field is missing.
    """
    return to_message(_sent(job, data, now, fresh_id, is_resent=is_resent))


def large_delivered(
    job: Job, data: bytes, now: int, fresh_id: OpenWireMessageId, *, is_resent: bool = False
) -> Generator[None, None, Message]:
    """Return what `delivered` does for a large message, in steps that copy a portion each. Raises as `delivered`."""
    return (yield from to_large_message(_sent(job, data, now, fresh_id, is_resent=is_resent)))


def _sent(job: Job, data: bytes, now: int, fresh_id: OpenWireMessageId, *, is_resent: bool) -> OpenWireMessage:
    """Return the fields of the message that `delivered` returns."""
    fields = outline_of(data)
    asked = fields.properties
    properties = {name: value for name, value in asked.items() if name not in TIMETABLE_PROPERTIES}
    properties[JOB_ID] = job.job_id
    if is_resent:
        properties[RESENT] = True
    expiration, timestamp = _renewed(fields, now)
    sent = replace(
        fields,
        transaction_id=None,
        original_transaction_id=None,
        message_id=fresh_id if _runs_again(asked) else _own_id(fields.message_id),
        expiration=expiration,
        timestamp=timestamp,
        broker_in_time=now,
    )
    sent.set_properties(properties)
    return sent


def undeliverable(data: bytes) -> Message:
    """Return a scheduled message that cannot be sent, to be dead-lettered: with its own id (`_own_id`), else unchanged.

    If the id would be too long, it stays as it is too.

    Raises:
        MalformedOpenWire: it is no message, or one without destination or message id.
    """
    begin, end = place(data, "message_id")
    with suppress(UnencodableOpenWire):
        own_id = ids.message_id(_own_id(ids.read_message_id(Reader(data, begin))))
        data = data[:begin] + own_id + data[end:]
    return routing(data)


def described(job: Job, data: bytes, reply_to: Destination, producer_id: ProducerId, sequence: int) -> Message:
    """Return the message that describes a job to a client that browses the scheduler.

    Raises:
        MalformedOpenWire: the job's message does not decode.
        RequestError: a required field is missing.
    """
    fields = outline_of(data)
    properties = fields.marshalled_properties or b""
    if JOB_ID.encode() in properties:  # an ActiveMQ's job
        properties = encode_map({**fields.properties, JOB_ID: job.job_id})
    else:
        properties = with_entry(properties, JOB_ID, job.job_id)
    description = replace(
        fields,
        transaction_id=None,
        original_transaction_id=None,
        producer_id=producer_id,
        message_id=OpenWireMessageId(None, producer_id, sequence),
        original_destination=fields.destination,
        destination=reply_to,
        persistent=False,
        response_required=False,
        jms_type="Advisory",
        marshalled_properties=properties,
    )
    return to_message(description)


def spawned(job: Job, data: bytes, now: int) -> Job:
    """Return the job that repeats the message of a cron job, from one time of the cron entry on.

    Its id contains that time: if a crash makes the cron job run again for the same time, the id is the same.
    """
    return Job(
        job_id=f"{job.job_id}@{job.next_time}",
        start_time=now,
        delay=job.delay,
        period=job.period,
        repeat=job.repeat,
        next_time=min(now + (job.delay or job.period), TIME_MAX),
        data=data,
    )


def _runs_again(properties: Mapping[str, Value]) -> bool:
    """Return True if the job sends several messages, by the client's properties: the job's own count decreases."""
    return bool(properties.get(CRON)) or number(properties, REPEAT) not in (None, 0)


def _own_id(message_id: OpenWireMessageId | None) -> OpenWireMessageId | None:
    """Return the id of the message that a job sends only once. Clients see the id that the message had.

    In the store it has the id of another producer. A store takes the highest sequence number of a producer for its last
    stored message. With the producer's own id, a scheduled message would raise that number; if a crash then loses an
    earlier message of the producer, its repetition by a failover client would be dropped as a duplicate.
    """
    if message_id is None or message_id.producer_id is None:
        return message_id
    producer_id = message_id.producer_id
    if producer_id.value < 0:  # a message that the scheduler had sent was scheduled again
        return message_id
    other = producer_id._replace(value=-1 - producer_id.value)
    return message_id._replace(text_view=message_id.text_view or str(message_id), producer_id=other)


def _renewed(fields: OpenWireMessage, now: int) -> tuple[int, int]:
    """Return the expiration and timestamp that the message would have if it were sent now."""
    lifetime = fields.expiration - fields.timestamp
    if fields.expiration > 0 and fields.timestamp > 0 and lifetime > 0 and now > fields.timestamp:
        return min(now + lifetime, TIME_MAX), now
    return fields.expiration, fields.timestamp
