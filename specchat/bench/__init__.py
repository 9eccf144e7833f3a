"""Measuring: our strategies and other programs on the same weights, prompts and machine, in one run."""
