"""Messages that ask to be delivered later: how to spot one, what it asks for, and what is delivered in the end.

| property             | type   | meaning                                                        |
|----------------------|--------|----------------------------------------------------------------|
| AMQ_SCHEDULED_DELAY  | long   | milliseconds until the first delivery                          |
| AMQ_SCHEDULED_PERIOD | long   | milliseconds between deliveries; without a delay, also before  |
| AMQ_SCHEDULED_REPEAT | int    | further deliveries; negative: for ever                         |
| AMQ_SCHEDULED_CRON   | string | crontab entry, see `cron`                                      |
| scheduledJobId       | string | of a message that was scheduled once: it is not scheduled again |

Any of delay, period and cron makes a message wait. Numbers may be strings, as STOMP has them.

Source: ActiveMQ 5.17, `ScheduledMessage`, `SchedulerBroker`.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple

from pybroker.broker.core import cron
from pybroker.broker.core.cron import UtcOffset
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.jobs import FOR_EVER, TIME_MAX, InvalidSchedule, Job
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.ids import OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.message import OpenWireMessage, decode, encode, to_message, view
from pybroker.broker.domain.openwire.spotting import may_have
from pybroker.broker.domain.openwire.values import Value

DELAY: Final = "AMQ_SCHEDULED_DELAY"
PERIOD: Final = "AMQ_SCHEDULED_PERIOD"
REPEAT: Final = "AMQ_SCHEDULED_REPEAT"
CRON: Final = "AMQ_SCHEDULED_CRON"
JOB_ID: Final = "scheduledJobId"

REPEAT_MAX: Final = 1000
"""ActiveMQ's `maxSchedulerRepeatAllowed`: one send must not become any number of messages."""
PERIOD_MIN: Final = 100
"""Milliseconds that a repeating job leaves between runs at least: one send must not flood a broker for ever. ActiveMQ's
scheduler wakes up no more often."""

_NAMES_BEGIN: Final = b"AMQ_SCHEDULE"
"""Of the properties above, and of the scheduler's management (`AMQ_SCHEDULER_ACTION`)."""


class Timetable(NamedTuple):
    """What a message asks for; durations in milliseconds."""

    cron: str
    delay: int
    period: int
    repeat: int

    def first_time(self, now: int, offset_at: UtcOffset) -> int:
        """Return the first run of what is scheduled now; `offset_at` is the time zone of cron entries."""
        start = cron.parse(self.cron).next_after(now, offset_at) if self.cron else now
        return TIME_MAX if start is None else min(start + (self.delay or self.period), TIME_MAX)


# ---------------------------------------------------------------- spotting


def is_scheduled(message: Message) -> bool:
    """Tell whether a message may be the scheduler's business, in a fraction of a microsecond; if True, ask it."""
    return may_have(message, _NAMES_BEGIN)


# ---------------------------------------------------------------- reading


def timetable(properties: Mapping[str, Value]) -> Timetable | None:
    """Return what a message's properties ask for, None when they ask for nothing.

    Raises:
        InvalidSchedule: they make no sense, or ask for too much.
    """
    entry = properties.get(CRON)
    if properties.get(JOB_ID) is not None:
        return None
    if entry is None and properties.get(DELAY) is None and properties.get(PERIOD) is None:
        return None
    repeat = number(properties, REPEAT) or 0
    if repeat > REPEAT_MAX:
        raise InvalidSchedule("The scheduled repeat value is too large")  # ActiveMQ's very words: programs compare them
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
        with suppress(ValueError):  # said below
            value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not -TIME_MAX <= value <= TIME_MAX:
        raise InvalidSchedule(f"property {name} is {str(value)[:100]!r}, where a whole number belongs")
    return int(value)


# ---------------------------------------------------------------- delivering


def outside_transaction(message: Message) -> bytes:
    """Return a message's bytes without the transaction it was sent in, which is over.

    An ActiveMQ that takes the job over would store what it sends as part of that transaction, and lose it.
    """
    fields = view(message)
    if fields.transaction_id is None and fields.original_transaction_id is None:
        return message.data
    return encode(replace(fields, transaction_id=None, original_transaction_id=None))


def delivered(job: Job, data: bytes, now: int, fresh_id: OpenWireMessageId) -> Message:
    """Return the message that a job's run sends.

    It is the one that was scheduled without its timetable, with the job's id and its time to live counted from now.
    What runs once keeps the message id that clients see, see `_own_id`; anything else gets a fresh one each time.

    Raises:
        MalformedOpenWire: the job's message does not decode.
        ClientError: it lacks what a message needs.
    """
    fields = decode(data)
    asked = fields.properties
    properties = {name: value for name, value in asked.items() if name not in (DELAY, PERIOD, REPEAT, CRON)}
    properties[JOB_ID] = job.job_id
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
    return to_message(sent)


def described(job: Job, data: bytes, reply_to: Destination, producer_id: ProducerId, sequence: int) -> Message:
    """Return the message that tells somebody who browses the scheduler about a job.

    Raises:
        MalformedOpenWire: the job's message does not decode.
        ClientError: it lacks what a message needs.
    """
    fields = decode(data)
    told = replace(
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
    )
    told.set_properties({**fields.properties, JOB_ID: job.job_id})
    return to_message(told)


def spawned(job: Job, data: bytes, now: int) -> Job:
    """Return the job that an instant of a cron job with repetitions starts.

    Its name says of which instant it is: should a crash have the same instant come again, it is the same job.
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
    """Tell whether several messages come of one; asked of what the client wrote, because a job's count runs down."""
    return bool(properties.get(CRON)) or number(properties, REPEAT) not in (None, 0)


def _own_id(message_id: OpenWireMessageId | None) -> OpenWireMessageId | None:
    """Return the id of a message that is delivered once, the same each time: clients see the one that it had.

    To a store it is another producer's. Stores take a producer's highest number for that of the last message it sent:
    with the number of a message that waited in the job store, one that it had sent just before, and that a crash has
    taken from the message store, would count as stored when the producer sends it again.
    """
    if message_id is None or message_id.producer_id is None:
        return message_id
    producer_id = message_id.producer_id
    if producer_id.value < 0:  # delivered by the scheduler once already, and scheduled again by who got it
        return message_id
    other = producer_id._replace(value=-1 - producer_id.value)
    return message_id._replace(text_view=message_id.text_view or str(message_id), producer_id=other)


def _renewed(fields: OpenWireMessage, now: int) -> tuple[int, int]:
    """Return expiration and timestamp as if the message had been sent now."""
    lifetime = fields.expiration - fields.timestamp
    if fields.expiration > 0 and fields.timestamp > 0 and lifetime > 0 and now > fields.timestamp:
        return min(now + lifetime, TIME_MAX), now
    return fields.expiration, fields.timestamp
