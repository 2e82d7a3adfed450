"""Reads an ActiveMQ's `activemq.xml`, and says which settings of pybroker mean the same.

`interpretation` is the way in. `configuration_file` reads a file: `elements` parses it, `properties` and `placeholders`
fill in its `${…}`, `schema` checks it. `reading` is what is read of it so far; `broker_element` and the modules that it
names read one section each. Whatever means something else here is one of the `findings`.

Source: the shape of these files, as ActiveMQ 5.17 reads them: Spring's `beans`, and in them a `broker`.
"""
