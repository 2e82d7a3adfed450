"""`python -m tests.integration.stepping_member start …`: pybroker, whose master steps down at SIGUSR2."""

import asyncio
import logging
import signal

from pybroker.broker.app import signals
from pybroker.broker.app.node import Node

_log = logging.getLogger("pybroker.stepping_member")


def handle(loop: asyncio.AbstractEventLoop, node: Node, certificates: object, notifier: object = None) -> None:
    """Handle the signal in place of those that `signals` handles."""
    requests: set[asyncio.Task[None]] = set()

    async def step_down() -> None:
        refusal = await node.request_stepdown()
        _log.info("asked to step down: %s", refusal or "it does")

    def ask() -> None:
        task = loop.create_task(step_down())
        requests.add(task)
        task.add_done_callback(requests.discard)

    loop.add_signal_handler(signal.SIGUSR2, ask)


if __name__ == "__main__":
    signals.handle = handle
    from pybroker.broker.app.cli import main

    main()
