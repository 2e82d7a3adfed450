"""MQTT 3.1, 3.1.1 and 5: packets, reason codes, properties, the codec, and topic names. No conversation."""
