"""Networks of brokers: what a bridge is configured with, and what it decides, without any I/O.

A bridge connects the local broker, which has the connector, to a remote one. Demand for messages comes from the remote
broker, as advisories about its consumers; messages go there.

- `connector`: the attributes of a `networkConnector`
- `permission`: which destinations a bridge may serve
- `hops`: whether a message may make one more hop
- `bridge_filter`: on what terms a message may go back to a broker that it has passed
- `demand`: the demand table of a bridge, which turns advisories into `changes` of its subscriptions
- `interests`: of several ways to one consumer, over all bridges of a broker, one is used
- `suppressed`: the consumers to which another way is used, until it ends
- `overlap`: one copy of a topic message goes over a bridge, however many of its subscriptions take it
- `names`: client ids, names of durable subscriptions, and the topics of advisories
- `forwarding`: the bytes of a stored message as a bridge sends them
- `introduction`: the id and the name of a remote broker, checked
- `properties`: the Java properties file in which a bridge describes its connector

Source: ActiveMQ 5.17, `org.apache.activemq.network`.
"""
