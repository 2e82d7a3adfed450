"""Client of the REST API of management, for commands: `address`, `exchange`, `client`, `errors`.

See docs/management.md for the API. It uses the standard library alone.
"""
