"""What the process of a check tells the one that started it, which never imports torch."""

UNAVAILABLE, WRONG = 3, 4
"""Exit codes: the check cannot run here; something is wrong."""
ROWS, WRONGS = "rows.jsonl", "wrong.json"
"""Files in its folder: an object of figures a line, and a list of sentences."""
