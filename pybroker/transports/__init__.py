"""How clients reach the broker: protocols as sans-I/O sessions, and the asyncio server that moves bytes."""
