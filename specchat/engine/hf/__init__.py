"""Models that transformers runs, used by the same step."""
