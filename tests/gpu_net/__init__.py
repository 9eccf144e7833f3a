"""Nets under the GPU path that need no GPU: each finds a kind of fault that would else show on a user's card alone."""
