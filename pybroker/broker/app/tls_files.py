"""The certificates of all listeners with TLS: those that have the same settings share them."""

import asyncio
import ssl
from collections.abc import Callable, Mapping

from pybroker.broker.app.config import Config
from pybroker.broker.app.listeners import TlsSettings
from pybroker.broker.domain.errors import ConfigError
from pybroker.transports.certificates import CertificateFiles, Certificates
from pybroker.transports.tls import TLS_VERSIONS, TlsRules


class ListenerCertificates:
    """The certificates by the settings that name their files; each may be replaced at any time."""

    def __init__(self, by_settings: Mapping[TlsSettings, Certificates]) -> None:
        self._by_settings = by_settings

    def context_of(self, settings: TlsSettings) -> Callable[[], ssl.SSLContext]:
        """Return what returns the context for a new connection."""
        return self._by_settings[settings].context

    def reload(self) -> None:
        """Read all files again; those that cannot be used are an error in the log, and the present ones stay."""
        for each in self._by_settings.values():
            each.reload()

    def warn(self, now: float) -> None:
        """Warn of certificates that expired or soon will; `now` in seconds since the epoch."""
        for each in self._by_settings.values():
            each.warn(now)

    async def watch(self) -> None:
        """Read changed files again until cancelled. Each set has a thread: one may be on a share that hangs."""
        async with asyncio.TaskGroup() as group:
            for each in self._by_settings.values():
                group.create_task(each.watch())


def make_certificates(config: Config) -> ListenerCertificates | None:
    """Read certificates and keys: those of the settings, which management may use too, and those of each listener.

    Returns:
        The certificates; None if there are none.

    Raises:
        ConfigError: they cannot be used.
    """
    made: dict[TlsSettings, Certificates] = {}
    if config.tls is not None:
        made[config.tls] = _certificates(config.tls)
    for listener in config.listeners:
        if listener.tls is not None and listener.tls not in made:
            try:
                made[listener.tls] = _certificates(listener.tls)
            except ConfigError as error:
                setting = f"{listener.setting}.{error.setting}"
                raise ConfigError(error.reason, setting=setting, hint=error.hint) from error
    return ListenerCertificates(made) if made else None


def _certificates(settings: TlsSettings) -> Certificates:
    return Certificates(
        CertificateFiles(
            certificate=settings.certificate,
            key=settings.key,
            key_password_file=settings.key_password_file,
            client_ca=settings.client_ca,
            needs_client=settings.needs_client,
        ),
        TlsRules(version_min=TLS_VERSIONS[settings.version_min], ciphers=settings.ciphers),
    )
