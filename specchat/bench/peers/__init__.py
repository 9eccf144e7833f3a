"""Other programs that write with the same weights."""
