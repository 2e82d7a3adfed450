"""MQTT 3.1, 3.1.1 and 5: the sessions of connections, sans-I/O."""
