"""Vector code and records that compiled functions are made of."""
