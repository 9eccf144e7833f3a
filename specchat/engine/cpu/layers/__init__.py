"""Compiled parts of a layer, and the pass over all."""
