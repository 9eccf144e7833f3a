"""Shared parts of the native decoders: configuration, weights, cache, memory plan, tokenizer."""
