"""Other protocols over WebSocket: handshake, frames, and a session that wraps the protocol's own.

`subprotocols` chooses the protocol, `origins` the pages that may connect, `handshake` answers the request, `receiver`
turns frames into payloads, `frames` and `link` make frames of what the inner session writes, `session` joins them.
"""
