"""STOMP 1.0, 1.1 and 1.2 sessions with ActiveMQ's dialect, over the codec in `broker.domain.stomp`."""
