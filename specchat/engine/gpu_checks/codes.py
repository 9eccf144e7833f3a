"""What the process of a check tells the one that started it, which never imports torch."""

UNAVAILABLE, WRONG, NO_MEMORY = 3, 4, 5
"""Exit codes: the check cannot run here; something is wrong; memory ran out."""
ROWS, WRONGS = "rows.jsonl", "wrong.json"
"""Files in its folder: an object of figures a line, and a list of sentences."""
