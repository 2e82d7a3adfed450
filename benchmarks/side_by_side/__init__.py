"""The same load for a stock ActiveMQ 5.17 and for pybroker, turn about: see `__main__`."""
