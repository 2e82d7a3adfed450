"""Spark on the journal. Reads `pybroker.store`'s pure format modules, never a running broker."""
