"""The native decoder for the Llama family: config, weights, rows, cache, forward pass, tokenizer."""
