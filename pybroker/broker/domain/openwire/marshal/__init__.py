"""OpenWire on the wire: every structure, versions 1 to 12, loose and tight, with and without value caching.

- `schema`: the specifiers by which `commands` declares each field
- `layouts`: the declared fields of each data type, and how a value is taken apart and put together
- `caches`: the tables of value caching, one per direction
- `sources`, `sinks`: the primitives of the two encodings
- `reading`, `writing`: declarations compiled into functions, once per version and encoding
- `codec`: `WireFormat`, one connection's encoder and decoder
- `wireformat`: what the two ends agree on
- `framing`: frames out of chunks
- `transcode`: messages between layout classes and the store's form
"""
