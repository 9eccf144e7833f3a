"""What drafts fastest here: measured for a pair, or estimated for the pairs that fit this machine."""
