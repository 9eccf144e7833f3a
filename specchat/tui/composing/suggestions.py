"""First prompts, for those who do not know what to ask."""

SUGGESTIONS = (
    "Tell me a story about a fox and a lamp.",
    "How does speculative decoding work?",
    "Write a Python function to reverse a string.",
)
"""The built-in pair answers these well; each has its number as key while nothing is written."""


def suggestion(key: str, typed: str) -> str:
    """The prompt that `key` chooses in an empty chat; empty where it is none or something else was typed."""
    if typed and typed not in SUGGESTIONS:
        return ""
    return next((words for number, words in enumerate(SUGGESTIONS, 1) if key == str(number)), "")
