"""Calls that may block without limit, because a name server or a file server may never answer.

Each call runs in a daemon thread. The end of the loop or the process does not wait for it, unlike `asyncio.to_thread`.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

Value = TypeVar("Value")


async def call(function: Callable[[], Value], name: str = "pybroker-call") -> Value:
    """Call a function in a thread of that name and return its result.

    After a cancellation the thread continues, and is ignored.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Value] = loop.create_future()

    def work() -> None:
        try:
            complete = partial(_complete, result, result.set_result, function())
        except Exception as error:
            complete = partial(_complete, result, result.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(complete)

    threading.Thread(target=work, name=name, daemon=True).start()
    return await result


def _complete(result: "asyncio.Future[Value]", setter: Callable[..., None], value: object) -> None:
    if not result.done():
        setter(value)
