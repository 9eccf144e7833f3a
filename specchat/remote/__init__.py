"""Pairs that an inference server elsewhere runs: an engine port over its HTTP interface."""
