"""Models that transformers runs, below the same step."""
