"""One engine under every client: the resident process, its address, and the clients' side of it."""
