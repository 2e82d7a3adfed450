"""Sans-I/O sessions of the protocols, and the asyncio server that moves their bytes."""
