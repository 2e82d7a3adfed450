"""OpenWire v11, loose and uncached: the marshalled form of messages inside a KahaDB journal.

Here, below store and transports, because both need it:

- `loose`: primitives, modified UTF-8, `MalformedOpenWire`
- `values`: primitive maps and streams (properties, map and stream bodies)
- `ids`: identifiers and destinations
- `shapes`: where an arbitrary structure ends
- `body`: text framing and compression
- `message`: messages, whole; `routing` and `template` are its shortcuts in and out
- `objects`: subscriptions, acknowledgements, the journal's size prefix
"""
