"""Triton kernels of the step on a GPU, each beside its plain-torch reference."""
