"""A recipe in plain torch, row by row: slow, read like a paper, and what trains and tests compare with."""
