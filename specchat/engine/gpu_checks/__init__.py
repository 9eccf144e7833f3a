"""Checks of the GPU path: each a function that notes figures and what is wrong. `specchat doctor --gpu` runs them.

Without a GPU the same kernels run in main memory, under Triton's interpreter.
"""
