"""Products with packed weights, by one thread and by several."""
