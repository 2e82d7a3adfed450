"""AMQP 1.0: values, performatives, frames, and the sections of a message. No conversation."""
