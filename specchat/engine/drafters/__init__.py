"""One file a strategy: a drafter, which proposes, and its descriptor."""
