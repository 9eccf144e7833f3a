"""Finds the fastest way to draft here: by measuring a pair, or by estimating all pairs that fit this machine."""
