"""A draft whose tokens are not the target's reads and says the target's by way of the texts they stand for."""
