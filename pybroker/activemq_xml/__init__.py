"""Reads an ActiveMQ's `activemq.xml`: `elements` parses it, `placeholders` fills in its `${…}`, `schema` checks it.

Source: the shape of these files, as ActiveMQ 5.17 reads them: Spring's `beans`, and in them a `broker`.
"""
