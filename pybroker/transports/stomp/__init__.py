"""STOMP 1.0, 1.1 and 1.2 as ActiveMQ serves them: codec (bytes <-> frames) and session (conversation)."""
