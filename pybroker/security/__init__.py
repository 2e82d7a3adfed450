"""Adapters for logins: where users come from, and how passwords are verified."""
