"""Handlers of signals that do not end a member; SIGTERM and SIGINT, which end it, are handled in `serve`.

SIGHUP    reads certificates again; its line in the log opens a log file again that was renamed
SIGUSR1   logs a summary of the member's state
SIGUSR2   is ignored, with a line in the log; it is kept for later use

By default each of them would end the process without a log line; until a member handles them they are ignored, see
`process`. SIGHUP does not read settings again: most of them need new listeners and a newly opened store, and so a
restart.
"""

import asyncio
import contextlib
import logging
import signal
from typing import Final

from pybroker.broker.app.logs import instant
from pybroker.broker.app.node import Node
from pybroker.broker.app.systemd import ServiceNotifier
from pybroker.broker.app.tls_files import ListenerCertificates
from pybroker.counted import counted

_LARGEST_SHOWN: Final = 5
"""The destinations that the summary names, those whose messages take most memory."""

_log = logging.getLogger(__name__)


def handle(
    loop: asyncio.AbstractEventLoop,
    node: Node,
    certificates: ListenerCertificates | None,
    notifier: ServiceNotifier | None = None,
) -> None:
    """Handle the signals on an event loop; replaces the handlers of an earlier node."""
    loop.add_signal_handler(signal.SIGHUP, _reload, certificates, notifier)
    loop.add_signal_handler(signal.SIGUSR1, _summarise, node)
    loop.add_signal_handler(signal.SIGUSR2, _log.info, "SIGUSR2: ignored, it has no meaning here")


def _reload(certificates: ListenerCertificates | None, notifier: ServiceNotifier | None) -> None:
    with contextlib.nullcontext() if notifier is None else notifier.reloading():
        if certificates is None:
            _log.info("SIGHUP: there is nothing to read again, as there is no tls_certificate; settings need a restart")
            return
        _log.info("SIGHUP: reading certificates again; settings need a restart")
        certificates.reload()


def _summarise(node: Node) -> None:
    """Log one line with the member's role and counts."""
    state = f"{node.role.name.lower()} since {instant(node.since_ms)}"
    if (held := node.totals()) is None:
        _log.info("SIGUSR1: %s", state)
        return
    largest = [f"{name} {used / 2**20:.1f} MB" for name, used in node.largest(_LARGEST_SHOWN)]
    _log.info(
        "SIGUSR1: %s; %s, %s, %s waiting, %d in flight, %d scheduled, %.1f of %.1f MB of memory, %.1f MB spooled, "
        "loop lag %.0f ms%s%s%s%s%s",
        state,
        counted(held.connections, "connection"),
        counted(held.destinations, "destination"),
        counted(held.waiting, "message"),
        held.in_flight,
        held.scheduled,
        held.memory_bytes / 2**20,
        held.memory_bytes_max / 2**20,
        held.spool_bytes / 2**20,
        held.loop_lag_seconds * 1000,
        f" ({held.loop_lag_cause})" if held.loop_lag_cause else "",
        f"; {counted(held.refused, 'connection')} refused" if held.refused else "",
        "; the store is FULL" if held.is_full else "",
        "; the spool is FULL" if held.is_spool_full else "",
        f"; most memory: {', '.join(largest)}" if largest else "",
    )
