"""One engine under every door: the resident process, its address, and the doors' side of it."""
