"""A pass as a program: a recipe lowered once to operations over named buffers, which executors run.

`ops.py` has the operations, `lower.py` makes a program of a recipe, `table.py` maps operations to an executor's
functions. Torch is not imported here, since memory plans read programs.
"""
