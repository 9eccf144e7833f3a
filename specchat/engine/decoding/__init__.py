"""The speculative step: proposing, drafting, verifying, accepting."""
