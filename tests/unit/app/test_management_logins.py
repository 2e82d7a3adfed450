"""Logins of management whose clients do not wait for the outcome."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

from pybroker.broker.app.config import Config
from pybroker.broker.app.management_logins import ManagementLogins
from pybroker.broker.domain.security import Authenticator, Credentials, Decided


class SlowAuthenticator(Authenticator):
    """Decides when the test says so."""

    def __init__(self) -> None:
        self.decided: list[tuple[Credentials, Decided]] = []

    def authenticate(self, credentials: Credentials, decided: Decided) -> None:
        self.decided.append((credentials, decided))


def test_an_outcome_for_a_client_that_has_gone_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SlowAuthenticator()
    monkeypatch.setattr(ManagementLogins, "_authenticator", lambda _: slow)

    async def run() -> None:
        config = Config(store="memory:", users_file=Path("users.properties"))
        logins = ManagementLogins(config, SimpleNamespace(users=None))  # type: ignore[arg-type]
        verifying = asyncio.create_task(logins.verify("anna", "a", "10.0.0.1"))
        await asyncio.sleep(0)
        verifying.cancel()
        await asyncio.wait([verifying])
        ((credentials, decided),) = slow.decided
        decided(credentials.refusal)

    asyncio.run(run())
