"""The one place that chooses adapters and wires them: settings, HA controller, command line."""
