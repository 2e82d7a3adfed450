"""Providers of the lock on a shared store, whose holder is the master."""
