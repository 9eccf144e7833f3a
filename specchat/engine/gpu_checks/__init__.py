"""Checks of the GPU path: each a function that notes figures and what is wrong. `specchat doctor --gpu` runs them.

Without a GPU the same kernels run in main memory, under Triton's interpreter. What stands here is what the process of a
check tells the one that started it, which never imports torch.
"""

UNAVAILABLE, WRONG, NO_MEMORY = 3, 4, 5
"""Exit codes: the check cannot run here; something is wrong; memory ran out."""
ROWS, WRONGS = "rows.jsonl", "wrong.json"
"""Files in its folder: an object of figures a line, and a list of sentences."""
