"""A Kombu transport: Celery and other programs of Kombu on pybroker or ActiveMQ. Importing this registers `activemq://`.

- `transport`, with `declaring`: the connection; `channel`: AMQP's methods
- `subscriptions`, `unacknowledged`: what is consumed, and what is not acknowledged
- `routing`, `bindings`, `names`: exchanges, queues and bindings as destinations
- `message_form`: Kombu's messages as JMS messages
- `url`, `options`: the settings; `environment`: checks of threads and of the broker
- `worker`: a step of Celery's worker, added to each if there is Celery
- `moves`: moves messages between queues; `wakeup`: how the client's thread wakes the application's

It is a user of `pybroker.client`, and knows nothing of a broker. Needs the extra `kombu`.
"""

import importlib
import importlib.util
from typing import Any, Final

try:
    from kombu.transport import TRANSPORT_ALIASES
except ModuleNotFoundError as error:
    if error.name != "kombu":
        raise
    raise ModuleNotFoundError(
        "pybroker.kombu needs Kombu: pip install kombu, which is the extra `kombu` of pybroker", name="kombu"
    ) from None

from pybroker.kombu.transport import Transport

__all__ = ["Transport", "register"]

ALIASES: Final = ("activemq",)


def register() -> None:
    """Register the schemes of the transport with Kombu, and a step with the workers of Celery.

    Importing this package does that too.
    """
    for alias in ALIASES:
        TRANSPORT_ALIASES.setdefault(alias, "pybroker.kombu:Transport")
    if importlib.util.find_spec("celery") is not None:
        importlib.import_module("celery.signals").worker_init.connect(_add_step)


def _add_step(sender: Any, **_: Any) -> None:
    """Load the step in a worker alone: it imports much of Celery that a client does not need."""
    from pybroker.kombu import worker

    worker.prepare(sender.app)


register()
