"""OpenWire sessions, over the codec in `broker.domain.openwire`."""
