"""Pictures in messages: the same logits and text as transformers and plain decoding have."""
