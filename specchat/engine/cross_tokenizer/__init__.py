"""Cross-tokenizer drafting: a draft model with another tokenizer reads and proposes the target's tokens."""
