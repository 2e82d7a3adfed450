"""pybroker: a message broker in pure Python, a drop-in member of an ActiveMQ Classic installation."""

__version__ = "0.1.0"
