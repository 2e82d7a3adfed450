"""Who is master: providers of the lock on a shared store."""
