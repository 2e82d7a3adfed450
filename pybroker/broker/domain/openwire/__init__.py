"""OpenWire: its structures, and the form in which they are stored: version 11, loose and uncached, as KahaDB does.

Here, below store and transports, because both need it:

- `commands`: every structure, declared field by field; `marshal` compiles the codec of the wire from that
- `layout`: where a message's fields stand in the stored form, as declared there
- `mutf8`: modified UTF-8 in linear time; `loose`: primitives, `MalformedOpenWire`
- `values`: primitive maps and streams (properties, map and stream bodies)
- `ids`: identifiers and destinations
- `throwables`: Java's exceptions
- `shapes`: where an arbitrary structure ends
- `body`: text framing and compression
- `message`: messages, whole; `routing` and `template` are its shortcuts in and out, `heads` reads how they begin
- `passed_brokers`: the path of a message that has come over a bridge, where it repeats
- `decoded_cache`: the fields of the messages that were decoded last
- `objects`: subscriptions, acknowledgements, the journal's size prefix
"""
