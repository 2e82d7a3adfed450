"""AMQP 1.0: the sessions of connections, and the conversion of messages, sans-I/O."""
