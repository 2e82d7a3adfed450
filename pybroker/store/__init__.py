"""Where messages outlive the process: the KahaDB journal and, for tests and toys, memory."""
