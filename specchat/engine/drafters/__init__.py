"""One file a family of drafting."""
