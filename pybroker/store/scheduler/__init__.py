"""Stores of scheduled messages: in ActiveMQ's scheduler journal, and in memory."""
