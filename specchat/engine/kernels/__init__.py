"""Triton kernels of a GPU step, each with its plain-torch reference."""
