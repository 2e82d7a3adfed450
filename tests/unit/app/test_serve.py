"""What one life of a member leaves to the next: nothing, least of all its memory."""

import asyncio
import gc
import logging
import weakref
from collections.abc import Callable

import pytest

from pybroker.broker.app import serve, wiring
from pybroker.broker.app.config import Config
from pybroker.broker.core.mastership import Role
from pybroker.locks.memory import LockRegistry, MemoryLock
from tests.compiled import interpreted

SECONDS = 20
CONNECT = b"CONNECT\naccept-version:1.2\nhost:x\n\n\0"
FILL = b"SEND\ndestination:/queue/q\npersistent:true\n\nx\0SUBSCRIBE\ndestination:/queue/q\nid:1\nack:client\n\n\0"


class Terms:
    """A member that becomes master again and again, and weak references to what each term was made of."""

    def __init__(self, registry: LockRegistry) -> None:
        self.parts: list[weakref.ref[object]] = []
        self._registry = registry
        self._port: asyncio.Queue[int] = asyncio.Queue()

    def noting(self, make: Callable[..., object]) -> Callable[..., object]:
        def made(*args: object) -> object:
            part = make(*args)
            self.parts.append(weakref.ref(part))
            return part

        return made

    def publish(self, role: Role, listeners: list[str], epoch: int) -> None:
        if role is Role.MASTER and listeners:
            self._port.put_nowait(int(listeners[0].rpartition(":")[2]))

    async def serve_client(self) -> None:
        """Wait for a term to begin, have a client use it, and end it by taking the lock away."""
        reader, writer = await asyncio.open_connection("127.0.0.1", await self._port.get())
        writer.write(CONNECT + FILL)
        async with asyncio.timeout(SECONDS):
            await reader.readuntil(b"MESSAGE")
            self._registry.revoke("lock")
            await reader.read()
        writer.close()

    async def next_term(self) -> None:
        async with asyncio.timeout(SECONDS):
            await self._port.get()


@pytest.fixture
def terms(monkeypatch, caplog):
    caplog.set_level(logging.CRITICAL)  # a captured error would hold the frames it came through, and their store
    registry = LockRegistry()
    terms = Terms(registry)
    monkeypatch.setattr(wiring, "make_lock", lambda config: MemoryLock(registry, "lock"))
    for name in ("make_broker", "make_store", "make_jobs"):
        monkeypatch.setattr(wiring, name, terms.noting(getattr(wiring, name)))
    yield terms
    gc.unfreeze()


@interpreted
def test_former_terms_are_freed_after_the_lock_is_lost(terms, tmp_path):
    """A promotion freezes what it has loaded: unless that is undone, each loss of the lock keeps a former backlog."""
    config = Config(store=str(tmp_path), stomp=0, openwire="off", lock_check="50ms")

    async def lose_lock_three_times() -> list[object]:
        member = asyncio.create_task(serve._live(config, "m", terms.publish))
        for _ in range(3):
            await terms.serve_client()
        await terms.next_term()
        gc.disable()  # what is free now was freed by the member
        try:
            return [part() for part in terms.parts]
        finally:
            gc.enable()
            member.cancel()
            await asyncio.gather(member, return_exceptions=True)

    parts = asyncio.run(lose_lock_three_times())
    per_term = len(parts) // 4
    assert per_term == 3
    assert parts[:-per_term] == [None] * 3 * per_term
    assert None not in parts[-per_term:]
