"""This member through all its runs: its state, its events, and its watch over the pair."""

import socket
from collections.abc import Callable

from pybroker.broker.app.alerts import Alerts, targets_of
from pybroker.broker.app.config import Config
from pybroker.broker.app.event_log import EventLog
from pybroker.broker.app.ha_state import HaState, ha_state
from pybroker.broker.app.machine import MACHINE, Machine
from pybroker.broker.app.membership import Membership
from pybroker.broker.app.node import Node
from pybroker.broker.app.own_record import OwnRecord
from pybroker.broker.app.pair_examination import PairExamination
from pybroker.broker.app.pair_watch import PairWatch
from pybroker.broker.app.security_files import SecurityFiles
from pybroker.broker.app.step_down import permission
from pybroker.broker.app.stores import without_secrets
from pybroker.broker.app.wiring import lock_name
from pybroker.store.member_history import Entry


class ThisMember:
    """The parts of one member that outlive its runs.

    Attributes:
        own: its state.
        events: its events.
        watch: its watch over the pair.
        may_step_down: decides if it may give its lock to another member.
    """

    def __init__(
        self, config: Config, security: SecurityFiles, membership: Membership | None, machine: Machine = MACHINE
    ) -> None:
        """Create it.

        Args:
            config: the settings.
            security: the files of users and rules.
            membership: its entry in the store; None: the store has none.
            machine: the machine of this member.
        """
        self._config = config
        name = membership.name if membership is not None else config.name or socket.gethostname()
        self._alerts = Alerts(targets_of(config.on_ha_event, config.ha_webhook))
        self.own = membership.own if membership is not None else OwnRecord(name, str(lock_name(config)), config.lock)
        self.events = EventLog(
            name,
            without_secrets(config.store),
            self._alerts,
            membership.keep if membership is not None else _keep_in_memory,
            membership.earlier if membership is not None else (),
        )
        examine = PairExamination(config, security, machine.bind)
        self.watch = PairWatch(name, examine, self.events, membership.inode if membership is not None else int, machine)
        self.own.examined = self.watch.examined
        if membership is not None:
            self.watch.changed = membership.refresh
        self.may_step_down = permission(config, name)
        self.replica_figures: Callable[[], HaState] | None = None
        """Returns the figures of its part in a replicated cluster; None: it has none."""

    def take(self, node: Node) -> None:
        """Begin another run."""
        self.own.running = self.watch.node = node

    def ha_state(self) -> HaState:
        """Return the state of high availability, as this member knows it. Blocks for the store, or for its database.

        Raises:
            BrokerError: the store cannot be read.
        """
        state = ha_state(self._config.store, self.own.current(), self.events.entries())
        return state if self.replica_figures is None else state | {"replica": self.replica_figures()}

    def close(self) -> None:
        """Send the events that wait to be sent. Blocks for some seconds at most."""
        self._alerts.close()


def _keep_in_memory(entry: Entry) -> None:
    """Do no more: a store without a place for histories has them in memory alone, where `EventLog` keeps them."""
