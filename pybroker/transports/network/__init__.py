"""Network connectors: the bridges that this broker opens to other brokers."""
