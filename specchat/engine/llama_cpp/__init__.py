"""Models that llama.cpp runs, below the same step; GGUF files written for it."""
