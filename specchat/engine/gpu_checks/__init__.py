"""Checks of the GPU path: each a function that notes figures and faults. `specchat doctor --gpu` runs them.

Without a GPU the same kernels run in main memory, under Triton's interpreter. These constants are the messages of a
check's process to its parent, which never imports torch.
"""

UNAVAILABLE, WRONG, NO_MEMORY = 3, 4, 5
"""Exit codes: the check cannot run here; it found a fault; memory ran out."""
ROWS, WRONGS = "rows.jsonl", "wrong.json"
"""Files in its folder: an object of figures a line, and a list of faults."""
