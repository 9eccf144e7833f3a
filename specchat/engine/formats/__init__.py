"""Storage of weights: layouts, blocks, and how they are read, packed and made dense."""
