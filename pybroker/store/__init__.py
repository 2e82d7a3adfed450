"""Message stores: the KahaDB journal, PostgreSQL and, for tests, memory."""
