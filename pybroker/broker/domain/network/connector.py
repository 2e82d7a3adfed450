"""The attributes of a network connector, with ActiveMQ's names in Python spelling and ActiveMQ's defaults.

Source: ActiveMQ 5.17, `NetworkBridgeConfiguration`.
"""

from dataclasses import dataclass, field
from typing import Final

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.network.bridge_filter import ConditionalBridgeFilter

UNLIMITED_TTL: Final = -1
"""The value of `consumer_ttl` and `message_ttl` that allows any number of hops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkConnector:
    """The attributes of one network connector.

    Attributes:
        name: part of client ids and of the names of durable subscriptions; unique for each pair of brokers.
        client_id_token: joins the parts of the bridge's client ids, which are those of its durable subscriptions.
        uri: the discovery URI, such as `static:(tcp://host:61616)`.
        duplex: messages go both ways over one connection.
        consumer_ttl: how many hops demand travels; -1: any number.
        message_ttl: how many hops a message travels; -1: any number.
        prefetch_size: the window of each demand subscription, and of the consumer of advisories; above 0.
        advisory_prefetch_size: the window of the consumer of advisories; 0: `prefetch_size`.
        advisory_ack_percentage: part of that window after which advisories are acknowledged.
        conduit_subscriptions: consumers of the same messages share one demand subscription.
        conduit_network_queue_subscriptions: so do consumers of queues whose demand came over a bridge.
        dynamic_only: stored durable demand waits at start until a subscriber of the remote broker is active.
        sync_durable_subs: the brokers exchange lists of their durable subscriptions at start.
        decrease_network_consumer_priority: demand subscriptions have priorities from `consumer_priority_base` down.
        consumer_priority_base: the priority of demand that is one hop away.
        suppress_duplicate_queue_subscriptions: of several ways to a consumer of a queue, one is used.
        suppress_duplicate_topic_subscriptions: of several ways to a consumer of a topic, one is used.
        bridge_temp_destinations: temporary destinations are served.
        always_sync_send: the remote broker confirms each message; otherwise only persistent ones.
        static_bridge: only static destinations are served, and advisories are not consumed.
        destination_filter: names of advisory topics to consume instead of the usual ones; empty: the usual ones.
        use_compression: bodies are compressed before they are forwarded.
        use_virtual_dest_subs: consumers behind virtual destinations of the remote broker are demand for these.
        user_name: login at both brokers, unless `remote_user_name` is set; empty: the bridge does not log in.
        remote_user_name: login at the remote broker alone, with `remote_password`; empty: `user_name`.
        tls_ca: file with the certificates of trusted authorities, for `ssl:` addresses; empty: the system's.
        tls_certificate: file with the certificate that this broker presents; empty: it presents none.
        tls_key: file with its private key; empty: `tls_certificate` has it.
        tls_key_password_file: file with the key's password; empty: it has none.
        tls_verify_hostname: the remote broker's certificate must be for the host of its address.
        advisory_for_failed_forward: a message that the remote broker refuses causes an advisory.
        replay_when_no_consumers: a message of a queue may go back to a broker that it has passed while the queue has no
            consumer here, if its policy has no filter of its own.
        replay_delay: milliseconds for which a message must have been here before it goes back.
        excluded: destinations, and patterns of them, that are not served.
        dynamically_included: destinations that are served on demand; none: all.
        statically_included: destinations whose messages are forwarded without demand.
        forced_durable: those of the included topics whose consumers are durable demand, though they are not durable.
        durable: topics; without effect, because the stored durable subscriptions of a bridge name theirs.
    """

    name: str = "NC"
    client_id_token: str = "_"  # noqa: S105 - no secret
    uri: str = ""
    duplex: bool = False
    consumer_ttl: int = 1
    message_ttl: int = 1
    prefetch_size: int = 1000
    advisory_prefetch_size: int = 0
    advisory_ack_percentage: int = 75
    conduit_subscriptions: bool = True
    conduit_network_queue_subscriptions: bool = False
    dynamic_only: bool = False
    sync_durable_subs: bool = False
    decrease_network_consumer_priority: bool = False
    consumer_priority_base: int = -5
    suppress_duplicate_queue_subscriptions: bool = False
    suppress_duplicate_topic_subscriptions: bool = True
    bridge_temp_destinations: bool = True
    always_sync_send: bool = True
    static_bridge: bool = False
    destination_filter: str = ""
    use_compression: bool = False
    use_virtual_dest_subs: bool = False
    user_name: str = ""
    password: str = field(default="", repr=False)
    remote_user_name: str = ""
    remote_password: str = field(default="", repr=False)
    tls_ca: str = ""
    tls_certificate: str = ""
    tls_key: str = ""
    tls_key_password_file: str = ""
    tls_verify_hostname: bool = True
    advisory_for_failed_forward: bool = False
    replay_when_no_consumers: bool = False
    replay_delay: int = 5000
    excluded: tuple[Destination, ...] = ()
    dynamically_included: tuple[Destination, ...] = ()
    statically_included: tuple[Destination, ...] = ()
    forced_durable: tuple[Destination, ...] = ()
    durable: tuple[Destination, ...] = ()

    @property
    def bridge_filter(self) -> ConditionalBridgeFilter | None:
        """The filter of queues whose policy has none; None: nothing goes back."""
        if not self.replay_when_no_consumers:
            return None
        return ConditionalBridgeFilter(replay_when_no_consumers=True, replay_delay=self.replay_delay)

    @property
    def remote_login(self) -> tuple[str | None, str | None]:
        """The user name and password for the remote broker, which never sees the password of another user name."""
        name, password = self.remote_user_name, self.remote_password
        if not name:
            name, password = self.user_name, password or self.password
        return name or None, password or None
