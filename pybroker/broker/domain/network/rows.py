"""The state of network connectors and bridges as rows: what operators, metrics and MBeans are made of.

They have no passwords. Times are milliseconds since the epoch.

Source: ActiveMQ 5.17, `NetworkConnectorView`, `NetworkBridgeView`.
"""

from typing import Final, NamedTuple

from pybroker.broker.domain.network.connector import NetworkConnector

UP: Final = "up"
"""The state of a bridge that works."""

STOPPED: Final = "stopped"
"""The state of a bridge that an operator has stopped."""


class NetworkConnectorRow(NamedTuple):
    """A network connector; see `NetworkConnector` for what is not explained here.

    Attributes:
        is_started: False after an operator has stopped it.
        bridges: the number of its bridges, one for each remote broker.
        bridges_up: those of them that are up.
        forwarded: messages that the remote brokers have confirmed, since this member became master.
        failures: attempts and connections that have failed, since then.
        demand: the number of its demand subscriptions.
        has_password: True if it logs in with a password.
    """

    name: str
    uri: str
    is_started: bool
    bridges: int
    bridges_up: int
    forwarded: int
    failures: int
    demand: int
    duplex: bool
    dynamic_only: bool
    static_bridge: bool
    conduit_subscriptions: bool
    decrease_network_consumer_priority: bool
    suppress_duplicate_queue_subscriptions: bool
    suppress_duplicate_topic_subscriptions: bool
    bridge_temp_destinations: bool
    consumer_ttl: int
    message_ttl: int
    prefetch_size: int
    advisory_prefetch_size: int
    destination_filter: str
    user_name: str
    remote_user_name: str
    has_password: bool

    @classmethod
    def of(cls, connector: NetworkConnector, bridges: "list[BridgeRow]", *, is_started: bool) -> "NetworkConnectorRow":
        """Return the row of a connector with these bridges."""
        return cls(
            connector.name,
            connector.uri,
            is_started,
            len(bridges),
            sum(each.state == UP for each in bridges),
            sum(each.forwarded for each in bridges),
            sum(each.failures for each in bridges),
            sum(each.demand for each in bridges),
            connector.duplex,
            connector.dynamic_only,
            connector.static_bridge,
            connector.conduit_subscriptions,
            connector.decrease_network_consumer_priority,
            connector.suppress_duplicate_queue_subscriptions,
            connector.suppress_duplicate_topic_subscriptions,
            connector.bridge_temp_destinations,
            connector.consumer_ttl,
            connector.message_ttl,
            connector.prefetch_size,
            connector.advisory_prefetch_size,
            connector.destination_filter,
            connector.user_name,
            connector.remote_user_name,
            bool(connector.password),
        )


class BridgeRow(NamedTuple):
    """A bridge.

    Attributes:
        connector: the name of its connector.
        target: the addresses of its remote broker.
        state: `connecting`, `up`, `waiting to connect again`, `ended` or `stopped`.
        since_ms: when it took that state.
        remote_name: the name of the remote broker; empty: it was never up.
        remote_id: its id; empty as above.
        remote_address: the address that it is, or was last, connected to; empty as above.
        sent: messages that were sent over it, again ones too, since this member became master.
        forwarded: those that the remote broker has confirmed.
        failures: attempts and connections that have failed, since then.
        failures_in_a_row: those of them since it was up.
        last_failure: the reason of the last one, even if it is up again; empty: there was none.
        last_failure_ms: the time of it; 0: there was none.
        next_attempt_ms: when it connects again; 0: it does not wait.
        demand: the number of its demand subscriptions.
        is_duplex: True if messages go both ways over it.
        received: messages that the remote broker has sent over it, again ones too, since then; 0 unless it is duplex.
    """

    connector: str
    target: str
    state: str
    since_ms: int
    remote_name: str
    remote_id: str
    remote_address: str
    sent: int
    forwarded: int
    failures: int
    failures_in_a_row: int
    last_failure: str
    last_failure_ms: int
    next_attempt_ms: int
    demand: int
    is_duplex: bool
    received: int = 0

    @property
    def problem(self) -> str:
        """The reason why it is not up: its state, and the last failure if that is behind it."""
        return f"{self.state}, {self.last_failure}" if self.last_failure and self.state != STOPPED else self.state


class IncomingBridgeRow(NamedTuple):
    """A bridge that another broker has opened to this one, while it stands.

    Attributes:
        connector: the name of the other broker's connector.
        remote_name: the name of that broker; empty: it does not say it.
        remote_id: its id; empty as above.
        address: the address and port that it comes from.
        since_ms: when it has logged in.
        user: the name of its user here; `anonymous` without a login.
        connection_id: the id of its connection.
        client_id: its client id.
        is_duplex: True if the other broker wants messages to go both ways.
        demand: the number of demand subscriptions by which this broker consumes for it; 0 unless they go both ways.
        received: messages that have come over it, again ones and refused ones too.
        sent: messages that were sent over it; 0 unless they go both ways.
        forwarded: those of them that the other broker has confirmed.
        problem: why this broker refuses its messages, and the remedy; empty: it does not.
    """

    connector: str
    remote_name: str
    remote_id: str
    address: str
    since_ms: int
    user: str
    connection_id: str
    client_id: str
    is_duplex: bool
    demand: int
    received: int
    sent: int
    forwarded: int
    problem: str


class DemandRow(NamedTuple):
    """A demand subscription: what a bridge consumes here because it is wanted there.

    Attributes:
        connector: the name of its connector.
        remote_name: the name of the remote broker.
        kind: `queue` or `topic`.
        destination: the name of its destination.
        selector: its selector; empty for none.
        subscription: the name of its durable subscription; empty for none.
        prefetch: the messages that may be without an answer.
        outstanding: those that are.
        priority: its priority among the consumers of its queue.
        is_paused: True after the remote broker has refused a message, until the next attempt.
        is_ending: True once no consumer of the remote broker wants it, until the last answers are there.
    """

    connector: str
    remote_name: str
    kind: str
    destination: str
    selector: str
    subscription: str
    prefetch: int
    outstanding: int
    priority: int
    is_paused: bool
    is_ending: bool


class StrandedRow(NamedTuple):
    """A queue with messages that have come over a bridge, and without a consumer of this broker.

    A message does not go back to a broker that it has passed, so these wait until a consumer comes here.

    Attributes:
        queue: its name.
        size: all its messages.
        stranded: those of the first ones that have come over a bridge.
        examined: the number of these first ones.
    """

    queue: str
    size: int
    stranded: int
    examined: int
