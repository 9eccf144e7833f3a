"""Other programs, measured with the same weights."""
