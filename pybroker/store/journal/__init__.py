"""The KahaDB journal: format (pure), reader, writer, state, recovery, cleanup, and the store made of them."""
