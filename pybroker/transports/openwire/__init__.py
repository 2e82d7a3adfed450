"""OpenWire, the protocol of ActiveMQ's own clients: a session over the codec in `broker.domain.openwire`."""
