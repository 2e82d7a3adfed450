"""pybroker and a stock ActiveMQ on one PostgreSQL server, turn about: `python -m benchmarks.database`."""
