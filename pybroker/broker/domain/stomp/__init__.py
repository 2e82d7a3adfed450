"""STOMP's frames and their bytes, as a broker and a client both need them."""
