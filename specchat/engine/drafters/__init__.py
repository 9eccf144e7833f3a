"""One file a strategy: its drafter and its descriptor."""
